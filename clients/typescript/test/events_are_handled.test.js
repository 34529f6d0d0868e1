import assert from "node:assert/strict";
import { test } from "node:test";
import { Admin } from "../src/index.js";
import { clientOf } from "./support/client.js";
import { startServer } from "./support/server.js";
import { sleep, until } from "./support/wait.js";

const EARLIEST = { from: "earliest" };

async function publishNumbers(client, topic, count, options = () => ({})) {
  await Promise.all(Array.from({ length: count }, (_, n) => client.publish(topic, n, options(n))));
}

test("a handler gets each event once, in order, and each is acked", async (t) => {
  const server = await startServer(t);
  const client = clientOf(t, server);
  await publishNumbers(client, "t", 500);
  const got = [];
  await client.subscribe(
    "t",
    "g",
    async (event, lease) => {
      got.push([event.payload, lease.attempt]);
    },
    EARLIEST,
  );
  await until(async () => got.length >= 500 && (await new Admin(server.url).lag("t", "g")).lag === 0);
  assert.deepEqual(
    got,
    Array.from({ length: 500 }, (_, n) => [n, 1]),
  );
});

test("a handler that throws gets the event again, and at last it is a dead letter", async (t) => {
  const server = await startServer(t);
  const client = clientOf(t, server);
  const admin = new Admin(server.url);
  await publishNumbers(client, "t", 2);
  const attempts = [];
  const subscription = await client.subscribe(
    "t",
    "g",
    (event, lease) => {
      if (event.payload === 1) return;
      attempts.push(lease.attempt);
      throw Object.assign(new Error("no stock"), { delayMs: 1 });
    },
    { ...EARLIEST, maxAttempts: 3 },
  );
  const letters = [];
  await until(async () => {
    letters.length = 0;
    for await (const letter of admin.deadLetters("t", "g")) letters.push(letter);
    return letters.length > 0;
  });
  assert.deepEqual(attempts, [1, 2, 3]);
  assert.equal(letters[0].attempts, 3);
  assert.equal(letters[0].event.payload, 0);
  assert.equal(client.errors.length, 3, "each failure is reported");
  await subscription.close();
  await admin.redrive("t", "g", { all: true });
  const lease = await first(client.leases("t", "g"));
  assert.deepEqual([lease.event.payload, lease.attempt], [0, 1]);
});

async function first(subscription) {
  for await (const lease of subscription) {
    await lease.ack();
    return lease;
  }
}

test("handlers run up to the concurrency", async (t) => {
  const client = clientOf(t, await startServer(t));
  await publishNumbers(client, "t", 40);
  let running = 0;
  let most = 0;
  let done = 0;
  await client.subscribe(
    "t",
    "g",
    async () => {
      most = Math.max(most, ++running);
      await sleep(5);
      running--;
      done++;
    },
    { ...EARLIEST, concurrency: 7 },
  );
  await until(() => done === 40);
  assert.equal(most, 7);
});

test("a loop gets leases to ack, nack and extend", async (t) => {
  const client = clientOf(t, await startServer(t));
  await publishNumbers(client, "t", 3);
  const seen = [];
  for await (const lease of client.leases("t", "g", EARLIEST)) {
    seen.push([lease.event.payload, lease.attempt]);
    if (lease.event.payload === 1 && lease.attempt === 1) {
      await lease.nack({ delayMs: 50, reason: "later" });
    } else {
      await lease.extend();
      await lease.ack();
    }
    if (seen.length === 4) break;
  }
  assert.deepEqual(seen, [
    [0, 1],
    [1, 1],
    [2, 1],
    [1, 2],
  ]);
  assert.equal(client.subscriptions.size, 0, "leaving the loop ends the subscription");
});

test("an abort ends a loop and a subscription", async (t) => {
  const client = clientOf(t, await startServer(t));
  const abort = new AbortController();
  const subscription = await client.subscribe("t", "g", () => {}, { signal: abort.signal });
  const loop = (async () => {
    for await (const lease of client.leases("t", "h", { signal: abort.signal })) lease.ack();
    return "ended";
  })();
  await sleep(50);
  abort.abort();
  assert.equal(await loop, "ended");
  await until(() => client.subscriptions.size === 0);
  await assert.rejects(client.unsubscribe("t", "g"), { code: "not_subscribed" });
  assert.equal(subscription.inFlight, 0);
});

