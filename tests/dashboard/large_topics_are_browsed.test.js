import assert from "node:assert/strict";
import { test } from "node:test";
import {
  Client,
  openDashboard,
  press,
  publish,
  publishMany,
  rowsOf,
  sees,
  startServer,
  textOf,
  until,
  visit,
  write,
} from "./support.js";

const label = (topic) => `Events of ${topic}, newest first`;
const offsets = async (page, topic) =>
  (await rowsOf(page, label(topic))).map(([offset]) => Number(offset.replaceAll(",", "")));
/** What the large server has. */
const MANY = Number(process.env.DASHBOARD_EVENTS ?? 1_000_000);
const TOPICS = 1_000;
const LETTERS = 10_000;

test("the latest of large events are shown, and none is left out on the way back", async (t) => {
  const server = await startServer(t);
  const note = "x".repeat(200_000);
  for (let n = 0; n < 200; n += 20)
    await publishMany(
      server,
      "orders",
      Array.from({ length: 20 }, (_, i) => ({ n: n + i, note })),
    );
  const page = await openDashboard(t, server, { hash: "#/topics/orders" });
  await sees(page, "to 199.");
  assert.deepEqual((await offsets(page, "orders")).slice(0, 5), [199, 198, 197, 196, 195]);
  const seen = new Set();
  await until(async () => {
    for (const offset of await offsets(page, "orders")) seen.add(offset);
    await page.$eval("p-rows", (rows) => (rows.scrollTop += rows.clientHeight / 2));
    return /The list is full/.test(await textOf(page)) && (await page.$eval("p-rows", isAtEnd));
  });
  const least = Math.min(...seen);
  assert.deepEqual(
    [...seen].sort((a, b) => a - b),
    Array.from({ length: 200 - least }, (_, n) => least + n),
  );
  assert.ok(200 - least >= 100, `20 MB of events are shown, from offset ${least} on`);
  await write(page, "Filter", "payload.n=7");
  await press(page, "Filter");
  await sees(page, "1 event shown, offsets 7 to 7");
  // The id is known to the server, and its event is found among others that are large.
  const { events } = await server.json("/replay?topic=orders&from=offset&offset=123&limit=1");
  await write(page, "Filter", "");
  await press(page, "Clear");
  await write(page, "Kind of place", "id");
  await write(page, "Place", events[0].id);
  await press(page, "Go");
  await sees(page, "Offset 123", "aside");
});

const isAtEnd = (rows) => rows.scrollTop + rows.clientHeight >= rows.scrollHeight - 2;

test("reading backwards leaves no event out, whatever holes and sizes a topic has", async (t) => {
  const server = await startServer(t);
  const page = await openDashboard(t, server);
  await sees(page, "Connected");
  const found = await page.evaluate(readSparseTopics);
  assert.deepEqual(found, []);
});

/** Runs in the page: topics that compaction has made sparse, behind a /replay that ends pages early as the server's. */
async function readSparseTopics() {
  const { pageBefore } = await import("/dashboard/lib/events.js");
  const real = globalThis.fetch;
  let seed = 7;
  const random = (below) => (seed = (seed * 48271) % 2147483647) % below;
  const faults = [];
  for (let run = 0; run < 20; run++) {
    const offsets = new Map();
    let end = 0;
    while (offsets.size < 400) {
      end += random(4) === 0 ? 1 + random(10 ** (1 + random(6))) : 1;
      offsets.set(end, 1 + random(2 + random(60)));
    }
    const all = [...offsets.keys()];
    let requests = 0;
    globalThis.fetch = async (url, init) => {
      const { pathname, searchParams } = new URL(url);
      if (pathname !== "/replay") return real(url, init);
      requests++;
      const [from, limit] = [Number(searchParams.get("offset")), Number(searchParams.get("limit"))];
      const events = [];
      let size = 0;
      const rest = all.filter((offset) => offset >= from);
      for (const offset of rest) {
        if (events.length >= limit || size >= 80) break;
        events.push({ offset, payload: offset });
        size += offsets.get(offset);
      }
      const next = rest[events.length];
      return new Response(JSON.stringify({ events, ...(next !== undefined && { next }) }));
    };
    const seen = [];
    let before = end + 1;
    const limit = [1, 10, 100, 1000][run % 4];
    while (before > 0) {
      const part = await pageBefore("t", before, limit, 0, new AbortController().signal);
      if (part.lowest >= before) throw new Error(`no step from ${before}`);
      seen.unshift(...part.events.map((event) => event.offset));
      before = part.lowest;
    }
    if (seen.join() !== all.join()) faults.push(`run ${run}: ${seen.length} of ${all.length} events`);
    if (limit >= 10 && requests > 1000) faults.push(`run ${run}: ${requests} requests`);
  }
  globalThis.fetch = real;
  return faults;
}

