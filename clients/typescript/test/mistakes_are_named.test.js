import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Admin, Client, PrometheanError, ServerDedupe, adviceFor } from "../src/index.js";
import { clientOf } from "./support/client.js";
import { freePort, startServer } from "./support/server.js";
import { until } from "./support/wait.js";

const NARROW = "test-token";
const TOKENS = `
[[auth.tokens]]
name = "narrow"
sha256 = "${createHash("sha256").update(NARROW).digest("hex")}"
scopes = ["publish:orders.*", "subscribe:orders.*@billing"]
`;

test("a URL without a scheme, or with another one, is refused at once with an example", () => {
  for (const url of ["localhost:8090", "127.0.0.1:8090", "ftp://x", "", "ws://"]) {
    assert.throws(() => new Client(url), {
      name: "PrometheanError",
      code: "bad_url",
      message: /ws:\/\/127\.0\.0\.1:8090/,
    });
  }
  assert.throws(() => new Client("ws://token@host"), { code: "bad_url", message: /give the token as an option/ });
  for (const url of ["ws://h:1", "ws://h:1/", "ws://h:1/ws", "http://h:1", new URL("http://h:1/")]) {
    assert.deepEqual(new Client(url).address, { ws: "ws://h:1/", http: "http://h:1" });
  }
  assert.equal(new Client("https://h/bus").address.ws, "wss://h/bus/");
});

test("a server that is not there is named with its address and the reason", async (t) => {
  const port = await freePort();
  const client = clientOf(t, `ws://127.0.0.1:${port}`);
  await assert.rejects(client.connect({ timeoutMs: 3_000 }), (error) => {
    assert.equal(error.code, "unreachable");
    assert.match(error.message, new RegExp(`ws://127.0.0.1:${port}/: ECONNREFUSED; check that the server runs`));
    assert.equal(error.isRetryable, true);
    return true;
  });
  await assert.rejects(
    client.subscribe("t", "g", () => {}, { timeoutMs: 100 }),
    { code: "unreachable" },
  );
  assert.equal(client.subscriptions.size, 0);
  assert.equal(client.state, "connecting", "it keeps trying");
});

test("a server that is not Promethean is named", async (t) => {
  const other = createServer((_, response) => response.end("<html>hello</html>")).listen(0, "127.0.0.1");
  t.after(() => other.close());
  await new Promise((resolve) => other.once("listening", resolve));
  const client = clientOf(t, `ws://127.0.0.1:${other.address().port}`);
  await assert.rejects(
    client.subscribe("t", "g", () => {}),
    { code: "wrong_url", message: /is not a Promethean server/ },
  );
  assert.equal(client.subscriptions.size, 0);
});

test("a wrong token, and a missing one, end the client with the server's reason", async (t) => {
  const server = await startServer(t, { args: ["--token", "right"] });
  const wrong = clientOf(t, server, { token: "wrong" });
  await assert.rejects(wrong.connect(), { code: "bad_token", isRetryable: false });
  await assert.rejects(wrong.publish("t", 1), { code: "bad_token" });
  assert.equal(wrong.state, "closed");
  const none = clientOf(t, server);
  const publish = none.publish("t", 1);
  await assert.rejects(
    publish,
    (error) => ["unauthorized", "bad_token"].includes(error.code) && error.hasNoSideEffects,
  );
  assert.equal((await new Client(server.url, "right").connect().then((client) => client.close()), "ok"), "ok");
});

test("a missing scope is forbidden, for publishing, subscribing and HTTP", async (t) => {
  const server = await startServer(t, { config: TOKENS });
  const client = clientOf(t, server, { token: NARROW });
  await client.publish("orders.placed", 1);
  await assert.rejects(client.publish("secrets", 1), { code: "forbidden", message: /publish:secrets/ });
  await assert.rejects(
    client.subscribe("orders.*", "others", () => {}),
    { code: "forbidden" },
  );
  await client.subscribe("orders.*", "billing", () => {});
  await assert.rejects(
    async () => {
      for await (const lease of client.leases("secrets", "g")) lease.ack();
    },
    { code: "forbidden" },
  );
  await assert.rejects(new Admin(client).deleteTopic("orders.placed"), { code: "forbidden" });
  await assert.rejects(new Admin(server.url).topic("orders.placed"), { code: "unauthorized" });
  const id = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f";
  await assert.rejects(new ServerDedupe(client).seen("secrets", "g", id), { code: "forbidden" });
  assert.equal(await new ServerDedupe(client).seen("orders.placed", "billing", id), false);
});

