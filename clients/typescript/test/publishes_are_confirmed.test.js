import assert from "node:assert/strict";
import { test } from "node:test";
import { newId } from "../src/index.js";
import { clientOf } from "./support/client.js";
import { startServer } from "./support/server.js";
import { until } from "./support/wait.js";

test("a publish resolves with id, offset, time and durability", async (t) => {
  const server = await startServer(t, { isDurable: true });
  const client = clientOf(t, server);
  const first = await client.publish(
    "orders.placed",
    { order: 7 },
    { key: "7", headers: { "x-shop": "a" }, tags: ["web"] },
  );
  assert.equal(first.topic, "orders.placed");
  assert.equal(first.offset, 0);
  assert.equal(first.durability, "fsync");
  assert.match(first.id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.ok(Math.abs(first.ts - Date.now()) < 60_000);
  assert.equal("op" in first, false);
  const { events } = await server.json("/replay?topic=orders.placed");
  assert.deepEqual(events[0].payload, { order: 7 });
  assert.deepEqual(events[0].headers, { "x-shop": "a" });
  assert.deepEqual([events[0].key, events[0].tags], ["7", ["web"]]);
});

test("the same id is published once", async (t) => {
  const client = clientOf(t, await startServer(t));
  const id = newId();
  const first = await client.publish("t", { a: 1 }, { id });
  const again = await client.publish("t", { a: 1 }, { id });
  assert.equal(again.offset, first.offset);
  assert.equal(again.duplicate, true);
  await assert.rejects(client.publish("t", { a: 2 }, { id }), {
    code: "id_conflict",
    isRetryable: false,
    hasNoSideEffects: true,
  });
});

test("a batch is published whole or not at all, over several topics", async (t) => {
  const server = await startServer(t);
  const client = clientOf(t, server);
  const batch = await client.publishMany([
    { topic: "a", payload: 1 },
    { topic: "b", payload: 2, opts: { key: "k" } },
  ]);
  assert.equal(batch.count, 2);
  assert.equal(batch.ids.length, 2);
  const events = [
    { topic: "a", payload: 1 },
    { topic: "a", payload: 2, opts: { expected_offset: 9 } },
  ];
  await assert.rejects(client.publishMany(events), { code: "conflict" });
  assert.equal((await server.json("/replay?topic=a")).count, 1);
});

test("an expectation that fails is a conflict, also when the first try succeeded", async (t) => {
  const client = clientOf(t, await startServer(t));
  const id = newId();
  await client.publish("t", 1, { id, expected_offset: 0 });
  await assert.rejects(
    client.publish("t", 2, { expected_offset: 0 }),
    (error) => error.code === "conflict" && error.details.actual === 1,
  );
  // A repetition after a lost answer is recognised before the expectation is checked.
  assert.equal((await client.publish("t", 1, { id, expected_offset: 0 })).duplicate, true);
});

test("events are stored in the order of the calls", async (t) => {
  const server = await startServer(t);
  const client = clientOf(t, server);
  await Promise.all(Array.from({ length: 3_000 }, (_, n) => client.publish("t", n)));
  const { events } = await server.json("/replay?topic=t&limit=3000");
  assert.deepEqual(
    events.map((event) => event.payload),
    Array.from({ length: 3_000 }, (_, n) => n),
  );
});

test("a publisher that does not wait is held back, not buffered without end", async (t) => {
  const server = await startServer(t);
  const client = clientOf(t, server, { maxOutstanding: 10, maxQueued: 50 });
  const all = Array.from({ length: 100 }, (_, n) => client.publish("t", n));
  const results = await Promise.allSettled(all);
  const full = results.filter((result) => result.status === "rejected");
  assert.equal(full.length, 50);
  assert.ok(full.every(({ reason }) => reason.code === "outbox_full" && reason.isRetryable && reason.hasNoSideEffects));
  for (let n = 0; n < 200; n++) {
    await client.room();
    client.publish("u", n);
  }
  await client.close();
  assert.equal((await server.json("/replay?topic=u")).count, 200);
});

test("an abort ends the wait", async (t) => {
  const server = await startServer(t);
  const client = clientOf(t, server);
  await assert.rejects(client.publish("t", 1, { signal: AbortSignal.abort(new Error("no more")) }), {
    message: "no more",
  });
  await client.connect();
  await server.kill();
  const abort = new AbortController();
  const publish = client.publish("t", 1, { signal: abort.signal });
  abort.abort(new Error("enough"));
  await assert.rejects(publish, { message: "enough" });
});

test("a publish without a server ends with its timeout and names the cause and the id", async (t) => {
  const server = await startServer(t);
  const client = clientOf(t, server);
  await client.connect();
  await server.kill();
  await until(() => client.state === "connecting");
  const id = newId();
  await assert.rejects(client.publish("t", 1, { id, timeoutMs: 300 }), (error) => {
    assert.equal(error.code, "timeout");
    assert.equal(error.details.id, id);
    assert.equal(error.hasNoSideEffects, true);
    assert.match(error.message, /cannot reach|the connection to/);
    return true;
  });
});

test("a rate limit slows the publisher down and loses nothing", async (t) => {
  const config = "[limits]\npublish_rate = { per_second = 100, burst = 20 }\n";
  const server = await startServer(t, { config });
  const client = clientOf(t, server);
  const began = Date.now();
  const offsets = await Promise.all(Array.from({ length: 120 }, (_, n) => client.publish("t", n)));
  assert.equal(new Set(offsets.map((published) => published.offset)).size, 120);
  assert.ok(Date.now() - began > 700);
  await assert.rejects(client.publishMany(Array.from({ length: 50 }, () => ({ topic: "t", payload: 1 }))), {
    code: "rate_limited",
  });
});

test("a schema's refusal says where the payload is wrong", async (t) => {
  const server = await startServer(t);
  await server.json("/schemas/t", {
    method: "POST",
    body: JSON.stringify({ type: "object", required: ["n"], properties: { n: { type: "number" } } }),
  });
  const client = clientOf(t, server);
  await client.publish("t", { n: 1 });
  await assert.rejects(
    client.publish("t", { n: "x" }),
    (error) => error.code === "schema_rejected" && error.details.violations.length === 1,
  );
});
