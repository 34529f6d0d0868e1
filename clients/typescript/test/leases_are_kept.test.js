import assert from "node:assert/strict";
import { test } from "node:test";
import { Admin } from "../src/index.js";
import { clientOf } from "./support/client.js";
import { startProxy } from "./support/proxy.js";
import { startServer } from "./support/server.js";
import { sleep, until } from "./support/wait.js";

const SHORT = { from: "earliest", ackTimeoutMs: 1_000 };

test("a handler that is longer than its lease keeps the event, and so do events that wait", async (t) => {
  const server = await startServer(t);
  const client = clientOf(t, server);
  await client.publishMany([1, 2].map((payload) => ({ topic: "t", payload })));
  const attempts = [];
  await client.subscribe(
    "t",
    "g",
    async (event, lease) => {
      attempts.push([event.payload, lease.attempt]);
      await sleep(1_800);
    },
    SHORT,
  );
  await until(async () => attempts.length === 2 && (await new Admin(server.url).lag("t", "g")).lag === 0);
  assert.deepEqual(attempts, [
    [1, 1],
    [2, 1],
  ]);
  assert.deepEqual(client.errors, []);
});

test("an ack after the end of the lease is refused with a name, and the event comes again", async (t) => {
  const client = clientOf(t, await startServer(t));
  await client.publish("t", 1);
  const leases = [];
  for await (const lease of client.leases("t", "g", { ...SHORT, autoExtend: false })) {
    leases.push(lease);
    if (leases.length === 2) {
      await assert.rejects(leases[0].ack(), { code: "lease_lost", isRetryable: false });
      await lease.ack();
      break;
    }
  }
  assert.deepEqual(
    leases.map((lease) => lease.attempt),
    [1, 2],
  );
  assert.equal(leases[0].isHeld, false);
});

test("an ack that the server calls stale is refused", async (t) => {
  const server = await startServer(t);
  const client = clientOf(t, server);
  await client.publish("t", 1);
  for await (const lease of client.leases("t", "g", { from: "earliest" })) {
    // A seek ends all leases of the group.
    await new Admin(server.url).seek("t", "g", { from: "latest" });
    await assert.rejects(lease.ack(), { code: "lease_lost" });
    break;
  }
});

test("maxLeaseMs ends the extension of a forgotten lease", async (t) => {
  const client = clientOf(t, await startServer(t));
  await client.publish("t", 1);
  const attempts = [];
  await client.subscribe(
    "t",
    "g",
    (event, lease) => {
      attempts.push(lease.attempt);
      return new Promise(() => {});
    },
    { ...SHORT, maxLeaseMs: 500, maxAttempts: 1 },
  );
  const other = clientOf(t, client.address.http);
  await until(async () => {
    for await (const letter of new Admin(other).deadLetters("t", "g")) return letter;
  });
  assert.deepEqual(attempts, [1]);
  await client.close({ timeoutMs: 50 }).catch(() => {});
});

test("a handler that outlives its connection goes on under the new lease and acks it", async (t) => {
  const server = await startServer(t);
  const proxy = await startProxy(t, server);
  const client = clientOf(t, proxy.url);
  await client.publish("t", 1);
  let runs = 0;
  let release;
  const gate = new Promise((resolve) => (release = resolve));
  let held;
  await client.subscribe(
    "t",
    "g",
    async (event, lease) => {
      runs++;
      held = lease;
      await gate;
    },
    { from: "earliest" },
  );
  await until(() => runs === 1);
  proxy.cut();
  await until(() => held.attempt === 2);
  release();
  await until(async () => (await new Admin(server.url).lag("t", "g")).lag === 0);
  assert.equal(runs, 1);
});

test("an event whose handler was done when the connection ended is acked, not handled again", async (t) => {
  const server = await startServer(t);
  const proxy = await startProxy(t, server);
  const client = clientOf(t, proxy.url);
  await client.publish("t", 1);
  let runs = 0;
  await client.subscribe(
    "t",
    "g",
    async (event, lease) => {
      runs++;
      proxy.cut();
      await until(() => !lease.isHeld);
    },
    { from: "earliest" },
  );
  await until(async () => (await new Admin(server.url).lag("t", "g")).lag === 0);
  assert.equal(runs, 1);
});

test("the signal of a lease aborts when the lease is lost", async (t) => {
  const server = await startServer(t);
  const client = clientOf(t, server);
  await client.publish("t", 1);
  let reason;
  await client.subscribe(
    "t",
    "g",
    async (event, lease) => {
      if (reason) return;
      const lost = new Promise((resolve) => lease.signal.addEventListener("abort", resolve));
      await server.kill();
      await lost;
      reason = lease.signal.reason;
    },
    { from: "earliest" },
  );
  await until(() => reason);
  assert.equal(reason.code, "lease_lost");
});

test("close waits for handlers, acks them, and gives the other events back without an attempt", async (t) => {
  const server = await startServer(t);
  const client = clientOf(t, server);
  await client.publishMany([1, 2, 3].map((payload) => ({ topic: "t", payload })));
  const handled = [];
  await client.subscribe(
    "t",
    "g",
    async (event) => {
      await sleep(200);
      handled.push(event.payload);
    },
    { from: "earliest" },
  );
  await sleep(100);
  await client.close();
  assert.deepEqual(handled, [1]);
  const second = clientOf(t, server);
  const rest = [];
  for await (const lease of second.leases("t", "g")) {
    rest.push([lease.event.payload, lease.attempt]);
    await lease.ack();
    if (rest.length === 2) break;
  }
  assert.deepEqual(rest, [
    [2, 1],
    [3, 1],
  ]);
});

test("close lets a loop finish the event it works on", async (t) => {
  const server = await startServer(t);
  const client = clientOf(t, server);
  await client.publishMany([1, 2].map((payload) => ({ topic: "t", payload })));
  const acked = [];
  const loop = (async () => {
    for await (const lease of client.leases("t", "g", { from: "earliest" })) {
      await sleep(200);
      await lease.ack();
      acked.push(lease.event.payload);
    }
  })();
  await sleep(100);
  await Promise.all([client.close(), loop]);
  assert.deepEqual(acked, [1]);
});

test("close gives up after its timeout and says so", async (t) => {
  const client = clientOf(t, await startServer(t));
  await client.publish("t", 1);
  let runs = 0;
  await client.subscribe("t", "g", () => (runs++, new Promise(() => {})), { from: "earliest" });
  await until(() => runs === 1);
  await assert.rejects(client.close({ timeoutMs: 100 }), { code: "timeout" });
  assert.equal(client.state, "closed");
});
