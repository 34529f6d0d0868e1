import assert from "node:assert/strict";
import { test } from "node:test";
import {
  Admin,
  Client,
  openDashboard,
  press,
  publishMany,
  rowsOf,
  sees,
  startServer,
  textOf,
  until,
  write,
} from "./support.js";

/** A server whose group gave up these payloads. */
async function worldOf(t, payloads, { query = () => "" } = {}) {
  const server = await startServer(t);
  const client = new Client(server.url, { onError() {} });
  t.after(() => client.close({ timeoutMs: 500 }).catch(() => {}));
  const world = { server, admin: new Admin(server.url), isWell: false, handled: [] };
  const handler = (event) => {
    if (!world.isWell) throw new Error(`no price for order ${event.payload?.n}`);
    world.handled.push(event.payload);
  };
  await client.subscribe("orders", "billing", handler, {
    from: "earliest",
    maxAttempts: 1,
    concurrency: 50,
    maxInFlight: 1000,
  });
  if (query() === "") await publishMany(server, "orders", payloads);
  else
    for (const [n, payload] of payloads.entries())
      await fetch(`${server.http}/publish/orders?${query(n)}`, { method: "POST", body: JSON.stringify(payload) });
  const letters = async () => {
    let count = 0;
    for await (const _ of world.admin.deadLetters("orders", "billing", { limit: 1000 })) count++;
    return count;
  };
  await until(async () => (await letters()) === payloads.length, { timeoutMs: 60_000, what: "all are dead letters" });
  return { ...world, world, letters };
}

const LABEL = "Dead letters of billing";

test("letters are found, browsed and redriven to their group", async (t) => {
  const { server, world, letters } = await worldOf(t, [{ n: 0 }, { n: 1 }, { n: 2 }]);
  const page = await openDashboard(t, server, { hash: "#/dead-letters" });
  await sees(page, "3 open letters in 1 group");
  await press(page, "billing");
  await until(async () => (await rowsOf(page, LABEL)).length === 3);
  await page.$eval("p-rows .line", (line) => line.click());
  await sees(page, "Letter at offset 0", "aside");
  await sees(page, '"n": 0', "aside");
  world.isWell = true;
  await press(page, "Redrive…", "aside");
  await sees(page, "This delivers 1 letter again.", "dialog");
  await press(page, "Redrive", "dialog");
  await sees(page, "1 letter redriven.");
  await until(async () => (await letters()) === 2);
  assert.deepEqual(world.handled, [{ n: 0 }]);
  await press(page, "Redrive all…");
  await sees(page, "This delivers all 2 letters again.", "dialog");
  await press(page, "Redrive", "dialog");
  await until(async () => (await letters()) === 0);
});

test("some letters are chosen, and dropped", async (t) => {
  const { server, letters, admin } = await worldOf(t, [{ n: 0 }, { n: 1 }, { n: 2 }, { n: 3 }]);
  const page = await openDashboard(t, server, { hash: "#/dead-letters?topic=orders&group=billing" });
  await write(page, "Choose offset 1", true);
  await write(page, "Choose offset 3", true);
  await press(page, "Drop 2 chosen…");
  await sees(page, "This closes 2 letters", "dialog");
  await press(page, "Drop", "dialog");
  await sees(page, "2 letters dropped.");
  await until(async () => (await letters()) === 2);
  const left = [];
  for await (const letter of admin.deadLetters("orders", "billing")) left.push(letter.offset);
  assert.deepEqual(left, [0, 2]);
});

