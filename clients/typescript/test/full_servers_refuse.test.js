import assert from "node:assert/strict";
import { connect } from "node:net";
import { test } from "node:test";
import { Admin, Reader, adviceFor } from "../src/index.js";
import { clientOf } from "./support/client.js";
import { startServer } from "./support/server.js";
import { until } from "./support/wait.js";

const TEXT = "x".repeat(1_000);

/** Publishes until the server refuses, and returns the refusal with the event that it is about. */
async function fill(client, topic, confirmed) {
  for (let n = confirmed.size; n < 10_000; n++) {
    const payload = { n, text: TEXT };
    try {
      confirmed.set(n, await client.publish(topic, payload, { key: "k" }));
    } catch (error) {
      return { error, payload };
    }
  }
  throw new Error("the server was never full");
}

/** Every confirmed event is there once, at its offset, and nothing else is. */
async function check(client, topic, confirmed) {
  const stored = new Map();
  for await (const event of new Reader(client).replay(topic)) {
    assert.equal(stored.has(event.payload.n), false, `${event.payload.n} is there twice`);
    stored.set(event.payload.n, event.offset);
  }
  assert.deepEqual(stored, new Map([...confirmed].map(([n, { offset }]) => [n, offset])));
}

test("a server without memory refuses by name, goes on delivering, and accepts again after a deletion", async (t) => {
  const server = await startServer(t, { config: "memory_bytes = 200_000\n" });
  const client = clientOf(t, server);
  for (let n = 0; n < 50; n++) await client.publish("ballast", TEXT);
  const confirmed = new Map();
  const handled = new Set();
  await client.subscribe("t", "g", (event) => void handled.add(event.payload.n), { from: "earliest" });
  const { error, payload } = await fill(client, "t", confirmed);
  assert.deepEqual([error.code, error.isRetryable, error.hasNoSideEffects], ["storage_full", true, true]);
  assert.match(error.message, /memory_bytes/);
  assert.match(adviceFor(error), /free space/);
  // A batch is refused as a whole.
  const batch = [1, 2].map((n) => ({ topic: "t", payload: { n: -n, text: TEXT } }));
  await assert.rejects(client.publishMany(batch), { code: "storage_full", hasNoSideEffects: true });
  await until(() => handled.size === confirmed.size, { what: "what is there is handled" });
  const admin = new Admin(client);
  await until(async () => (await admin.lag("t", "g")).lag === 0, { what: "acks are accepted" });
  await admin.deleteTopic("ballast");
  confirmed.set(payload.n, await until(() => client.publish("t", payload).catch(() => undefined)));
  await until(() => handled.size === confirmed.size);
  await check(client, "t", confirmed);
  assert.deepEqual(client.errors, []);
});

const ON_LINUX = { skip: process.platform !== "linux" && "a file system of its own needs Linux" };

test("a server whose disk is full refuses by name, keeps what it confirmed, and resumes", ON_LINUX, async (t) => {
  const server = await startServer(t, { hasOwnDisk: true });
  const client = clientOf(t, server);
  const confirmed = new Map();
  for (let n = 0; n < 100; n++) confirmed.set(n, await client.publish("t", { n, text: TEXT }));
  server.resizeDisk("300m");
  const { error, payload } = await fill(client, "t", confirmed);
  assert.deepEqual([error.code, error.isRetryable, error.hasNoSideEffects], ["storage_full", true, true]);
  const handled = new Set();
  await client.subscribe("t", "g", (event) => void handled.add(event.payload.n), { from: "earliest" });
  await until(() => handled.size === confirmed.size, { what: "what is there is handled" });
  await until(async () => (await new Admin(client).lag("t", "g")).lag === 0, { what: "acks are accepted" });
  server.resizeDisk("1g");
  confirmed.set(payload.n, await until(() => client.publish("t", payload).catch(() => undefined)));
  await until(() => handled.size === confirmed.size);
  await check(client, "t", confirmed);
});

test("a server that receives as much as it may is tried again, and gets each event once", async (t) => {
  const limits = "[limits]\nreceiving_bytes = 16_777_216\ntoken_receiving_bytes = 16_777_216\n";
  const server = await startServer(t, { config: limits });
  const states = [];
  const client = clientOf(t, server, { onState: (state) => states.push(state) });
  await client.connect();
  const hog = connect(server.port, "127.0.0.1");
  t.after(() => hog.destroy());
  hog.write(
    "POST /publish/hog/batch HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\ncontent-length: 16777216\r\n\r\n",
  );
  hog.write(Buffer.alloc(16_700_000, " "));
  const large = "y".repeat(500_000);
  const receiving = async () => {
    const text = await (await fetch(`${server.http}/metrics`)).text();
    return Number(/^\S*receiving_bytes (\d+)/m.exec(text)?.[1]);
  };
  await until(async () => (await receiving()) > 16_600_000, { what: "the server receives as much as it may" });
  const publishes = [0, 1, 2].map((n) => client.publish("t", { n, large }));
  await until(() => states.filter((state) => state === "connecting").length >= 3, { what: "it is refused twice" });
  hog.destroy();
  const offsets = (await Promise.all(publishes)).map(({ offset }) => offset);
  assert.deepEqual(
    offsets.sort((a, b) => a - b),
    [0, 1, 2],
  );
  assert.equal((await new Admin(client).topic("t")).end, 3);
});
