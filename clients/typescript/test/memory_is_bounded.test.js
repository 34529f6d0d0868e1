import assert from "node:assert/strict";
import { setFlagsFromString } from "node:v8";
import { test } from "node:test";
import { runInNewContext } from "node:vm";
import { clientOf } from "./support/client.js";
import { startServer } from "./support/server.js";
import { until } from "./support/wait.js";

/** Events that pass; ten million by hand. */
const EVENTS = Number(process.env.EVENTS ?? 200_000);
const GROWTH_MAX = 8 << 20;
/** The most events that wait for their handler; the topic keeps twice as many. */
const BEHIND_MAX = 10_000;

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc");

function heap() {
  collect();
  return process.memoryUsage().heapUsed;
}

test(`memory stays flat over ${EVENTS} events`, { timeout: 3_600_000 }, async (t) => {
  const retention = '[topics."t"]\nretention = { count = 20_000 }\n';
  const client = clientOf(t, await startServer(t, { config: retention }));
  let handled = 0;
  const subscription = await client.subscribe("t", "g", () => void handled++, { maxInFlight: 1_000, from: "earliest" });
  let [left, published] = [EVENTS, 0];
  const lanes = async () => {
    const payload = { text: "x".repeat(80) };
    await Promise.all(
      Array.from({ length: 256 }, async () => {
        while (left-- > 0) {
          await client.publish("t", payload);
          published++;
          // Retention must not remove what was not handled yet.
          if (published - handled > BEHIND_MAX) await until(() => published - handled <= BEHIND_MAX);
        }
      }),
    );
  };
  left = Math.floor(EVENTS / 10);
  await lanes();
  const before = heap();
  left = EVENTS - Math.floor(EVENTS / 10);
  await lanes();
  await until(() => handled >= EVENTS && subscription.inFlight === 0, { what: "all is handled and acked" });
  assert.equal(handled, EVENTS, "each event is handled once");
  const grown = heap() - before;
  t.diagnostic(`${handled} events handled, the heap grew by ${Math.round(grown / 1024)} KiB`);
  assert.ok(grown < GROWTH_MAX, `${grown} bytes`);
});

test("while the server is away, memory is bounded by the queue", async (t) => {
  const server = await startServer(t);
  const client = clientOf(t, server, { maxQueued: 1_000, maxQueuedBytes: 1 << 20 });
  await client.connect();
  await server.kill();
  await until(() => client.state !== "open");
  const before = heap();
  let refused = 0;
  for (let n = 0; n < 20_000; n++)
    client
      .publish("t", "x".repeat(2_000), { timeoutMs: 1_000 })
      .catch((error) => (refused += error.code === "outbox_full"));
  const grown = heap() - before;
  await until(() => refused > 19_000);
  assert.ok(grown < 64 << 20, `${grown} bytes`);
});
