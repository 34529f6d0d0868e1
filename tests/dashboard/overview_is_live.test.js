import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { statfs } from "node:fs/promises";
import { test } from "node:test";
import {
  Client,
  IS_FROM_FOLDER,
  openDashboard,
  press,
  publish,
  publishMany,
  rowsOf,
  sees,
  startServer,
  textOf,
  until,
  write,
} from "./support.js";

/** The budget of the first paint, of which files that the test hands over cost a part. */
const FIRST_PAINT_MS = IS_FROM_FOLDER ? 400 : 200;

test("an empty server is healthy and says what is missing", async (t) => {
  const server = await startServer(t);
  const page = await openDashboard(t, server);
  await sees(page, "Healthy");
  await sees(page, "No group has unfinished events.");
  await sees(page, "promethean 0.");
  for (const [view, text] of [
    ["topics", "No topics."],
    ["groups", "No groups."],
    ["dead-letters", "Nothing waits for you."],
    ["schemas", "0 topics with a schema"],
    ["state", "declares no projectors"],
    ["admin/metrics", "events_published_total"],
  ]) {
    await page.evaluate((to) => void (location.hash = `#/${to}`), view);
    await sees(page, text);
  }
});

test("rates, lag and counts follow the server", async (t) => {
  const server = await startServer(t);
  const client = new Client(server.url);
  t.after(() => client.close({ timeoutMs: 500 }).catch(() => {}));
  await client.subscribe("orders", "billing", () => new Promise(() => {}), { from: "earliest", maxInFlight: 5 });
  await publishMany(
    server,
    "orders",
    Array.from({ length: 200 }, (_, n) => ({ n })),
  );
  const page = await openDashboard(t, server);
  const timer = setInterval(() => publish(server, "orders", 1).catch(() => {}), 50);
  t.after(() => clearInterval(timer));
  const tile = (name) =>
    page.$$eval(
      ".tile",
      (tiles, wanted) => tiles.find((one) => one.innerText.startsWith(wanted))?.innerText ?? "",
      name,
    );
  await until(async () => Number((await tile("Published")).split("\n")[1]) > 1, { what: "a rate" });
  await until(async () => Number((await tile("In flight")).split("\n")[1]) === 5);
  const label = "Groups with the largest lag";
  await until(async () => (await rowsOf(page, label))[0]?.[0] === "billing");
  const [, topic, lag, , state] = (await rowsOf(page, label))[0];
  assert.equal(topic, "orders");
  assert.ok(Number(lag.replace(",", "")) >= 200, lag);
  assert.equal(state, "credit");
  // The chart is a picture for people and a sentence for screen readers.
  await until(() => page.$eval("p-chart canvas", (canvas) => /Published \d/.test(canvas.getAttribute("aria-label"))));
  const isDrawn = await page.$eval("p-chart canvas", (canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return data.some((value) => value > 0);
  });
  assert.ok(isDrawn);
});

test("nothing moves when numbers change", async (t) => {
  const server = await startServer(t);
  const page = await openDashboard(t, server);
  await sees(page, "Healthy");
  await sees(page, "promethean 0.");
  await page.evaluate(() => {
    globalThis.shift = 0;
    new PerformanceObserver((list) => list.getEntries().forEach((one) => (globalThis.shift += one.value))).observe({
      type: "layout-shift",
    });
  });
  for (let n = 0; n < 40; n++)
    await publishMany(
      server,
      `t${n}`,
      Array.from({ length: 500 }, (_, i) => i),
    );
  const tile = () =>
    page.$$eval(".tile", (tiles) => tiles.find((one) => one.innerText.startsWith("Topics"))?.innerText ?? "");
  await until(async () => (await tile()).includes("40"));
  assert.ok((await page.evaluate(() => shift)) < 0.01);
});

/** Waits until the page remembers what it shows, and makes that an hour old. */
async function wasAway(page, name, more = {}) {
  const key = `promethean-seen ${name}`;
  await until(() => page.evaluate((at) => localStorage.getItem(at) !== null, key));
  await page.evaluate(
    (at, other) => {
      const seen = JSON.parse(localStorage.getItem(at));
      localStorage.setItem(at, JSON.stringify({ ...seen, at: seen.at - 3_600_000, ...other }));
    },
    key,
    more,
  );
}

