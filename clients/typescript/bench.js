// Measures one connection: confirmed publishes and acked deliveries in a second.
//
//   node bench.js ws://127.0.0.1:8090 [--events 500000] [--bytes 100] [--outstanding 256] [--ws]
//
// `--ws` uses the package `ws` also where Node has a WebSocket of its own.

import { parseArgs } from "node:util";
import { Client } from "./src/index.js";

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    events: { type: "string", default: "500000" },
    bytes: { type: "string", default: "100" },
    outstanding: { type: "string", default: "256" },
    ws: { type: "boolean", default: false },
  },
});
const events = Number(values.events);
const outstanding = Number(values.outstanding);
const topic = `bench.${Date.now()}`;
const payload = { text: "x".repeat(Number(values.bytes) - 11) };
const options = values.ws ? { WebSocket: (await import("ws")).WebSocket } : {};
const socket = values.ws || !globalThis.WebSocket ? "ws" : "built in";
const client = await new Client(positionals[0] ?? "ws://127.0.0.1:8090", options).connect();

async function publishAll(count) {
  let left = count;
  await Promise.all(
    Array.from({ length: outstanding }, async () => {
      while (left-- > 0) await client.publish(topic, payload);
    }),
  );
}

async function measure(what, count, work) {
  const began = performance.now();
  await work();
  const seconds = (performance.now() - began) / 1_000;
  const rss_mb = Math.round(process.memoryUsage().rss / 1e6);
  console.log(
    JSON.stringify({ what, node: process.version, socket, count, per_second: Math.round(count / seconds), rss_mb }),
  );
}

await publishAll(Math.min(events, 20_000));
await measure("confirmed publishes", events, () => publishAll(events));
const total = events + Math.min(events, 20_000);
await measure("acked deliveries", total, async () => {
  let handled = 0;
  const done = new Promise((resolve) => {
    client.subscribe(topic, "bench", () => ++handled === total && resolve(), { from: "earliest", maxInFlight: 1_000 });
  });
  await done;
  await client.unsubscribe(topic, "bench");
});
await measure("one outstanding", 2_000, async () => {
  for (let n = 0; n < 2_000; n++) await client.publish(topic, payload);
});
await client.close();
