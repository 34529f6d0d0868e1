// Measures the dashboard, by hand, on a quiet machine: what an open overview costs the server, the heap of a long tail,
// and the first paint. Needs the release binary in PROMETHEAN_BIN. MEASURE_SECONDS is the length of each CPU measurement
// (30), MEASURE_TAIL_MINUTES that of the tail (60), MEASURE_RATE the events in a second (10000).

import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Client, openDashboard, press, publish, sees, sleep, startServer } from "./support.js";

const SECONDS = Number(process.env.MEASURE_SECONDS ?? 30);
const TAIL_MINUTES = Number(process.env.MEASURE_TAIL_MINUTES ?? 60);
const RATE = Number(process.env.MEASURE_RATE ?? 10_000);
/** Clock ticks in a second, as Linux counts the time of processes. */
const TICKS = 100;
const BATCH = 100;

/** CPU time that a process has used, in ms. */
function cpuMs(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
  return ((Number(fields[11]) + Number(fields[12])) * 1000) / TICKS;
}

/** Publishes at the rate until it is stopped; returns how many events were published. */
function load(server, topic) {
  const client = new Client(server.url);
  const began = performance.now();
  let count = 0;
  let isOn = true;
  const events = Array.from({ length: BATCH }, (_, n) => ({ topic, payload: { n, note: "x".repeat(80) } }));
  const done = (async () => {
    while (isOn) {
      const due = ((performance.now() - began) * RATE) / 1000;
      while (count < due && isOn) {
        await client.publishMany(events);
        count += BATCH;
      }
      await sleep(5);
    }
    await client.close();
  })();
  return {
    stop: async () => {
      isOn = false;
      await done;
      return count;
    },
  };
}

async function corePart(server) {
  const before = cpuMs(server.child.pid);
  await sleep(SECONDS * 1000);
  return (cpuMs(server.child.pid) - before) / (SECONDS * 10);
}

test("what an open overview costs the server", { timeout: Infinity }, async (t) => {
  const server = await startServer(t, { isDurable: true });
  await publish(server, "orders", 0);
  const publishing = load(server, "orders");
  const without = await corePart(server);
  await sees(await openDashboard(t, server), "Healthy");
  const withPage = await corePart(server);
  const count = await publishing.stop();
  t.diagnostic(`${count} events; ${without.toFixed(1)} % of a core without the page, ${withPage.toFixed(1)} % with it`);
});

test("the heap of a long tail", { timeout: Infinity }, async (t) => {
  const server = await startServer(t, { isDurable: true });
  await publish(server, "orders", 0);
  const page = await openDashboard(t, server, { hash: "#/topics/orders" });
  await press(page, "Live tail");
  await sees(page, "Live", ".chip.good");
  const publishing = load(server, "orders");
  const session = await page.createCDPSession();
  const heaps = [];
  for (let minute = 1; minute <= TAIL_MINUTES; minute++) {
    await sleep(60_000);
    await session.send("HeapProfiler.collectGarbage");
    const { JSHeapUsedSize: bytes } = await page.metrics();
    heaps.push(Math.round(bytes / 1e6));
    t.diagnostic(`minute ${minute}: ${heaps.at(-1)} MB`);
  }
  t.diagnostic(`${await publishing.stop()} events; at most ${Math.max(...heaps)} MB`);
});

test("the first paint of a browser without a cache", { timeout: Infinity }, async (t) => {
  const server = await startServer(t);
  const paints = [];
  for (let n = 0; n < 10; n++) {
    const page = await openDashboard(t, server);
    await sees(page, "Healthy");
    paints.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime));
  }
  paints.sort((a, b) => a - b);
  t.diagnostic(`first paint after ${paints.map(Math.round)} ms`);
});