test("dead letters are compared once they are known", async (t) => {
  const server = await startServer(t);
  const client = new Client(server.url, { onError() {} });
  t.after(() => client.close({ timeoutMs: 500 }).catch(() => {}));
  const fail = () => Promise.reject(new Error("no price"));
  await client.subscribe("orders", "billing", fail, { from: "earliest", maxAttempts: 1 });
  for (let n = 0; n < 12; n++) await publish(server, "orders", n);
  await until(async () => (await server.json("/dlq?topic=orders&group=billing")).letters.length === 12);
  // The metrics come after everything else.
  const script = () => {
    const real = globalThis.fetch;
    globalThis.fetch = async (url, init) => {
      if (new URL(url).pathname === "/metrics") await new Promise((resolve) => setTimeout(resolve, 1500));
      return real(url, init);
    };
  };
  const page = await openDashboard(t, server, { script });
  await wasAway(page, "anyone", { deadLetters: 10 });
  await page.reload();
  await sees(page, "Since you looked, 1 h ago");
  await sees(page, "2 more dead letters");
});

test("what one token saw is not told to another, and is forgotten at the logout", async (t) => {
  const tokens = { ops: "prom_token_of_ops_for_the_dashboard", dev: "prom_token_of_dev_for_the_dashboard" };
  const entries = Object.entries(tokens).map(
    ([name, token]) =>
      `[[auth.tokens]]\nname = "${name}"\nsha256 = "${createHash("sha256").update(token).digest("hex")}"\nscopes = ["admin"]\n`,
  );
  const server = await startServer(t, { config: entries.join("\n") });
  await publish(server, "orders", 1, { token: tokens.ops });
  const page = await openDashboard(t, server, { token: tokens.ops });
  await wasAway(page, "ops");
  await publish(server, "secrets", 1, { token: tokens.ops });
  await press(page, "Log out");
  await sees(page, "Log in");
  assert.equal(await page.evaluate(() => localStorage.length), 0);
  await write(page, "Token", tokens.dev);
  await press(page, "Log in");
  await until(() => page.evaluate(() => localStorage.getItem("promethean-seen dev") !== null));
  assert.ok(!(await textOf(page)).includes("Since you looked"));
});

test("a server that is not well says why, also for reasons that the page does not know", async (t) => {
  const server = await startServer(t);
  const health = { status: "degraded", writable: true, slow: false, damaged_ranges: 0, projectors_halted: 0 };
  const dot = (page) => page.$eval(".card .dot", (element) => element.className);
  for (const [more, text] of [
    [{ rebuilds_incomplete: 1 }, "1 rebuild left out events that failed"],
    [{ compactors_failing: 2 }, "2 compactors cannot write snapshots"],
    [{ moon: "full" }, "a reason that this page does not know"],
  ]) {
    const page = await openDashboard(t, server, { answers: { "/health": { ...health, ...more } } });
    await sees(page, "Degraded");
    await sees(page, text);
    assert.match(await dot(page), /bad/);
  }
});

test("an error of one part stays when another part succeeds", async (t) => {
  const server = await startServer(t);
  const script = () => {
    const real = globalThis.fetch;
    globalThis.samples = 0;
    globalThis.fetch = (url, init) => {
      const { pathname } = new URL(url);
      if (pathname === "/metrics") globalThis.samples++;
      if (pathname !== "/ops") return real(url, init);
      const refusal = { error: "internal", message: "the groups cannot be read" };
      return Promise.resolve(new Response(JSON.stringify(refusal), { status: 500 }));
    };
  };
  const page = await openDashboard(t, server, { script });
  await sees(page, "The groups cannot be read.", ".failure");
  const before = await page.evaluate(() => samples);
  await until(() => page.evaluate((than) => samples >= than + 2, before));
  assert.match(await textOf(page, ".failure"), /The groups cannot be read/);
});

