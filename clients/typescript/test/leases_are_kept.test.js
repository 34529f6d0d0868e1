import assert from "node:assert/strict";
import { test } from "node:test";
import { Admin } from "../src/index.js";
import { LeaseTable } from "../src/lease_table.js";
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

test("of several acks, only those whose lease was over are refused", async (t) => {
  const server = await startServer(t);
  const client = clientOf(t, server);
  await client.publishMany([1, 2, 3].map((payload) => ({ topic: "t", payload })));
  const subscription = client.leases("t", "g", { ...SHORT, pull: true, autoExtend: false });
  const leases = await subscription.fetch({ max: 3 });
  assert.equal(leases.length, 3);
  const [kept, over, other] = leases;
  await Promise.all([kept.extend(20_000), other.extend(20_000)]);
  const inFlight = async () => (await new Admin(server.url).group("t", "g")).topics[0].in_flight;
  await until(async () => (await inFlight()) === 2);
  // The client takes the lease for a good one, so that its ack goes with the others.
  over.until = performance.now() + 60_000;
  const results = await Promise.allSettled(leases.map((lease) => lease.ack()));
  assert.deepEqual(
    results.map(({ status, reason }) => reason?.code ?? status),
    ["fulfilled", "lease_lost", "fulfilled"],
  );
  const [again] = await subscription.fetch({ max: 3, waitMs: 5_000 });
  assert.deepEqual([again.event.payload, again.attempt], [2, 2]);
});

test("a handler may publish while the client closes", async (t) => {
  const server = await startServer(t);
  const client = clientOf(t, server);
  await client.publish("t", 1);
  let release;
  let runs = 0;
  const gate = new Promise((resolve) => (release = resolve));
  await client.subscribe(
    "t",
    "g",
    async (event) => {
      runs++;
      await gate;
      await client.publish("done", event.payload);
    },
    { from: "earliest" },
  );
  await until(() => runs === 1);
  const closed = client.close();
  await assert.rejects(
    client.subscribe("t", "other", () => {}),
    { code: "client_closed" },
  );
  release();
  await closed;
  await assert.rejects(client.publish("t", 2), { code: "client_closed" });
  assert.deepEqual(client.errors, []);
  assert.equal((await new Admin(server.url).topic("done")).end, 1);
  assert.equal((await new Admin(server.url).lag("t", "g")).lag, 0);
});

test("an event that a seek delivers again is handled, though the answer to its ack was lost", async (t) => {
  const server = await startServer(t);
  const client = clientOf(t, server);
  await client.publish("t", 1);
  const handled = [];
  const leases = [];
  const subscription = await client.subscribe(
    "t",
    "g",
    (event, lease) => {
      handled.push(lease.attempt);
      leases.push(lease);
    },
    SHORT,
  );
  const admin = new Admin(server.url);
  await until(async () => (await admin.lag("t", "g")).lag === 0 && subscription.inFlight === 0);
  const loseAnswer = () => subscription.leases.remember(leases.at(-1));
  loseAnswer();
  await subscription.seek({ from: "earliest" });
  await until(() => handled.length === 2);
  // A seek of others is known by its time: the leases of lost acks are over long before.
  await until(async () => (await admin.lag("t", "g")).lag === 0 && subscription.inFlight === 0);
  loseAnswer();
  await sleep(2 * SHORT.ackTimeoutMs + 50);
  await admin.seek("t", "g", { from: "earliest" });
  await until(() => handled.length === 3);
  assert.deepEqual(handled, [1, 1, 1]);
});

test("a finished event is known by its attempt and its time", () => {
  const table = new LeaseTable("t");
  const event = { id: "017f22e2-79b0-7cc3-98c4-dc0c0c07398f", topic: "t" };
  const how = { isManual: true, isExtended: true };
  const arrive = (attempt) => {
    const { fresh, finished } = table.accept({}, [{ event, ctx: { attempt, ack_deadline_ms: 1000 } }], how);
    for (const lease of [...fresh, ...finished]) table.settle(lease);
    return { lease: fresh[0] ?? finished[0], isFinished: finished.length === 1 };
  };
  const { lease } = arrive(3);
  table.remember(lease);
  assert.equal(arrive(4).isFinished, true, "a repetition");
  table.remember(lease);
  assert.equal(arrive(1).isFinished, false, "a redrive begins with the first attempt");
  assert.equal(arrive(4).isFinished, false, "it is forgotten then");
  table.remember(lease);
  table.finished.get(event.id).until = 0;
  assert.equal(arrive(4).isFinished, false, "too late");
  table.remember(lease);
  table.finished.get(event.id).until = 0;
  table.rejoined();
  assert.equal(arrive(4).isFinished, true, "the server was away for long");
});