test("a redrive by filter says how many fit before it begins", async (t) => {
  const query = (n = 0) => `key=customer-${n % 2}&tags=t${n}`;
  const { server, world, letters } = await worldOf(t, [{ n: 0 }, { n: 1 }, { n: 2 }, { n: 3 }, { n: 4 }], { query });
  const page = await openDashboard(t, server, { hash: "#/dead-letters?topic=orders&group=billing" });
  await until(async () => (await rowsOf(page, LABEL)).length === 5);
  await press(page, "Redrive by filter…");
  await sees(page, "Fill a field to choose some of 5 letters.", "dialog");
  await press(page, "Redrive", "dialog");
  await sees(page, "Fill at least one field, or redrive all letters.", "dialog .failure");
  await write(page, "Key", "customer-1", "dialog");
  await sees(page, "2 of 5 letters fit.", "dialog");
  world.isWell = true;
  await press(page, "Redrive", "dialog");
  await sees(page, "2 letters redriven.");
  await until(async () => (await letters()) === 3);
  assert.deepEqual(world.handled.map(({ n }) => n).sort(), [1, 3]);
  // By a tag, as new events for all groups.
  await press(page, "Redrive by filter…");
  await write(page, "Tag", "t4", "dialog");
  await write(page, "To", "topic", "dialog");
  await sees(page, "1 of 3 letters fit.", "dialog");
  await press(page, "Redrive", "dialog");
  await sees(page, "1 letter redriven.");
  await until(async () => (await letters()) === 2);
  const { events } = await server.json("/replay?topic=orders");
  assert.deepEqual([events.length, events.at(-1).payload], [6, { n: 4 }]);
  await press(page, "Drop by filter…");
  await write(page, "Key begins with", "customer-", "dialog");
  await sees(page, "2 of 2 letters fit.", "dialog");
  await press(page, "Drop", "dialog");
  await sees(page, "2 letters dropped.");
  assert.equal(await letters(), 0);
});

test("all letters are counted before they are redriven or dropped, also those that were not read", async (t) => {
  const { server, letters, world } = await worldOf(
    t,
    Array.from({ length: 2345 }, (_, n) => ({ n })),
  );
  const script = () => {
    const real = globalThis.fetch;
    globalThis.late = 0;
    globalThis.fetch = async (url, init) => {
      const response = await real(url, init);
      if (new URL(url).pathname === "/dlq") await new Promise((resolve) => setTimeout(resolve, globalThis.late));
      return response;
    };
  };
  const page = await openDashboard(t, server, { hash: "#/dead-letters?topic=orders&group=billing", script });
  await sees(page, "500 letters read, there are more");
  await page.evaluate(() => void (globalThis.late = 300));
  await press(page, "Redrive by filter…");
  await sees(page, "Reading the letters: 1,000 so far…", "dialog");
  // Nothing can be done before it is known what will happen.
  assert.ok(await page.$eval("dialog button.primary", (button) => button.disabled));
  await write(page, "Key", "nobody", "dialog");
  await sees(page, "0 of 2,345 letters fit.", "dialog");
  await press(page, "Cancel", "dialog");
  await press(page, "Drop all…");
  await sees(page, "Counting the letters: 1,000 so far…", "dialog");
  await sees(page, "This closes all 2,345 letters", "dialog");
  await press(page, "Cancel", "dialog");
  await press(page, "Redrive all…");
  await sees(page, "This delivers all 2,345 letters again.", "dialog");
  world.isWell = true;
  await press(page, "Redrive", "dialog");
  await sees(page, "2,345 letters redriven.");
  await until(async () => (await letters()) === 0);
});

test("a count that has no end in sight says so", async (t) => {
  const payloads = Array.from({ length: 60 }, (_, n) => ({ n, note: "x".repeat(500_000) }));
  const { server, letters } = await worldOf(t, payloads, { query: (n = 0) => `key=customer-${n}` });
  const page = await openDashboard(t, server, { hash: "#/dead-letters?topic=orders&group=billing" });
  await sees(page, "there are more");
  await press(page, "Drop all…");
  await until(async () => /This closes all \d+\+ letters/.test(await textOf(page, "dialog")));
  await press(page, "Cancel", "dialog");
  await press(page, "Drop by filter…");
  await write(page, "Key begins with", "c", "dialog");
  await sees(page, "Letters beyond these are chosen too if they fit.", "dialog");
  assert.equal(await letters(), 60);
});

test("a letter is compared with the schema, mended and published", async (t) => {
  const { server, admin, world, letters } = await worldOf(t, [{ n: 0 }, { n: 1 }]);
  await admin.registerSchema("orders", {
    type: "object",
    properties: { n: { type: "integer" }, price: { type: "number" } },
    required: ["price"],
  });
  const page = await openDashboard(t, server, { hash: "#/dead-letters?topic=orders&group=billing&offset=1" });
  await sees(page, "break the schema", "aside");
  await press(page, "Mend and redrive…", "aside");
  await write(page, "Payload of the new event", '{"n": 1, "price": 12345678901234567890}');
  await sees(page, "The payload fits version 1 of the schema.", "aside");
  world.isWell = true;
  await press(page, "Publish the mended event…", "aside");
  await sees(page, "the letter at offset 1 is closed", "dialog");
  await press(page, "Publish and close", "dialog");
  await sees(page, "1 letter redriven.");
  await until(async () => (await letters()) === 1);
  const replay = await (await fetch(`${server.http}/replay?topic=orders`)).text();
  assert.ok(replay.includes('{"n":1,"price":12345678901234567890}'), replay);
  assert.equal(JSON.parse(replay).events.at(-1).caused_by.length, 1);
});