/** What the card about the store says, by name. */
const storage = (page) =>
  page.$$eval("section.card", (cards) => {
    const card = cards.find((one) => one.querySelector("h2")?.innerText === "Storage");
    const [names, values] = ["dt", "dd"].map((tag) => [...card.querySelectorAll(tag)].map((one) => one.innerText));
    return Object.fromEntries(names.map((name, at) => [name, values[at]]));
  });

test("the store, what it promises, its disk and its latencies are shown", async (t) => {
  const server = await startServer(t, { isDurable: true });
  const client = new Client(server.url, { onError() {} });
  t.after(() => client.close({ timeoutMs: 500 }).catch(() => {}));
  await client.subscribe("orders", "billing", () => {});
  const page = await openDashboard(t, server);
  await sees(page, "none in the last minute");
  const timer = setInterval(() => publish(server, "orders", { note: "x".repeat(500) }).catch(() => {}), 100);
  t.after(() => clearInterval(timer));
  const latency = /^half [≤>] [\d.]+ ms, 99 % [≤>] [\d.]+ ms, last minute$/;
  for (const name of ["Syncs", "Commits"])
    await until(async () => latency.test((await storage(page))[name]), { what: name });
  const shown = await storage(page);
  assert.equal(shown.Store, "Files in the data directory of this machine.");
  assert.equal(shown.Durability, "An answered publish survives a power cut: the answer follows the sync of the disk.");
  assert.match(shown.Server, /^promethean \d/);
  // The disk that the server tells is the one on which its data are.
  const { bavail, bsize } = await statfs(server.directory);
  const [number, unit] = shown["Disk left"].split(" ");
  const left = Number(number) * { B: 1, KB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12 }[unit];
  assert.ok(Math.abs(left - bavail * bsize) < 0.3 * left, `${shown["Disk left"]}, ${bavail * bsize} bytes`);
  await until(async () => (await storage(page)).Kept !== "0 B");
});

test("a store in memory has no disk and no syncs", async (t) => {
  const server = await startServer(t);
  await publish(server, "orders", 1);
  const page = await openDashboard(t, server);
  await sees(page, "In memory: everything is gone when the server stops.");
  await until(async () => (await storage(page)).Kept !== "0 B");
  assert.deepEqual(Object.keys(await storage(page)), ["Store", "Server", "Kept", "Commits"]);
});

test("the page says what changed since the user looked", async (t) => {
  const server = await startServer(t);
  await publish(server, "orders", 1);
  const page = await openDashboard(t, server);
  await wasAway(page, "anyone");
  await publishMany(server, "orders", [1, 2, 3]);
  await publish(server, "refunds", 1);
  await page.reload();
  await sees(page, "Since you looked, 1 h ago");
  const text = await textOf(page);
  assert.match(text, /4 events published, most of them to orders \(3\)/);
  assert.match(text, /1 new topic: refunds/);
});

test("the first paint is fast and small", async (t) => {
  const server = await startServer(t);
  const page = await openDashboard(t, server);
  const session = await page.createCDPSession();
  await session.send("Network.enable");
  let bytes = 0;
  session.on("Network.loadingFinished", (event) => (bytes += event.encodedDataLength));
  await page.setCacheEnabled(false);
  await page.reload();
  await sees(page, "Healthy");
  // Files of the folder come as they are, not compressed.
  assert.ok(bytes < 150_000 || IS_FROM_FOLDER, `${bytes} bytes`);
  // Without its cache the browser paints within the budget, in the best of several tries: others use the machine too.
  const paints = [];
  while (paints.length < 20 && !(Math.min(...paints) < FIRST_PAINT_MS)) {
    await page.reload();
    await sees(page, "Healthy");
    paints.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime));
  }
  t.diagnostic(`first paint after ${paints.map(Math.round)} ms, ${bytes} bytes until the overview is filled`);
  assert.ok(Math.min(...paints) < FIRST_PAINT_MS, `${paints.map(Math.round)} ms`);
});
