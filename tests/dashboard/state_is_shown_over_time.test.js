import assert from "node:assert/strict";
import { test } from "node:test";
import { openDashboard, press, publish, rowsOf, sees, startServer, textOf, until, visit, write } from "./support.js";

const CONFIG = `
[collections.orders]
default = true
history = true
fields = { status = "string", total = "number" }

[[projectors]]
name = "orders.txn"
topic = "orders.events"
collections = ["orders"]
program = '{upsert: {collection: "orders", key: .key, set: .payload}}'
`;
const HOUR = 3_600_000;
/** Events of the test with a rebuild that takes a while. */
const EVENTS = 100_000;

async function worldOf(t) {
  const server = await startServer(t, { config: CONFIG });
  const now = Date.now();
  const at = async (hoursAgo, key, payload) =>
    publish(server, "orders.events", payload, { query: `key=${key}&ts=${now - hoursAgo * HOUR}` });
  await at(5, "a", { status: "placed", total: 1 });
  await at(4, "b", { status: "placed", total: 2 });
  await at(2, "a", { status: "paid" });
  await at(1, "c", { status: "placed", total: 3 });
  await until(async () => (await server.json("/list")).count === 3);
  return { server, now };
}

const rows = async (page) =>
  (await rowsOf(page, "Documents of orders")).map(([key, status]) => `${key} ${status}`).sort();

test("a collection is a table with filters", async (t) => {
  const { server } = await worldOf(t);
  const page = await openDashboard(t, server, { hash: "#/state" });
  await sees(page, "time slider");
  await press(page, "orders");
  await until(async () => (await rows(page)).length === 3);
  assert.deepEqual(await rows(page), ["a paid", "b placed", "c placed"]);
  await visit(page, "#/state/orders?f.status=placed");
  await until(async () => (await rows(page)).length === 2);
  // The present is read again.
  await publish(server, "orders.events", { status: "placed" }, { query: "key=d" });
  await until(async () => (await rows(page)).length === 3);
});

test("a collection with a history is shown before its first change", async (t) => {
  const server = await startServer(t, { config: CONFIG });
  const page = await openDashboard(t, server, { hash: "#/state/orders" });
  await sees(page, "Now: 0 documents");
  await publish(server, "orders.events", { status: "placed" }, { query: "key=a" });
  await until(async () => (await rows(page)).join() === "a placed");
});

test("the slider shows the table as it was", async (t) => {
  const { server, now } = await worldOf(t);
  const page = await openDashboard(t, server, { hash: `#/state/orders?at=${now - 3 * HOUR}` });
  await until(async () => (await rows(page)).length === 2);
  assert.deepEqual(await rows(page), ["a placed", "b placed"]);
  const slide = (value) =>
    page.$eval(
      'input[type="range"]',
      (range, to) => {
        range.value = String(to);
        range.dispatchEvent(new Event("input", { bubbles: true }));
      },
      value,
    );
  // The slider goes from the first change, 5 hours ago, to now.
  await slide(100);
  await until(async () => (await rows(page)).join() === "a placed");
  assert.match(page.url(), /at=\d+/);
  await slide(1000);
  await until(async () => (await rows(page)).length === 3);
  // The slider is moved with keys too.
  await page.focus('input[type="range"]');
  for (let n = 0; n < 5; n++) await page.keyboard.press("PageDown");
  await until(async () => (await rows(page)).join() === "a placed,b placed");
});

test("the difference of two times is shown", async (t) => {
  const { server, now } = await worldOf(t);
  const page = await openDashboard(t, server, {
    hash: `#/state/orders?since=${now - 4.5 * HOUR}&at=${now - 1.5 * HOUR}`,
  });
  await sees(page, "1 added, 1 changed, 0 removed");
  const found = (await rowsOf(page, "Differences")).map(([kind, key, what]) => `${kind} ${key} ${what}`).sort();
  assert.deepEqual(found, ['added b status: "placed", total: 2', 'changed a status: "placed" → "paid"']);
});

test("an exact time is written, and now is one press away", async (t) => {
  const { server, now } = await worldOf(t);
  const page = await openDashboard(t, server, { hash: "#/state/orders" });
  await until(async () => (await rows(page)).length === 3);
  const local = (at) => new Date(at).toISOString().slice(0, 23);
  await write(page, "The table at, exactly", local(now - 4.5 * HOUR));
  await until(async () => (await rows(page)).join() === "a placed");
  assert.ok(page.url().endsWith(`?at=${now - 4.5 * HOUR}`), page.url());
  // The slider follows the field: the first change was 5 hours ago.
  const part = await page.$eval('input[type="range"]', (range) => Number(range.value));
  assert.ok(part > 90 && part < 110, `${part}`);
  await press(page, "Now");
  await until(async () => (await rows(page)).length === 3);
  assert.ok(page.url().endsWith("#/state/orders"), page.url());
  assert.equal(await page.$eval('input[type="datetime-local"]', (field) => field.value), "");
});

test("the difference is switched on and off, and filtered", async (t) => {
  const { server, now } = await worldOf(t);
  const page = await openDashboard(t, server, { hash: `#/state/orders?at=${now - 1.5 * HOUR}` });
  await until(async () => (await rows(page)).length === 2);
  await write(page, "Show the difference between two times", true);
  await write(page, "Compared with, exactly", new Date(now - 4.5 * HOUR).toISOString().slice(0, 23));
  await sees(page, "1 added, 1 changed, 0 removed");
  assert.match(page.url(), /since=\d+/);
  await press(page, "Filters: fields with given values");
  await write(page, "status is", "paid");
  await press(page, "Filter", "form");
  await sees(page, "0 added, 1 changed, 0 removed");
  assert.match(page.url(), /f\.status=paid/);
  await write(page, "Show the difference between two times", false);
  await until(async () => (await rows(page)).join() === "a paid");
  assert.ok(!page.url().includes("since="), page.url());
  await press(page, "Now");
  await write(page, "status is", "placed");
  await write(page, "total is", "3");
  await press(page, "Filter", "form");
  await until(async () => (await rows(page)).join() === "c placed");
});

