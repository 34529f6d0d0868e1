import assert from "node:assert/strict";
import { test } from "node:test";
import { Admin, Reader } from "../src/index.js";
import { clientOf } from "./support/client.js";
import { startProxy } from "./support/proxy.js";
import { startServer } from "./support/server.js";
import { sleep, until } from "./support/wait.js";

/** How often the server is killed; more by hand. */
const KILLS = Number(process.env.KILLS ?? 10);
/** How often the proxy misbehaves. */
const CUTS = Number(process.env.CUTS ?? 21);
/** A quick judgement of silent connections. */
const QUICK = { openTimeoutMs: 1_000, pingEveryMs: 300, pingTimeoutMs: 300, reconnectMaxMs: 200 };

/** Publishes and handles events until it is stopped, and knows what must be there. */
class Ledger {
  constructor(publisher, consumer) {
    this.publisher = publisher;
    this.consumer = consumer;
    this.confirmed = new Map();
    this.handled = new Map();
    this.isOver = false;
  }

  start() {
    this.consuming = this.consumer.subscribe(
      "ledger",
      "g",
      (event) => {
        this.handled.set(event.payload, (this.handled.get(event.payload) ?? 0) + 1);
      },
      // With a name, a member that is back takes the place of the one whose connection was lost.
      { from: "earliest", concurrency: 8, maxAttempts: 1_000, memberId: "ledger" },
    );
    this.publishing = Promise.all(Array.from({ length: 8 }, (_, lane) => this.lane(lane)));
  }

  async lane(lane) {
    for (let n = 0; !this.isOver; n++) {
      const payload = `${lane}-${n}`;
      const { offset, id } = await this.publisher.publish("ledger", payload);
      this.confirmed.set(payload, { offset, id });
      await sleep(1);
    }
  }

  /** Every confirmed event is in the log once, at its offset, and was handled. */
  async check(url) {
    this.isOver = true;
    await this.publishing;
    await this.consuming;
    const stored = new Map();
    for await (const event of new Reader(url).replay("ledger")) {
      assert.equal(stored.has(event.payload), false, `${event.payload} is in the log twice`);
      stored.set(event.payload, event);
    }
    for (const [payload, { offset, id }] of this.confirmed) {
      assert.equal(stored.get(payload)?.offset, offset, `${payload} was confirmed and is not there`);
      assert.equal(stored.get(payload).id, id);
    }
    await until(() => this.handled.size === stored.size, { what: "every event is handled" });
    await until(async () => (await new Admin(url).lag("ledger", "g")).lag === 0, { what: "every event is acked" });
    return stored.size;
  }
}

test(`nothing confirmed is lost or doubled when the server is killed ${KILLS} times`, async (t) => {
  const server = await startServer(t, { isDurable: true });
  const ledger = new Ledger(clientOf(t, server), clientOf(t, server));
  ledger.start();
  for (let kill = 0; kill < KILLS; kill++) {
    await sleep(100 + Math.random() * 200);
    await server.kill();
    await sleep(Math.random() * 100);
    await server.start();
    const before = ledger.confirmed.size;
    await until(() => ledger.confirmed.size > before, { what: "publishing goes on" });
  }
  const count = await ledger.check(server.url);
  t.diagnostic(
    `${count} events, ${[...ledger.handled.values()].filter((times) => times > 1).length} handled more than once`,
  );
});

test(`nothing is lost or doubled behind a proxy that misbehaves ${CUTS} times`, async (t) => {
  const server = await startServer(t, { isDurable: true });
  const proxy = await startProxy(t, server);
  const ledger = new Ledger(clientOf(t, proxy.url, QUICK), clientOf(t, proxy.url, QUICK));
  ledger.start();
  for (let cut = 0; cut < CUTS; cut++) {
    await sleep(50 + Math.random() * 100);
    const kind = ["cut", "delay", "half-close", "black hole", "lost bytes", "refuse", "overtake"][cut % 7];
    if (kind === "cut") proxy.cut();
    if (kind === "delay") proxy.delayMs = 30;
    if (kind === "half-close") proxy.halfClose();
    if (kind === "black hole") {
      proxy.blackHole(true);
      await sleep(800);
      proxy.blackHole(false);
    }
    if (kind === "lost bytes") {
      proxy.loseBytes(true);
      await sleep(800);
      proxy.loseBytes(false);
    }
    if (kind === "overtake") {
      proxy.delayMs = 150;
      await sleep(100);
      proxy.overtake();
      proxy.delayMs = 0;
    }
    if (kind === "refuse") {
      proxy.isRefusing = true;
      proxy.cut();
      await sleep(300);
      proxy.isRefusing = false;
    }
    const before = ledger.confirmed.size;
    await until(() => ledger.confirmed.size > before, { what: `publishing goes on after ${kind}` });
    proxy.delayMs = 0;
  }
  t.diagnostic(`${await ledger.check(server.url)} events, ${proxy.accepted} connections`);
});

test("a black hole is noticed and the events in flight are published once", async (t) => {
  const server = await startServer(t);
  const proxy = await startProxy(t, server);
  const states = [];
  const client = clientOf(t, proxy.url, { ...QUICK, onState: (state) => states.push(state) });
  await client.publish("t", 0);
  proxy.blackHole(true);
  const publishes = [1, 2, 3].map((n) => client.publish("t", n));
  await until(() => states.at(-1) === "connecting");
  proxy.blackHole(false);
  await Promise.all(publishes);
  assert.equal((await server.json("/replay?topic=t")).count, 4);
});