test("patterns deliver all their topics; the same id may be in two", async (t) => {
  const client = clientOf(t, await startServer(t));
  const { id } = await client.publish("p.a", "a");
  await client.publish("p.b", "b", { id });
  await client.publish("q.c", "c");
  const got = [];
  const subscription = await client.subscribe(
    "p.*",
    "g",
    (event) => void got.push(`${event.topic} ${event.payload}`),
    EARLIEST,
  );
  await until(() => got.length === 2);
  await client.publish("p.new", "late");
  await until(() => got.length === 3);
  assert.deepEqual(got.sort(), ["p.a a", "p.b b", "p.new late"]);
  await until(() => subscription.inFlight === 0);
});

test("a filter leaves events out", async (t) => {
  const client = clientOf(t, await startServer(t));
  await publishNumbers(client, "t", 6, (n) => ({ key: n % 2 ? "odd" : "even" }));
  const got = [];
  await client.subscribe("t", "g", (event) => void got.push(event.payload), { ...EARLIEST, filter: { key: "odd" } });
  await until(() => got.length === 3);
  assert.deepEqual(got, [1, 3, 5]);
});

test("with order by key, an event waits for the earlier events of its key", async (t) => {
  const client = clientOf(t, await startServer(t));
  await publishNumbers(client, "t", 60, (n) => ({ key: `k${n % 3}` }));
  const got = { k0: [], k1: [], k2: [] };
  const running = new Set();
  let done = 0;
  await client.subscribe(
    "t",
    "g",
    async (event) => {
      assert.equal(running.has(event.key), false);
      running.add(event.key);
      await sleep(1);
      running.delete(event.key);
      got[event.key].push(event.payload);
      done++;
    },
    { ...EARLIEST, order: "key", concurrency: 10 },
  );
  await until(() => done === 60);
  for (const list of Object.values(got))
    assert.deepEqual(
      list,
      [...list].sort((a, b) => a - b),
    );
});

test("pause stops deliveries and resume starts them", async (t) => {
  const client = clientOf(t, await startServer(t));
  const got = [];
  const subscription = await client.subscribe("t", "g", (event) => void got.push(event.payload), EARLIEST);
  await client.publish("t", "a");
  await until(() => got.length === 1);
  await subscription.pause();
  await client.publish("t", "b");
  await client.publish("t", "c");
  assert.deepEqual(got, ["a"]);
  await subscription.resume();
  await until(() => got.length === 3);
});

test("fetch asks for events", async (t) => {
  const client = clientOf(t, await startServer(t));
  await publishNumbers(client, "t", 5);
  const subscription = client.leases("t", "g", { ...EARLIEST, pull: true });
  const two = await subscription.fetch({ max: 2 });
  assert.deepEqual(
    two.map((lease) => lease.event.payload),
    [0, 1],
  );
  await Promise.all(two.map((lease) => lease.ack()));
  const rest = await subscription.fetch({ max: 10 });
  assert.equal(rest.length, 3);
  await Promise.all(rest.map((lease) => lease.ack()));
  assert.deepEqual(await subscription.fetch({ waitMs: 20 }), []);
  const waiting = subscription.fetch({ waitMs: 10_000 });
  await client.publish("t", "new");
  const [lease] = await waiting;
  assert.equal(lease.event.payload, "new");
  await lease.ack();
});

test("events of a fetch that was aborted are for the next one", async (t) => {
  const client = clientOf(t, await startServer(t));
  const subscription = client.leases("t", "g", { ...EARLIEST, pull: true });
  await subscription.ready;
  const abort = new AbortController();
  const aborted = assert.rejects(subscription.fetch({ waitMs: 10_000, signal: abort.signal }), { message: "enough" });
  await sleep(50);
  abort.abort(new Error("enough"));
  await aborted;
  const next = subscription.fetch();
  await client.publish("t", 1);
  const [lease] = await next;
  assert.deepEqual([lease.event.payload, lease.attempt], [1, 1]);
  await lease.ack();
});

