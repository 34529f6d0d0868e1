import assert from "node:assert/strict";
import { createHash, createHmac } from "node:crypto";
import { test } from "node:test";
import { Renewal } from "../src/token.js";
import { clientOf } from "./support/client.js";
import { startServer } from "./support/server.js";
import { sleep, until } from "./support/wait.js";

const SECRET = "0123456789abcdef0123456789abcdef";
const SIGNED = `[auth.jwt]\nsecret = "${SECRET}"\n`;

function signed(seconds, scopes = ["publish:**", "subscribe:**"]) {
  const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const head = `${part({ alg: "HS256", typ: "JWT" })}.${part({ sub: "test", exp: Math.floor(Date.now() / 1000) + seconds, scopes })}`;
  return `${head}.${createHmac("sha256", SECRET).update(head).digest("base64url")}`;
}

function listed(...entries) {
  return entries
    .map(
      ([name, token, scopes]) => `[[auth.tokens]]
name = "${name}"
sha256 = "${createHash("sha256").update(token).digest("hex")}"
scopes = ${JSON.stringify(scopes)}
`,
    )
    .join("\n");
}

test("a token from a function is renewed on the live connection before it expires", async (t) => {
  const server = await startServer(t, { config: SIGNED });
  const states = [];
  let tokens = 0;
  const client = clientOf(t, server, {
    token: async () => (tokens++, signed(3)),
    onState: (state) => states.push(state),
  });
  await client.connect();
  await until(() => tokens >= 4, { timeoutMs: 10_000 });
  await client.publish("t", 1);
  assert.deepEqual(states, ["connecting", "open"], "the connection was never lost");
});

test("a token that expires because it was not renewed is replaced by a new connection", async (t) => {
  const server = await startServer(t, { config: SIGNED });
  let tokens = 0;
  // The client does not plan ahead here, so the first token ends while it is used.
  const client = clientOf(t, server, { token: () => (tokens++ === 0 ? signed(1) : signed(60)) });
  client.connection.renewal.plan = () => {};
  const got = [];
  await client.subscribe("t", "g", (event) => void got.push(event.payload), { from: "earliest" });
  await until(() => tokens >= 2, { timeoutMs: 10_000 });
  await client.publish("t", "after");
  await until(() => got.length === 1);
});

test("a fixed token that expires ends the client and every call says why", async (t) => {
  const server = await startServer(t, { config: SIGNED });
  const client = clientOf(t, server, { token: signed(1) });
  const ended = [];
  await client.subscribe("t", "g", () => {}, { onError: (error) => ended.push(error) });
  await until(() => client.state === "closed", { timeoutMs: 10_000 });
  assert.equal(ended[0].code, "bad_token");
  await assert.rejects(client.publish("t", 1), { code: "bad_token" });
});

test("a revoked token ends the client", async (t) => {
  const server = await startServer(t, { config: listed(["a", "first", ["admin"]], ["b", "second", ["admin"]]) });
  const client = clientOf(t, server, { token: "first" });
  await client.publish("t", 1);
  server.configure(listed(["b", "second", ["admin"]]));
  server.signal("SIGHUP");
  await until(() =>
    client.publish("t", 2).then(
      () => false,
      (error) => error.code === "bad_token",
    ),
  );
  assert.equal(client.state, "closed");
});

test("a revoked token from a function is replaced and nothing is lost", async (t) => {
  const server = await startServer(t, { config: listed(["a", "first", ["admin"]], ["b", "second", ["admin"]]) });
  let current = "first";
  const client = clientOf(t, server, { token: () => current });
  const got = [];
  await client.subscribe("t", "g", (event) => void got.push(event.payload), { from: "earliest" });
  current = "second";
  server.configure(listed(["b", "second", ["admin"]]));
  server.signal("SIGHUP");
  for (let n = 0; n < 50; n++) {
    await client.publish("t", n);
    await sleep(5);
  }
  await until(() => got.length === 50);
  assert.equal(client.state, "open");
});

test("a function that fails is asked again", async (t) => {
  const server = await startServer(t, { args: ["--token", "right"] });
  let calls = 0;
  const client = clientOf(t, server, {
    token: () => {
      if (++calls < 8) throw new Error("the issuer is away");
      return "right";
    },
  });
  await client.connect();
  assert.equal(calls, 8);
  assert.equal(client.errors[0].code, "auth_unavailable");
  assert.match(client.errors[0].message, /the issuer is away/);
});

test("a subscription that the token no longer allows ends with forbidden", async (t) => {
  const server = await startServer(t, { config: listed(["a", "first", ["publish:**", "subscribe:**"]]) });
  const client = clientOf(t, server, { token: "first" });
  const ended = [];
  await client.subscribe("t", "g", () => {}, { onError: (error) => ended.push(error) });
  server.configure(listed(["a", "first", ["publish:**"]]));
  server.signal("SIGHUP");
  await until(() => client.publish("t", 1).then(() => ended.length > 0));
  assert.equal(ended[0].code, "forbidden");
  assert.equal(client.subscriptions.size, 0);
});

test("a function that returns refused tokens for a while is asked again, not too often", async (t) => {
  const server = await startServer(t, { args: ["--token", "right"] });
  const calls = [];
  const client = clientOf(t, server, {
    token: () => (calls.push(performance.now()), calls.length < 4 ? "wrong" : "right"),
  });
  await client.connect();
  const waits = calls.slice(1).map((at, index) => at - calls[index]);
  assert.ok(
    waits.every((wait) => wait >= 990),
    `${waits}`,
  );
  // Many refusals in a short time are no reason to give up; a long time of them is.
  const { connection } = client;
  const hopeless = () => Array.from({ length: 10 }, () => connection.isTokenHopeless());
  assert.deepEqual([...new Set(hopeless())], [false]);
  connection.tokensRefused.since -= 30_000;
  assert.equal(connection.isTokenHopeless(), true);
});

test("a renewal that fails is tried more and more rarely, and after two refused tokens no more", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const callsOf = async (code) => {
    let calls = 0;
    const renewal = new Renewal(
      () => "",
      async () => {
        calls++;
        throw Object.assign(new Error(code), { code });
      },
    );
    renewal.plan(signed(1));
    for (let at = 0; at < 600_000; at += 250) {
      t.mock.timers.tick(250);
      for (let turn = 0; turn < 5; turn++) await Promise.resolve();
    }
    renewal.stop();
    return calls;
  };
  assert.equal(await callsOf("bad_token"), 2);
  const calls = await callsOf("auth_unavailable");
  assert.ok(calls >= 8 && calls <= 30, `${calls} calls in ten minutes`);
});
