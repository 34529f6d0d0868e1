import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Admin } from "../src/index.js";
import { startBrowser, startPages } from "./support/browser.js";
import { startServer } from "./support/server.js";
import { sleep, until } from "./support/wait.js";

let browser;
let pages;

before(async () => {
  [browser, pages] = await Promise.all([startBrowser(), startPages()]);
});

after(async () => {
  await browser?.close();
  pages?.stop();
});

/** A page with a client: `client`, and `lib` with all that the client's module exports. */
async function openPage(t, server, { host = "127.0.0.1", options = {} } = {}) {
  const page = await browser.newPage();
  t.after(() => page.close());
  await page.goto(`http://${host}:${pages.port}/`);
  await page.evaluate(
    async (url, given) => {
      globalThis.lib = await import("/src/index.js");
      globalThis.errors = [];
      globalThis.client = new lib.Client(url, {
        reconnectMinMs: 20,
        reconnectMaxMs: 300,
        onError: (error) => errors.push(error.message),
        ...given,
      });
    },
    server.url,
    options,
  );
  return page;
}

test("a page publishes and subscribes", async (t) => {
  const server = await startServer(t);
  const page = await openPage(t, server);
  const got = await page.evaluate(async () => {
    const published = await client.publish("t", { text: "é" }, { key: "k" });
    const events = [];
    for await (const lease of client.leases("t", "g", { from: "earliest" })) {
      events.push([lease.event.payload.text, lease.event.id === published.id]);
      await lease.ack();
      break;
    }
    await client.close();
    return events;
  });
  assert.deepEqual(got, [["é", true]]);
  assert.equal((await new Admin(server.url).lag("t", "g")).lag, 0);
});

test("EventClient works in a page", async (t) => {
  const server = await startServer(t, { args: ["--token", "devtoken"] });
  const page = await openPage(t, server);
  const got = await page.evaluate(async (url) => {
    const small = new lib.EventClient(url, "devtoken");
    const events = [];
    await small.subscribe("t", "g", (event, ctx) => void events.push([event.payload, ctx.attempt]), {
      from: "earliest",
    });
    await small.publish("t", 1);
    while (events.length < 1) await new Promise((resolve) => setTimeout(resolve, 5));
    await small.close();
    return events;
  }, server.url);
  assert.deepEqual(got, [[1, 1]]);
});

test("a page reconnects, and what it published meanwhile arrives once", async (t) => {
  const server = await startServer(t, { isDurable: true });
  const page = await openPage(t, server);
  await page.evaluate(async () => {
    globalThis.got = [];
    await client.subscribe("t", "g", (event) => void got.push(event.payload), { from: "earliest" });
    await client.publish("t", 0);
  });
  await server.kill();
  await page.evaluate(() => void (globalThis.publishes = [1, 2, 3].map((n) => client.publish("t", n))));
  await sleep(100);
  await server.start();
  await page.evaluate(() => Promise.all(publishes));
  await until(() => page.evaluate(() => got.length >= 4));
  assert.deepEqual(await page.evaluate(() => got), [0, 1, 2, 3]);
  assert.equal((await server.json("/replay?topic=t")).count, 4);
});

test("a page keeps its leases while it is hidden and its timers run once a minute", { timeout: 120_000 }, async (t) => {
  const server = await startServer(t);
  const page = await openPage(t, server);
  await page.evaluate(async () => {
    globalThis.attempts = [];
    globalThis.ticks = [];
    setInterval(() => ticks.push(document.visibilityState), 250);
    await client.subscribe(
      "t",
      "g",
      async (event, lease) => {
        attempts.push([event.payload, lease.attempt]);
        await new Promise((resolve) => (globalThis.release = resolve));
      },
      { from: "earliest", ackTimeoutMs: 2_000 },
    );
    await client.publish("t", "before");
  });
  await until(() => page.evaluate(() => attempts.length === 1));
  const other = await browser.newPage();
  t.after(() => other.close());
  await other.bringToFront();
  await until(() => page.evaluate(() => document.visibilityState === "hidden"), { what: "the page is hidden" });
  await sleep(5_000);
  const ticksBefore = await page.evaluate(() => ticks.length);
  // Arrives while timers do not run.
  await new Admin(server.url).http.json(["publish", "t"], { method: "POST", json: "hidden" });
  await sleep(10_000);
  const ticks = (await page.evaluate(() => ticks.length)) - ticksBefore;
  t.diagnostic(`${ticks} ticks of 250 ms in 10 s`);
  // Timers of any hidden page run once a second; those that are throttled as after minutes run once a minute.
  assert.ok(ticks <= 4, `${ticks} ticks: the timers of the hidden page do not run once a minute`);
  await page.evaluate(() => release());
  await until(() => page.evaluate(() => attempts.length === 2));
  await page.evaluate(() => release());
  await until(async () => (await new Admin(server.url).lag("t", "g")).lag === 0);
  assert.deepEqual(await page.evaluate(() => attempts), [
    ["before", 1],
    ["hidden", 1],
  ]);
  assert.deepEqual(await page.evaluate(() => errors), []);
});

test("a page of an origin that is not allowed is told its origin and the setting", async (t) => {
  const server = await startServer(t);
  const page = await openPage(t, server, { host: "other.test" });
  const error = await page.evaluate(() =>
    client.connect().then(
      () => undefined,
      ({ code, message }) => ({ code, message }),
    ),
  );
  assert.equal(error.code, "forbidden_origin");
  assert.ok(error.message.includes(`http://other.test:${pages.port}`), error.message);
  assert.match(error.message, /allowed_origins/);
  const http = await page.evaluate(
    (url) => new lib.Admin(url).groups().catch(({ code, message }) => ({ code, message })),
    server.http,
  );
  assert.equal(http.code, "unreachable");
  assert.match(http.message, /allowed_origins/);
});

test("a page of an allowed origin uses WebSocket and HTTP", async (t) => {
  const server = await startServer(t, { config: `allowed_origins = ["http://other.test:${pages.port}"]\n` });
  const page = await openPage(t, server, { host: "other.test" });
  const groups = await page.evaluate(async () => {
    await client.subscribe("t", "g", () => {});
    return new lib.Admin(client).groups();
  });
  assert.equal(groups[0].group, "g");
});

test("a server that is away is named in a page", async (t) => {
  const server = await startServer(t);
  await server.kill();
  const page = await openPage(t, server);
  const error = await page.evaluate(() =>
    client.connect({ timeoutMs: 1_000 }).catch(({ code, message }) => ({ code, message })),
  );
  assert.equal(error.code, "unreachable");
  assert.match(error.message, /cannot reach ws:\/\/127/);
});