test("seek moves a group, and a dry run only tells", async (t) => {
  const client = clientOf(t, await startServer(t));
  await publishNumbers(client, "t", 4);
  const got = [];
  const subscription = await client.subscribe("t", "g", (event) => void got.push(event.payload), EARLIEST);
  await until(() => got.length === 4 && subscription.inFlight === 0);
  assert.deepEqual(await subscription.seek({ from: "offset", offset: 2, dryRun: true }), {
    from: 4,
    to: 2,
    replayed: 2,
    skipped: 0,
    applied: false,
  });
  await subscription.seek({ from: "offset", offset: 2 });
  await until(() => got.length === 6);
  assert.deepEqual(got, [0, 1, 2, 3, 2, 3]);
});

test("manualAck: false needs no ack", async (t) => {
  const server = await startServer(t);
  const client = clientOf(t, server);
  await publishNumbers(client, "t", 10);
  let count = 0;
  await client.subscribe("t", "g", () => void count++, { ...EARLIEST, manualAck: false });
  await until(async () => count === 10 && (await new Admin(server.url).lag("t", "g")).lag === 0);
});

test("members of a partitioned group are told their partitions and share the keys", async (t) => {
  const server = await startServer(t);
  const [one, two] = [clientOf(t, server), clientOf(t, server)];
  const partitions = { one: new Set(), two: new Set() };
  const keys = { one: new Set(), two: new Set() };
  const join = (client, name) =>
    client.subscribe("t", "g", (event) => void keys[name].add(event.key), {
      ...EARLIEST,
      partitions: 8,
      memberId: name,
      onRebalance: ({ assigned, revoked }) => {
        for (const lost of revoked) partitions[name].delete(lost);
        for (const got of assigned) partitions[name].add(got);
      },
    });
  await join(one, "one");
  await until(() => partitions.one.size === 8);
  await join(two, "two");
  await until(() => partitions.two.size > 0 && partitions.one.size + partitions.two.size === 8);
  await publishNumbers(one, "t", 200, (n) => ({ key: `k${n}` }));
  await until(() => keys.one.size + keys.two.size === 200);
  assert.ok([...keys.one].every((key) => !keys.two.has(key)));
  await two.close();
  await until(() => partitions.one.size === 8);
});

test("a member whose name is taken is told so", async (t) => {
  const server = await startServer(t);
  const [one, two] = [clientOf(t, server), clientOf(t, server)];
  const options = { partitions: 4, memberId: "same" };
  await one.subscribe("t", "g", () => {}, options);
  const assigned = [];
  await two.subscribe("t", "g", () => {}, { ...options, onRebalance: (change) => assigned.push(...change.assigned) });
  await until(() => one.errors.length === 1 && assigned.length === 4);
  assert.equal(one.errors[0].code, "member_fenced");
});

test("a deleted topic ends its subscriptions", async (t) => {
  const server = await startServer(t);
  const client = clientOf(t, server);
  await client.publish("t", 1);
  const rejected = assert.rejects(
    async () => {
      for await (const lease of client.leases("t", "g", EARLIEST)) await lease.ack();
    },
    (error) => ["topic_deleted", "unknown_topic"].includes(error.code),
  );
  await sleep(50);
  await new Admin(server.url).deleteTopic("t");
  await rejected;
});

test("a pause holds over a reconnect", async (t) => {
  const server = await startServer(t, { isDurable: true });
  const client = clientOf(t, server);
  const got = [];
  const subscription = await client.subscribe("t", "g", (event) => void got.push(event.payload), EARLIEST);
  await server.kill();
  await until(() => client.state === "connecting");
  await subscription.pause();
  await server.start();
  await client.publish("t", 1);
  await sleep(200);
  assert.deepEqual(got, []);
  await subscription.resume();
  await until(() => got.length === 1);
});