test("the progress of a rebuild is shown while it runs", async (t) => {
  const server = await startServer(t, { config: CONFIG });
  for (let at = 0; at < EVENTS / 1000; at++) {
    const lines = Array.from({ length: 1000 }, (_, n) =>
      JSON.stringify({ payload: { status: "placed", total: n }, opts: { key: `k${n % 50}` } }),
    );
    await fetch(`${server.http}/publish/orders.events/batch`, { method: "POST", body: lines.join("\n") });
  }
  await until(async () => (await server.json("/projectors")).projectors[0].lag === 0, { timeoutMs: 60_000 });
  const page = await openDashboard(t, server, { hash: "#/state" });
  await sees(page, "orders.txn");
  await page.focus(".card button");
  await press(page, "Rebuild…");
  await press(page, "Rebuild", "dialog");
  const seen = new Set();
  await until(
    async () => {
      const text = await textOf(page);
      const [, done] = /running, ([\d,]+) of 100,000/.exec(text) ?? [];
      if (done) seen.add(done);
      return text.includes("done: equal to the state before");
    },
    { timeoutMs: 60_000 },
  );
  t.diagnostic(`positions seen: ${[...seen].join(" ")}`);
  assert.ok(seen.size >= 1, "no progress was shown");
  // A user who pressed the button with the keyboard still has the focus on it.
  assert.equal(await page.evaluate(() => document.activeElement?.innerText), "Rebuild…");
});

test("a document has its history", async (t) => {
  const { server } = await worldOf(t);
  const page = await openDashboard(t, server, { hash: "#/state/orders/a" });
  await sees(page, '"status": "paid"');
  await sees(page, 'status: "placed" → "paid"');
  await sees(page, 'status: "placed", total: 1');
  assert.equal((await page.$$("ol li")).length, 2);
});

test("a projector is rebuilt after a question", async (t) => {
  const { server } = await worldOf(t);
  const page = await openDashboard(t, server, { hash: "#/state" });
  await sees(page, "orders.txn");
  await press(page, "Rebuild…");
  await sees(page, "The state is made again from 4 events", "dialog");
  await press(page, "Rebuild", "dialog");
  await sees(page, "The rebuild has begun.");
  await sees(page, "done: equal to the state before");
  assert.ok(!(await textOf(page)).includes("halted"));
});

test("a long collection is read page by page, now, at a time and as a difference", async (t) => {
  const server = await startServer(t, { config: CONFIG });
  const ts = Date.now() - HOUR;
  for (let at = 0; at < 1200; at += 600) {
    const lines = Array.from({ length: 600 }, (_, n) => {
      const opts = { key: `k${String(at + n).padStart(4, "0")}`, ts };
      return JSON.stringify({ payload: { status: "placed", total: at + n }, opts });
    });
    await fetch(`${server.http}/publish/orders.events/batch`, { method: "POST", body: lines.join("\n") });
  }
  await until(async () => (await server.json("/collections/orders")).documents === 1200);
  const page = await openDashboard(t, server, { hash: "#/state/orders" });
  const toTheEnd = () => page.$eval("p-rows", (rows) => (rows.scrollTop = rows.scrollHeight));
  await sees(page, "Now: 500 documents so far");
  await until(async () => (await toTheEnd(), (await textOf(page)).includes("1,200 documents, newest first.")));
  assert.ok((await page.$$("p-rows .line")).length < 60);
  await press(page, "Read again");
  await sees(page, "Now: 500 documents so far");
  await visit(page, `#/state/orders?at=${ts + 1000}`);
  await sees(page, "500 documents so far; 500 looked at, there are more, by key.");
  await until(async () => (await toTheEnd(), (await textOf(page)).includes("1,200 documents, by key.")));
  // A filter that fits late documents only reads on at the press of a button.
  await visit(page, `#/state/orders?at=${ts + 1000}&f.total=1199`);
  await sees(page, "1 document, by key.");
  await visit(page, `#/state/orders?since=${ts - 1000}&at=${ts + 1000}`);
  await sees(page, "500 added, 0 changed, 0 removed so far");
  await until(async () => (await toTheEnd(), (await textOf(page)).includes("1,200 added, 0 changed, 0 removed.")));
});

test("a halted projector is resumed after a question", async (t) => {
  const config = `
[collections.orders]

[[projectors]]
name = "orders.txn"
topic = "orders.events"
collections = ["orders"]
on_failure = "halt"
retries = 0
program = 'if .payload.bad then error("a bad order") else {upsert: {collection: "orders", key: .key, set: .payload}} end'
`;
  const server = await startServer(t, { config });
  await publish(server, "orders.events", { bad: true }, { query: "key=a" });
  const script = () => {
    const real = globalThis.fetch;
    globalThis.calls = [];
    globalThis.fetch = async (url, init) => {
      const response = await real(url, init);
      if (init?.method === "POST") globalThis.calls.push(`${new URL(url).pathname} ${response.status}`);
      return response;
    };
  };
  const page = await openDashboard(t, server, { hash: "#/state", script });
  await sees(page, "a bad order");
  await sees(page, "halted");
  await press(page, "Resume…");
  await sees(page, "orders.txn tries the event that halted it again", "dialog");
  await press(page, "Resume", "dialog");
  await sees(page, "Resumed.");
  assert.deepEqual(await page.evaluate(() => calls), ["/projectors/orders.txn/resume 200"]);
});
