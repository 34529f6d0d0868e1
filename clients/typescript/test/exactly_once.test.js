import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import {
  MemoryDedupe,
  Reader,
  ServerDedupe,
  deriveId,
  exactlyOnce,
  producedId,
  transform,
  warmUp,
} from "../src/index.js";
import { xxh3 } from "../src/xxh3.js";
import { clientOf } from "./support/client.js";
import { startProxy } from "./support/proxy.js";
import { startServer } from "./support/server.js";
import { sleep, until } from "./support/wait.js";

const COMPACTED = '[[compactors]]\ntopic = "t"\nevery = "1s"\n';

for (const [name, storeOf] of [
  ["the server", (client) => new ServerDedupe(client)],
  ["memory", () => new MemoryDedupe()],
]) {
  test(`marks in ${name} keep a handler from running twice`, async (t) => {
    const client = clientOf(t, await startServer(t));
    await client.publishMany([1, 2, 3].map((payload) => ({ topic: "t", payload })));
    const store = storeOf(client);
    const handled = [];
    const handler = exactlyOnce(store, async (event) => void handled.push(event.payload));
    const subscription = await client.subscribe("t", "g", handler, { from: "earliest" });
    await until(() => handled.length === 3 && subscription.inFlight === 0);
    await subscription.seek({ from: "earliest" });
    await client.publish("t", 4);
    await until(() => handled.length >= 4);
    assert.deepEqual(handled, [1, 2, 3, 4]);
  });
}

test("a store with a transaction of its own decides alone", async (t) => {
  const client = clientOf(t, await startServer(t));
  const done = new Map();
  const store = {
    seen: () => assert.fail("not asked"),
    mark: () => assert.fail("not asked"),
    once: async (topic, group, id, work) => {
      if (done.has(id)) return;
      await work();
      done.set(id, [topic, group]);
    },
  };
  let runs = 0;
  const subscription = await client.subscribe(
    "t",
    "g",
    exactlyOnce(store, () => void runs++),
    { from: "earliest" },
  );
  await client.publish("t", 1);
  await until(() => runs === 1 && subscription.inFlight === 0);
  await subscription.seek({ from: "earliest" });
  await until(() => subscription.inFlight === 0);
  assert.equal(runs, 1);
  assert.deepEqual([...done.values()], [["t", "g"]]);
});

test("a transform publishes each product once, through kills of the server", async (t) => {
  const server = await startServer(t, { isDurable: true });
  const client = clientOf(t, server);
  await transform(
    client,
    "in",
    "g",
    async (event) => {
      await sleep(1);
      return [
        { topic: "out", payload: event.payload * 10 },
        { topic: "log", payload: event.payload, opts: { key: "k" } },
      ];
    },
    { from: "earliest", concurrency: 4 },
  );
  for (let kill = 0; kill < 3; kill++) {
    for (let n = 0; n < 100; n++) client.publish("in", kill * 100 + n);
    await sleep(30);
    await server.kill();
    await server.start();
  }
  const outputs = async () => {
    const all = [];
    for await (const event of new Reader(server.url).replay("out")) all.push(event);
    return all;
  };
  await until(async () => (await outputs()).length >= 300);
  const all = await outputs();
  assert.deepEqual(
    all.map((event) => event.payload).sort((a, b) => a - b),
    Array.from({ length: 300 }, (_, n) => n * 10),
  );
  assert.equal(all[0].caused_by.length, 1);
});

