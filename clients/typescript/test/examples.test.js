import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Client, Reader } from "../src/index.js";
import { startBrowser } from "./support/browser.js";
import { startServer } from "./support/server.js";
import { until } from "./support/wait.js";

const EXAMPLES = new URL("../../../examples/", import.meta.url);
const CONFIG = readFileSync(new URL("processes.toml", EXAMPLES), "utf8").replace(
  '"schemas"',
  `"${fileURLToPath(new URL("schemas", EXAMPLES))}"`,
);

/** Runs an example as a user does; `lines` has what it prints. */
function run(t, path, env) {
  return start(t, [process.execPath, fileURLToPath(new URL(path, EXAMPLES))], env);
}

function start(t, [command, ...args], env) {
  const child = spawn(command, args, { env: { PATH: process.env.PATH, ...env } });
  const lines = [];
  createInterface({ input: child.stdout }).on("line", (line) => lines.push(line));
  createInterface({ input: child.stderr }).on("line", (line) => lines.push(line));
  const exit = new Promise((resolve) => child.once("exit", resolve));
  t.after(() => child.kill("SIGKILL"));
  return { child, lines, exit };
}

test("the page shows the state of processes as it changes", async (t) => {
  const server = await startServer(t, { config: CONFIG });
  const example = run(t, "browser/server.js", { PROMETHEAN_URL: server.http, PORT: "0" });
  const line = await until(() => example.lines.find((text) => text.startsWith("open ")), {
    what: "the page is served",
  });
  const browser = await startBrowser();
  t.after(() => browser.close());
  const client = await new Client(server.url).connect();
  t.after(() => client.close());
  const heartbeat = { pid: 1, name: "stt", host: "local", cpu_pct: 12.5, mem_mb: 200 };
  await client.publish("heartbeat.received", heartbeat);
  const page = await browser.newPage();
  const problems = [];
  page.on("pageerror", (error) => problems.push(error));
  await page.goto(line.split(" ")[1]);
  const rows = () => page.$$eval("#processes tr", (all) => all.map((row) => row.innerText.split("\t")));
  await until(async () =>
    (await rows()).some(([id, status, cpu]) => id === "local:stt:1" && status === "alive" && cpu === "12.5 %"),
  );
  await client.publish("heartbeat.received", { ...heartbeat, cpu_pct: 50 });
  await until(async () => (await rows()).some(([id, , cpu]) => id === "local:stt:1" && cpu === "50.0 %"));
  await until(async () => (await rows()).some(([id]) => id.includes(":page:")), { what: "the page reports itself" });
  assert.equal(await page.$eval("#state", (element) => element.textContent), "open");
  assert.deepEqual(problems, []);
});

test("the service reports itself, raises an alarm once, and closes cleanly", async (t) => {
  const server = await startServer(t, { config: CONFIG, args: ["--token", "secret"] });
  const example = run(t, "node-service/service.js", { PROMETHEAN_URL: server.url, PROMETHEAN_TOKEN: "secret" });
  await until(() => example.lines.includes("watching process.state"));
  const client = await new Client(server.url, "secret").connect();
  t.after(() => client.close());
  const reader = new Reader(client);
  const events = async (topic) => {
    const all = [];
    for await (const event of reader.replay(topic)) all.push(event);
    return all;
  };
  await until(async () =>
    (await events("process.state")).some(
      ({ payload }) => payload.name === "node-service" && payload.status === "alive",
    ),
  );
  const stale = {
    processId: "h:n:1",
    name: "n",
    host: "h",
    pid: 1,
    cpu_pct: 1,
    mem_mb: 1,
    last_seen_ts: 5,
    status: "stale",
  };
  await client.publish("process.state", stale, { key: "h:n:1" });
  const alarms = await until(async () => {
    const all = await events("alarm.raised");
    return all.length > 0 && all;
  });
  assert.deepEqual(
    alarms.map(({ payload }) => payload),
    [{ process: "h:n:1", last_seen_ts: 5 }],
  );
  example.child.kill("SIGTERM");
  assert.equal(await example.exit, 0, example.lines.join("\n"));
  assert.equal(example.lines.at(-1), "closed");
});

/** Builds the service in Rust and returns the path of its binary. */
async function buildRustService() {
  const args = ["build", "--quiet", "--locked", "-p", "promethean-client", "--example", "rust-service"];
  const { stdout } = await promisify(execFile)("cargo", [...args, "--message-format", "json"], {
    cwd: fileURLToPath(EXAMPLES),
    maxBuffer: 1 << 26,
  });
  const built = stdout.split("\n").filter(Boolean).map(JSON.parse);
  return built.find(({ target, executable }) => target?.name === "rust-service" && executable).executable;
}

test("the services in Node and Rust run against each other", { timeout: 600_000 }, async (t) => {
  const rustService = await buildRustService();
  // A process is stale after 4 s instead of 15 s.
  const config = CONFIG.replace("> 15000", "> 4000").replace('every = "5s"', 'every = "500ms"');
  const server = await startServer(t, { config, args: ["--token", "secret"] });
  const env = { PROMETHEAN_URL: server.url, PROMETHEAN_TOKEN: "secret", HOSTNAME: "here" };
  const node = run(t, "node-service/service.js", env);
  await until(() => node.lines.includes("watching process.state"));
  const first = start(t, [rustService], env);
  const client = await new Client(server.url, "secret").connect();
  t.after(() => client.close());
  const named = async (topic, process) => {
    const found = [];
    for await (const { payload } of new Reader(client).replay(topic))
      if ((payload.processId ?? payload.process) === process) found.push(payload);
    return found;
  };
  const process = `here:rust-service:${first.child.pid}`;
  await until(async () => (await named("process.state", process)).length > 0, {
    what: "the service in Rust reports itself",
  });
  first.child.kill("SIGKILL");
  await until(async () => (await named("alarm.raised", process)).length > 0, {
    what: "the service in Node raises an alarm",
  });
  const second = start(t, [rustService], env);
  await until(async () => (await named("alarm.answered", process)).length > 0, {
    what: "the service in Rust answers it",
  });
  for (const service of [node, second]) {
    service.child.kill("SIGINT");
    assert.equal(await service.exit, 0, service.lines.join("\n"));
    assert.equal(service.lines.at(-1), "closed");
  }
  assert.equal((await named("alarm.raised", process)).length, 1);
  assert.deepEqual(await named("alarm.answered", process), [{ process, answered_by: "rust-service" }]);
});