test("after a black hole that loses bytes, a member with a name gets its events again at once", async (t) => {
  const server = await startServer(t);
  const proxy = await startProxy(t, server);
  const states = [];
  const client = clientOf(t, proxy.url, { ...QUICK, onState: (state) => states.push(state) });
  const direct = clientOf(t, server);
  const got = new Map();
  await client.subscribe("t", "g", (event) => void got.set(event.payload, Date.now()), {
    from: "earliest",
    memberId: "m",
  });
  await client.publish("t", 0);
  proxy.loseBytes(true);
  const publishes = [1, 2, 3].map((n) => client.publish("t", n));
  // Delivered into the black hole.
  await direct.publish("t", 4);
  await until(() => proxy.lost > 0 && states.at(-1) === "connecting");
  proxy.loseBytes(false);
  const fair = Date.now();
  await Promise.all(publishes);
  assert.equal((await server.json("/replay?topic=t")).count, 5);
  await until(() => got.size === 5, { what: "the event of the black hole comes" });
  const waited = Math.max(...got.values()) - fair;
  // The server gives an unnamed member up after 50 s, when it did not answer a ping.
  assert.ok(waited < 10_000, `the last event came after ${waited} ms`);
});

test("an idle connection stays open", async (t) => {
  const server = await startServer(t);
  const states = [];
  const client = clientOf(t, server, { pingEveryMs: 50, pingTimeoutMs: 50, onState: (state) => states.push(state) });
  await client.connect();
  await sleep(500);
  assert.deepEqual(states, ["connecting", "open"]);
  assert.deepEqual(client.errors, []);
});

test("a client waits longer and longer while the server is away, and uses no processor time", async (t) => {
  const server = await startServer(t);
  const proxy = await startProxy(t, server);
  const client = clientOf(t, proxy.url, { reconnectMinMs: 50, reconnectMaxMs: 1_000 });
  await client.subscribe("t", "g", () => {});
  proxy.isRefusing = true;
  proxy.cut();
  const before = { accepted: proxy.accepted, cpu: process.cpuUsage() };
  const publish = client.publish("t", 1);
  await sleep(2_000);
  const tries = proxy.accepted - before.accepted;
  const cpu = process.cpuUsage(before.cpu);
  assert.ok(tries >= 2 && tries <= 14, `${tries} tries`);
  assert.ok((cpu.user + cpu.system) / 1_000 < 500, `${(cpu.user + cpu.system) / 1_000} ms of processor time`);
  proxy.isRefusing = false;
  await publish;
});

test("a server that stops is left and found again", async (t) => {
  const server = await startServer(t, { isDurable: true });
  const client = clientOf(t, server);
  let handled = 0;
  await client.subscribe("t", "g", () => void handled++, { from: "earliest" });
  await client.publish("t", 1);
  server.signal("SIGTERM");
  await server.exit;
  const publish = client.publish("t", 2);
  await server.start();
  await publish;
  await until(() => handled === 2);
});

test("a client that is created before its server works when the server comes", async (t) => {
  const server = await startServer(t, { isDurable: true });
  await server.kill();
  const client = clientOf(t, server);
  const got = [];
  const subscribed = client.subscribe("t", "g", (event) => void got.push(event.payload), { from: "earliest" });
  const publish = client.publish("t", "early");
  await sleep(200);
  await server.start();
  await Promise.all([publish, subscribed]);
  await until(() => got.length === 1);
});

test("a connection that ends while SUBSCRIBE waits for its answer leaves one subscription", async (t) => {
  const server = await startServer(t);
  const proxy = await startProxy(t, server);
  const client = clientOf(t, proxy.url);
  await client.connect();
  const got = [];
  for (let round = 0; round < 5; round++) {
    proxy.delayMs = 40;
    const subscribed = client.subscribe("t", `g${round}`, (event) => void got.push(event.payload), {
      from: "earliest",
    });
    await sleep(60);
    proxy.cut();
    proxy.delayMs = 0;
    await subscribed;
  }
  await client.publish("t", 1);
  await until(() => got.length === 5);
  assert.deepEqual(client.errors, []);
  assert.equal(client.subscriptions.size, 5);
});

test("a member with a name survives its own SUBSCRIBE that arrives late", async (t) => {
  const server = await startServer(t);
  const proxy = await startProxy(t, server);
  const client = clientOf(t, proxy.url);
  await client.connect();
  const [got, assignments] = [[], []];
  proxy.delayMs = 300;
  const subscribed = client.subscribe("t", "g", (event) => void got.push(event.payload), {
    from: "earliest",
    partitions: 4,
    memberId: "m",
    onRebalance: ({ assigned }) => assigned.length > 0 && assignments.push(assigned),
  });
  // The frame is on its way.
  await sleep(20);
  proxy.overtake();
  proxy.delayMs = 0;
  await subscribed;
  await until(() => assignments.length > 1 || client.errors.length > 0, { what: "the late frame has had its effect" });
  assert.deepEqual(client.errors, []);
  await client.publish("t", 1, { key: "k" });
  await until(() => got.length === 1);
});

test("what is published while the connection ends is sent on the next one", async (t) => {
  const server = await startServer(t);
  const proxy = await startProxy(t, server);
  const client = clientOf(t, proxy.url);
  await client.publish("in", 1);
  let late;
  await client.subscribe(
    "in",
    "g",
    async (event, lease) => {
      if (late) return;
      await new Promise((resolve) => {
        // Called in the middle of the end of the connection.
        lease.signal.addEventListener("abort", () =>
          resolve((late = client.publish("out", "late", { timeoutMs: 5_000 }))),
        );
        proxy.cut();
      });
    },
    { from: "earliest" },
  );
  await until(() => late);
  assert.equal((await late).offset, 0);
});