test("two members and a bad network: each effect happens once", async (t) => {
  const server = await startServer(t, { isDurable: true });
  const proxy = await startProxy(t, server);
  const done = new Map();
  const store = {
    seen: () => false,
    mark: () => {},
    // As a database does it: the mark and the work are one transaction, and a second one waits for the first.
    once(topic, group, id, work) {
      const outcome = done.get(id)?.catch(() => work()) ?? work();
      done.set(id, outcome);
      return outcome;
    },
  };
  const effects = [];
  const handler = exactlyOnce(store, async (event) => {
    await sleep(Math.random() * 10);
    effects.push(event.payload);
  });
  const options = { from: "earliest", concurrency: 8, maxAttempts: 100 };
  for (let member = 0; member < 2; member++) await clientOf(t, proxy.url).subscribe("t", "g", handler, options);
  const publisher = clientOf(t, server);
  for (let n = 0; n < 1_000; n++) {
    publisher.publish("t", n);
    if (n % 100 === 99) {
      await sleep(30);
      proxy.cut();
    }
  }
  await until(async () => (await server.json("/lag?topic=t&group=g")).lag === 0 && effects.length >= 1_000);
  assert.deepEqual(
    effects.sort((a, b) => a - b),
    Array.from({ length: 1_000 }, (_, n) => n),
  );
});

test("produced ids are those of the server and of the client in Rust", () => {
  const golden = readFileSync(new URL("../../../fixtures/protocol/produced-ids.jsonl", import.meta.url), "utf8");
  const lines = golden.trim().split("\n");
  assert.ok(lines.length >= 7);
  for (const line of lines) {
    const { group, topic, id, n, produced } = JSON.parse(line);
    assert.equal(producedId(group, topic, id, n), produced, line);
  }
});

test("derived ids are those of the server", () => {
  const bytes = (text) => new TextEncoder().encode(text);
  assert.equal(deriveId(bytes("processes.txn"), bytes("process.state/7/0")), "1a3155d8-7782-8486-ba6e-69e9bd5f8cfe");
  // Reference values of XXH3 for inputs of each kind of length.
  const input = (length) => Uint8Array.from({ length }, (_, at) => (at * 131 + 7 * length) & 255);
  for (const [length, hash] of [
    [17, "0169e48eb78211d1ae01eff7866f4ae5"],
    [32, "88fa9c7b0959ded04917378d6380ec99"],
    [33, "356030543764f03638dc587162c31436"],
    [64, "3af797a43244687f377e51e1df9dd4ec"],
    [65, "21a6b477d20a7bae1f72e81aace6306c"],
    [96, "4396203c183ea21f3741338b4f9858cb"],
    [97, "674e48b24fe8018274e941738dddda0c"],
    [128, "e77a7ad746f899280027fee5b316f5e3"],
    [129, "ee5c618e636df0303d543b6160dcb175"],
    [160, "e40463aedf799070316c9342f710b46c"],
    [240, "e819610f616272ec2d2253ecbbb6c6fc"],
    [241, "d8397601244a873b4bddf45e258b6299"],
    [1024, "4fc91d9d8c936539bd7c43cd9a89cb69"],
    [1025, "621af7b8277effa466c4487c41e127a7"],
    [1026, "2e564e869baaf099a8f001935bfb42cf"],
    [2049, "9d5d5fbfe401ce28581cd184fd9b76c5"],
    [3000, "3591cd32200e1e18c4d2def9765aec1b"],
  ])
    assert.equal(xxh3(input(length)).toString(16).padStart(32, "0"), hash, `${length} bytes`);
});

test("a warm-up begins with the snapshots and goes on without a gap", async (t) => {
  const server = await startServer(t, { config: COMPACTED });
  const client = clientOf(t, server);
  for (let n = 0; n < 30; n++) await client.publish("t", { n }, { key: `k${n % 3}` });
  await client.publish("t", null, { key: "k0" });
  const reader = new Reader(client);
  await until(async () => {
    const last = await reader.latestByKey("t.snapshot", ["k0", "k1", "k2"]);
    return last.k0?.payload.payload === null && last.k1?.payload.payload.n === 28 && last.k2?.payload.payload.n === 29;
  });
  await client.publish("t", { n: 100 }, { key: "k1" });
  const warm = await warmUp(client, "t");
  assert.deepEqual([...warm.state.keys()].sort(), ["k1", "k2"]);
  const state = new Map([...warm.state].map(([key, { payload }]) => [key, payload.n]));
  const abort = new AbortController();
  await client.publish("t", { n: 101 }, { key: "k3" });
  for await (const event of warm.follow({ signal: abort.signal })) {
    state.set(event.key, event.payload.n);
    if (event.payload.n === 101) break;
  }
  assert.deepEqual([...state].sort(), [
    ["k1", 100],
    ["k2", 29],
    ["k3", 101],
  ]);
  const handled = [];
  await warm.subscribe("g", (event) => void handled.push(event.payload.n));
  await until(() => handled.includes(101));
  assert.ok(handled.includes(100) || warm.state.get("k1").payload.n === 100);
});