test("ten thousand letters are read page by page, and grouped by reason", { timeout: 240_000 }, async (t) => {
  const { server } = await worldOf(
    t,
    Array.from({ length: 10_000 }, (_, n) => ({ n })),
  );
  const page = await openDashboard(t, server, { hash: "#/dead-letters?topic=orders&group=billing" });
  await sees(page, "500 letters read, there are more; 1 reason.");
  assert.ok((await page.$$("p-rows .line")).length < 60);
  await press(page, "Read all");
  await sees(page, "10,000 letters read; 1 reason.");
  assert.match(await textOf(page), /All reasons \(10,000\)/);
  await page.$eval("p-rows", (rows) => (rows.scrollTop = rows.scrollHeight));
  await sees(page, "9,999");
});

test("letters are published again for all groups", async (t) => {
  const { server, world, letters } = await worldOf(t, [{ n: 0 }]);
  const page = await openDashboard(t, server, { hash: "#/dead-letters?topic=orders&group=billing&offset=0" });
  world.isWell = true;
  await press(page, "Redrive…", "aside");
  await write(page, "To", "topic", "dialog");
  await press(page, "Redrive", "dialog");
  await sees(page, "1 letter redriven.");
  await until(async () => (await letters()) === 0);
  const { events } = await server.json("/replay?topic=orders");
  assert.deepEqual(
    events.map(({ payload }) => payload),
    [{ n: 0 }, { n: 0 }],
  );
});

test("a page that cannot be read is not taken for the last, and a rare reason reads no more by itself", async (t) => {
  const { server } = await worldOf(
    t,
    Array.from({ length: 1100 }, (_, n) => ({ n })),
  );
  const script = () => {
    const real = globalThis.fetch;
    globalThis.faults = 1;
    globalThis.fetch = (url, init) => {
      const isSecond = new URL(url).searchParams.has("after") && new URL(url).pathname === "/dlq";
      if (!isSecond || globalThis.faults-- <= 0) return real(url, init);
      return Promise.resolve(new Response('{"error":"busy","message":"try later"}', { status: 503 }));
    };
  };
  const page = await openDashboard(t, server, { hash: "#/dead-letters?topic=orders&group=billing", script });
  await sees(page, "500 letters read, there are more");
  await page.$eval("p-rows", (rows) => (rows.scrollTop = rows.scrollHeight));
  await sees(page, "Try later.");
  await sees(page, "500 letters read, there are more");
  await write(page, "Reason", "no price for order …");
  await press(page, "Read more");
  await sees(page, "1,000 letters read, there are more");
  await press(page, "Read all");
  await sees(page, "1,100 letters read; 1 reason.");
});

test("a redrive that fails half way says what was done", async (t) => {
  const { server, letters } = await worldOf(
    t,
    Array.from({ length: 1200 }, (_, n) => ({ n })),
  );
  const script = () => {
    const real = globalThis.fetch;
    let calls = 0;
    globalThis.fetch = (url, init) => {
      if (new URL(url).pathname !== "/dlq/drop" || ++calls !== 2) return real(url, init);
      return Promise.resolve(new Response('{"error":"busy","message":"try later"}', { status: 503 }));
    };
  };
  const page = await openDashboard(t, server, { hash: "#/dead-letters?topic=orders&group=billing", script });
  await sees(page, "500 letters read");
  await press(page, "Read all");
  await sees(page, "1,200 letters read");
  await write(page, "Reason", "no price for order …");
  await press(page, "Drop 1,200 of this reason…");
  await press(page, "Drop", "dialog");
  await sees(page, "Try later. Before that: 1,000 letters dropped.", "dialog .failure");
  assert.equal(await letters(), 200);
});