test("a bad topic, group or option is named", async (t) => {
  const client = clientOf(t, await startServer(t));
  await assert.rejects(client.publish("no spaces", 1), { code: "bad_name" });
  await assert.rejects(client.publish(undefined, 1), { code: "bad_name", message: /undefined/ });
  await assert.rejects(client.publish("_mine", 1), { code: "reserved_name" });
  await assert.rejects(client.publish("t", 1, { colour: "red" }), { code: "bad_request", message: /colour/ });
  await assert.rejects(client.publish("t", 1, { id: "seven" }), { code: "bad_request" });
  await assert.rejects(
    client.subscribe("t", "no spaces", () => {}),
    { code: "bad_name" },
  );
  await assert.rejects(
    client.subscribe("t", "g", () => {}, { form: "earliest" }),
    { code: "bad_request", message: /form/ },
  );
  assert.equal(client.subscriptions.size, 0);
  assert.deepEqual(client.errors, [], "what a call rejects with is not reported again");
});

test("a payload that cannot be JSON is named before anything is sent", async (t) => {
  const client = clientOf(t, await startServer(t));
  const cycle = {};
  cycle.self = cycle;
  for (const [payload, says] of [
    [undefined, /undefined.*null for a tombstone/],
    [() => {}, /function/],
    [Symbol("s"), /symbol/],
    [10n, /BigInt/],
    [{ n: 1n }, /BigInt/],
    [cycle, /circular/],
  ]) {
    await assert.rejects(client.publish("t", payload), { code: "bad_payload", message: says, hasNoSideEffects: true });
    await assert.rejects(client.publishMany([{ topic: "t", payload }]), { code: "bad_payload" });
  }
  await client.publish("t", null);
});

test("a payload or message that is too large is refused and the connection lives", async (t) => {
  const client = clientOf(t, await startServer(t));
  await assert.rejects(client.publish("t", "x".repeat(2 << 20)), { code: "payload_too_large" });
  await assert.rejects(client.publish("t", "x".repeat(17 << 20)), { code: "too_large" });
  await client.publish("t", 1);
});

test("a message over a smaller limit of the server ends one publish, not the client", async (t) => {
  const client = clientOf(
    t,
    await startServer(t, { config: "[limits.events]\nmessage_bytes_max = 100_000\npayload_bytes_max = 50_000\n" }),
  );
  const large = client.publish("t", "x".repeat(200_000));
  const small = client.publish("t", 1);
  await assert.rejects(large, { code: "too_large" });
  await small;
});

test("two subscriptions of one group on one client are refused with what to do", async (t) => {
  const client = clientOf(t, await startServer(t));
  await client.subscribe("t", "g", () => {});
  await assert.rejects(
    client.subscribe("t", "g", () => {}),
    { code: "already_subscribed", message: /concurrency.*another group.*second client/ },
  );
  assert.throws(() => client.leases("t", "g"), { code: "already_subscribed" });
  await client.unsubscribe("t", "g");
  await client.subscribe("t", "g", () => {});
  await client.subscribe("t", "other", () => {});
});

test("different options for a group are a conflict", async (t) => {
  const server = await startServer(t);
  await clientOf(t, server).subscribe("t", "g", () => {}, { order: "key" });
  await assert.rejects(
    clientOf(t, server).subscribe("t", "g", () => {}, { order: "none" }),
    { code: "conflict" },
  );
});

test("calls after close are refused", async (t) => {
  const client = clientOf(t, await startServer(t));
  await client.publish("t", 1);
  await client.close();
  await assert.rejects(client.publish("t", 1), { code: "client_closed", hasNoSideEffects: true });
  await assert.rejects(
    client.subscribe("t", "g", () => {}),
    { code: "client_closed" },
  );
  await assert.rejects(client.connect(), { code: "client_closed" });
  await client.close();
});

test("a loop over a subscription with a handler is refused", async (t) => {
  const client = clientOf(t, await startServer(t));
  const subscription = await client.subscribe("t", "g", () => {});
  await assert.rejects(subscription[Symbol.asyncIterator]().next(), { code: "bad_use" });
});

test("a fetch without pull is named", async (t) => {
  const client = clientOf(t, await startServer(t));
  const subscription = client.leases("t", "g");
  await assert.rejects(subscription.fetch(), (error) => error instanceof PrometheanError && error.message.length > 10);
});

test("failures that no call reports go to onError", async (t) => {
  const server = await startServer(t);
  const client = clientOf(t, server);
  await client.subscribe(
    "t",
    "g",
    () => {
      throw new Error("handler is broken");
    },
    { from: "earliest" },
  );
  await client.publish("t", 1);
  await until(() => client.errors.length > 0);
  assert.equal(client.errors[0].message, "handler is broken");
});

test("there is advice for every code of the protocol", () => {
  const text = readFileSync(new URL("../../../docs/protocol.md", import.meta.url), "utf8");
  const table = text.slice(text.indexOf("## Error codes"));
  const codes = [...table.matchAll(/^\| (`[^|]*) \|/gm)].flatMap((row) =>
    [...row[1].matchAll(/`([a-z_]+)`/g)].map((match) => match[1]),
  );
  assert.ok(codes.length > 50);
  const general = adviceFor("no such code");
  assert.deepEqual(
    codes.filter((code) => adviceFor(code) === general),
    [],
  );
  assert.match(adviceFor(new PrometheanError("storage_full", "full")), /free space/);
});