test("with a program as reducer, each warm-up under load counts each event once", async (t) => {
  const config = `[[compactors]]\ntopic = "t"\nevery = "20ms"\n[reducers]\nt = '{sum: ((.state.sum // 0) + .event.payload)}'\n`;
  const client = clientOf(t, await startServer(t, { config }));
  const [KEYS, WARM_UPS] = [60, 50];
  let isOver = false;
  const load = async () => {
    for (let n = 1; !isOver;) {
      // The keys change places from batch to batch, so the last events of keys are between events of others.
      const batch = Array.from({ length: 3 * KEYS }, () => ({
        topic: "t",
        payload: n,
        opts: { key: `k${(n++ * 7_919) % KEYS}` },
      }));
      await client.publishMany(batch);
    }
    await client.publish("t", 0, { key: "last" });
  };
  const warmUps = async () => {
    const views = [];
    while (views.length < WARM_UPS) {
      const warm = await warmUp(client, "t");
      if (warm.state.size > 0) views.push(warm);
    }
    isOver = true;
    return views;
  };
  const [views] = await Promise.all([warmUps(), load()]);
  const events = [];
  for await (const event of new Reader(client).replay("t")) events.push(event);
  const sumUp = (sums, added) => {
    for (const { key, payload } of added) sums.set(key, (sums.get(key) ?? 0) + payload);
    return [...sums].sort();
  };
  const expected = sumUp(new Map(), events);
  const loaded = (warm) => new Map([...warm.state].map(([key, { payload }]) => [key, payload.sum]));
  for (const warm of views) {
    const after = events.slice(warm.offset).filter((event) => !warm.contains(event));
    assert.deepEqual(sumUp(loaded(warm), after), expected, `from offset ${warm.offset} on`);
  }
  const followed = [];
  for await (const event of views.at(-1).follow()) {
    followed.push(event);
    if (event.key === "last") break;
  }
  assert.deepEqual(sumUp(loaded(views.at(-1)), followed), expected);
});

test("a warm-up in the middle of a round of snapshots misses no event of a key without snapshot", async (t) => {
  const client = clientOf(t, await startServer(t));
  for (const [key, by] of [
    ["b", 1],
    ["a", 2],
    ["b", 4],
  ])
    await client.publish("t", by, { key });
  // The round has written the snapshot of `a`, and not yet that of `b`.
  const snapshot = { key: "a", payload: 2, ts: 1 };
  const headers = { "x-snapshot-offset": "2", "x-snapshot-floor": "0", "x-snapshot-by": "merge" };
  await client.publish("snapshots", snapshot, { key: "a", headers });
  const warm = await warmUp(client, "t", { snapshots: "snapshots" });
  const seen = [...warm.state].map(([key, { payload }]) => [key, payload]);
  for await (const { key, payload } of warm.follow()) {
    seen.push([key, payload]);
    if (payload === 4) break;
  }
  assert.deepEqual(seen, [
    ["a", 2],
    ["b", 1],
    ["b", 4],
  ]);
});

test("a warm-up of a topic without snapshots begins with its first event", async (t) => {
  const client = clientOf(t, await startServer(t));
  await client.publish("t", 1, { key: "k" });
  const warm = await warmUp(client, "t");
  assert.equal(warm.offset, 0);
  for await (const event of warm.follow()) {
    assert.equal(event.payload, 1);
    break;
  }
});