/** A server with 1,000 topics, of which one has very many events, and one a group with 10,000 dead letters. */
async function largeServer(t) {
  const server = await startServer(t);
  const names = Array.from({ length: TOPICS - 2 }, (_, n) => `shop.topic-${String(n).padStart(4, "0")}`);
  for (let at = 0; at < names.length; at += 50)
    await Promise.all(names.slice(at, at + 50).map((name) => publish(server, name, 1)));
  const client = new Client(server.url, { onError() {} });
  t.after(() => client.close({ timeoutMs: 500 }).catch(() => {}));
  const fail = (event) => Promise.reject(new Error(`no price for order ${event.payload.n}`));
  const options = { from: "earliest", maxAttempts: 1, concurrency: 50, maxInFlight: 1000 };
  await client.subscribe("payments", "billing", fail, options);
  const numbers = (length, first = 0) => Array.from({ length }, (_, n) => ({ n: first + n }));
  await publishMany(server, "payments", numbers(LETTERS));
  for (let at = 0; at < MANY; at += 1000) await publishMany(server, "orders", numbers(Math.min(1000, MANY - at), at));
  const line = `dead_letters_open{topic="payments",group="billing"} ${LETTERS}`;
  const isDone = async () => (await (await fetch(`${server.http}/metrics`)).text()).includes(line);
  await until(isDone, { timeoutMs: 120_000, what: line });
  return server;
}

test("a server with very many topics, events and dead letters is browsed", { timeout: 300_000 }, async (t) => {
  const began = performance.now();
  const server = await largeServer(t);
  const filled = performance.now();
  const number = (value) => value.toLocaleString("en");
  const isShort = async () => assert.ok((await page.$$("p-rows .line")).length < 60);
  const page = await openDashboard(t, server);
  await sees(page, "Healthy");
  const tile = (name) =>
    page.$$eval(
      ".tile",
      (tiles, wanted) => tiles.map((one) => one.innerText).find((text) => text.startsWith(wanted)),
      name,
    );
  // The dead letters have a topic of their own.
  await until(async () => (await tile("Topics")).includes(number(TOPICS + 1)));
  await until(async () => (await tile("Dead letters")).includes("10K"));
  await visit(page, "#/topics");
  await sees(page, `${number(TOPICS)} topics`);
  await isShort();
  await page.$eval("p-rows", (rows) => (rows.scrollTop = rows.scrollHeight));
  await sees(page, "shop.topic-0997");
  await visit(page, "#/topics/orders");
  await sees(page, `offsets ${number(MANY - 100)} to ${number(MANY - 1)}`);
  const half = MANY / 2;
  await write(page, "Kind of place", "offset");
  await write(page, "Place", String(half));
  await press(page, "Go");
  await sees(page, `Offset ${number(half)}`, "aside");
  await write(page, "Filter", `payload.n=${MANY - 9_000}`);
  await press(page, "Filter");
  await sees(page, "1 event shown");
  await isShort();
  await visit(page, "#/dead-letters");
  await sees(page, `${number(LETTERS)} open letters in 1 group`);
  await press(page, "billing");
  await sees(page, "500 letters read, there are more");
  await press(page, "Drop all…");
  await sees(page, `This closes all ${number(LETTERS)} letters`, "dialog");
  await press(page, "Cancel", "dialog");
  await press(page, "Read all");
  await sees(page, `${number(LETTERS)} letters read; 1 reason.`);
  await isShort();
  const { JSHeapUsedSize: bytes } = await page.metrics();
  t.diagnostic(
    `${number(MANY)} events, ${number(TOPICS)} topics and ${number(LETTERS)} letters made in ` +
      `${Math.round(filled - began)} ms, browsed in ${Math.round(performance.now() - filled)} ms, ` +
      `${Math.round(bytes / 1e6)} MB of JavaScript heap`,
  );
});

test("newer events are loaded on request", async (t) => {
  const server = await startServer(t);
  await publishMany(
    server,
    "orders",
    Array.from({ length: 300 }, (_, n) => n),
  );
  const page = await openDashboard(t, server, { hash: "#/topics/orders?offset=100" });
  await sees(page, "Offset 100", "aside");
  await sees(page, "to 149.");
  await publish(server, "orders", { late: true });
  await press(page, "Load newer events");
  await sees(page, "to 300.");
  assert.deepEqual((await offsets(page, "orders")).length > 0, true);
  await page.$eval("p-rows", (rows) => (rows.scrollTop = 0));
  await until(async () => (await offsets(page, "orders"))[0] === 300);
});
