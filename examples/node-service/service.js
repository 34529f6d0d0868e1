// A service that reports itself to the bus and raises an alarm for each process that went silent. Start a bus, then
// this:
//
//   promethean dev
//   node examples/node-service/service.js
//
// PROMETHEAN_URL is the address of the bus (ws://127.0.0.1:8090), PROMETHEAN_TOKEN its token. In a project of your own,
// run `npm install @promethean/client` and import from "@promethean/client".

import { hostname } from "node:os";
import { Client, adviceFor, transform } from "../../clients/typescript/src/index.js";

const client = new Client(process.env.PROMETHEAN_URL ?? "ws://127.0.0.1:8090", {
  token: process.env.PROMETHEAN_TOKEN,
  onState: (state, error) => console.log(`the bus is ${state}${error ? `: ${error.message}` : ""}`),
  onError: (error) => console.error(`${error.message} (${adviceFor(error)})`),
});

/** @typedef {{pid: number, name: string, host: string, cpu_pct: number, mem_mb: number}} Heartbeat */
/** @type {import("../../clients/typescript/src/topic.js").Topic<Heartbeat>} */
const heartbeats = client.topic("heartbeat.received");

let lastCpu = process.cpuUsage();
async function beat() {
  const { user, system } = process.cpuUsage(lastCpu);
  lastCpu = process.cpuUsage();
  await heartbeats.publish({
    pid: process.pid,
    name: "node-service",
    host: hostname(),
    cpu_pct: (user + system) / 10_000,
    mem_mb: process.memoryUsage().rss / 1e6,
  });
}
const timer = setInterval(() => beat().catch((error) => console.error(error.message)), 1_000);

// Each alarm is published exactly once, also if the service or the server dies in between: its id is derived from the
// event that it is about.
await transform(
  client,
  "process.state",
  "alarms",
  (event) => {
    if (event.payload?.status !== "stale") return [];
    console.log(`alarm: ${event.key} is silent`);
    return [
      {
        topic: "alarm.raised",
        payload: { process: event.key, last_seen_ts: event.payload.last_seen_ts },
        opts: { key: event.key },
      },
    ];
  },
  { from: "latest", concurrency: 16 },
);
console.log("watching process.state");

// Everything that is under way is finished before the process ends.
for (const signal of ["SIGINT", "SIGTERM"]) {
  process.once(signal, async () => {
    clearInterval(timer);
    await client.close();
    console.log("closed");
  });
}
