import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import {
  Admin,
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

const HOSTILE = '<img src=x onerror="document.title=1"><script>alert(1)</script>';
const events = (topic) => `Events of ${topic}, newest first`;

test("a hostile payload is text", async (t) => {
  const server = await startServer(t);
  const query = new URLSearchParams({ key: HOSTILE, tags: HOSTILE }).toString();
  await publish(server, "orders", { [HOSTILE]: HOSTILE, big: 1 }, { query, headers: { "x-note": HOSTILE } });
  const page = await openDashboard(t, server, { hash: "#/topics/orders?offset=0" });
  await sees(page, "Same key");
  await press(page, "Same key");
  await sees(page, "Events of the same key");
  assert.ok((await textOf(page, "aside")).includes(HOSTILE));
  assert.equal(await page.$$eval("#main img, #main script", (all) => all.length), 0);
  await visit(page, `#/topics/orders?filter=${encodeURIComponent(`key="${HOSTILE.replaceAll('"', '\\"')}"`)}`);
  await until(async () => (await rowsOf(page, events("orders"))).length === 1);
  await visit(page, `#/${encodeURIComponent(HOSTILE)}/${encodeURIComponent(HOSTILE)}`);
  await sees(page, "Overview", "#main");
});

test("numbers keep all their digits", async (t) => {
  const server = await startServer(t);
  await publish(server, "orders", '{"total": 12.50, "big": 12345678901234567890, "tiny": 1e-400}');
  const page = await openDashboard(t, server, { hash: "#/topics/orders?offset=0" });
  await sees(page, "12345678901234567890", "aside");
  const text = await textOf(page, "aside");
  assert.ok(text.includes("12.50") && text.includes("1e-400"), text);
  await press(page, "Raw");
  await sees(page, '{"total":12.50,"big":12345678901234567890,"tiny":1e-400}', "aside");
});

test("a thousand topics are listed with few elements", async (t) => {
  const server = await startServer(t);
  const names = Array.from({ length: 1000 }, (_, n) => `shop.topic-${String(n).padStart(4, "0")}`);
  for (let at = 0; at < names.length; at += 50)
    await Promise.all(names.slice(at, at + 50).map((name) => publish(server, name, 1)));
  const page = await openDashboard(t, server, { hash: "#/topics" });
  await sees(page, "1,000 topics");
  assert.ok((await page.$$("p-rows .line")).length < 60);
  await page.$eval("p-rows", (rows) => (rows.scrollTop = rows.scrollHeight));
  await sees(page, "shop.topic-0999");
  await write(page, "Find a topic", "topic-0123");
  await sees(page, "1 topic,");
  assert.match(page.url(), /find=topic-0123/);
  assert.equal((await rowsOf(page, "Topics")).length, 1);
});

test("jumping to an offset, a time, an id and a key", async (t) => {
  const server = await startServer(t);
  const published = [];
  for (let n = 0; n < 300; n++)
    published.push(await publish(server, "orders", { n }, { query: `key=c-${n % 7}&ts=${1_000_000 + n * 1000}` }));
  const page = await openDashboard(t, server, { hash: "#/topics/orders" });
  await sees(page, "offsets 200 to 299");
  const jump = async (kind, place, offset) => {
    await write(page, "Kind of place", kind);
    await write(page, "Place", place);
    await press(page, "Go");
    await sees(page, `Offset ${offset}`, "aside");
    assert.match(page.url(), new RegExp(`offset=${offset}`));
    const isSeen = await page.$eval(
      "p-rows .line[data-chosen]",
      (line) => line.getBoundingClientRect().top < innerHeight,
    );
    assert.ok(isSeen, "the event is in view");
  };
  await jump("offset", "42", 42);
  await jump("ts", String(1_000_000 + 100 * 1000 - 5), 100);
  await jump("id", published[7].id, 7);
  await jump("id", published[299].id, 299);
  await jump("key", "c-3", 297);
  await write(page, "Kind of place", "offset");
  await write(page, "Place", "many");
  await press(page, "Go");
  await sees(page, "is not an offset; write a whole number");
  // A shared address shows the same event.
  const other = await openDashboard(t, server, { hash: "#/topics/orders?offset=123" });
  await sees(other, "Offset 123", "aside");
  await press(other, "Same key");
  await sees(other, "offset 291", "aside");
});

test("filters find, explain themselves, and are kept in this browser", async (t) => {
  const server = await startServer(t);
  for (let n = 0; n < 30; n++) {
    const query = `key=customer-${n % 3}&tags=${n % 2 ? "web" : "shop"}`;
    await publish(
      server,
      "orders",
      { n, status: n % 5 ? "open" : "paid", items: [{ name: `lamp ${n}` }] },
      { query, headers: { "x-region": n < 10 ? "eu" : "us" } },
    );
  }
  const page = await openDashboard(t, server, { hash: "#/topics/orders" });
  const expect = async (filter, number) => {
    await write(page, "Filter", filter);
    await press(page, "Filter");
    await sees(page, `${number} ${number === 1 ? "event" : "events"} shown`);
  };
  await expect("key=customer-1", 10);
  await expect("key^=customer-", 30);
  await expect("header.x-region=eu", 10);
  await expect("tag=web payload.status=paid", 3);
  await expect("payload.items.0.name~2", 12);
  await expect('payload~"lamp 29"', 1);
  await expect("key=stranger", 0);
  await write(page, "Filter", "colour=red");
  await press(page, "Filter");
  await sees(page, "is not a filter; write, for example, key=customer-1");
  await write(page, "Filter", "tag=shop");
  await press(page, "Save or forget");
  await sees(page, "Saved in this browser.");
  await page.reload();
  await page.waitForSelector("#filters");
  await until(() => page.$eval("#filters", (list) => list.options[0].value === "tag=shop"));
  await write(page, "Filter", "tag=shop");
  await press(page, "Save or forget");
  await sees(page, "Forgotten.");
  const offers = () => page.$eval("#filters", (list) => [...list.options].map((option) => option.value));
  assert.ok(!(await offers()).includes("tag=shop"));
  await page.reload();
  await page.waitForSelector("#filters");
  assert.ok(!(await offers()).includes("tag=shop"));
});

test("an event says which version of the schema it fits", async (t) => {
  const server = await startServer(t);
  const admin = new Admin(server.url);
  const schema = { type: "object", properties: { n: { type: "integer" } }, additionalProperties: false };
  await admin.registerSchema("orders", schema);
  await publish(server, "orders", { n: 1 });
  await admin.registerSchema("orders", { ...schema, properties: { ...schema.properties, by: { type: "string" } } });
  await publish(server, "orders", { n: 2, by: "me" });
  const page = await openDashboard(t, server, { hash: "#/topics/orders?offset=1" });
  await sees(page, "version 2", "aside .facts");
  await visit(page, "#/topics/orders?offset=0");
  await sees(page, "version 1", "aside .facts");
  await press(page, "version 1", "aside");
  await sees(page, "Version 1", "#main");
  await until(() => page.url().includes("#/schemas/orders?version=1"));
  assert.equal(await page.$eval("table a[aria-current]", (one) => one.innerText), "Version 1");
});

test("a live tail stops, goes on where it stopped, and starts again from now", async (t) => {
  const server = await startServer(t);
  await publish(server, "orders", { n: "old" });
  const page = await openDashboard(t, server, { hash: "#/topics/orders" });
  await sees(page, "old");
  await press(page, "Live tail");
  await sees(page, "Live", ".chip.good");
  await until(async () => (await rowsOf(page, events("orders"))).length === 0);
  await publish(server, "orders", { n: "one" });
  await sees(page, '{"n":"one"}');
  await press(page, "Stop");
  assert.equal(await page.$(".chip.good"), null);
  await publish(server, "orders", { n: "two" });
  assert.ok(!(await textOf(page)).includes('{"n":"two"}'));
  await press(page, "Go on where it stopped");
  await sees(page, '{"n":"two"}');
  await press(page, "Stop");
  await publish(server, "orders", { n: "three" });
  await press(page, "Live from now");
  await sees(page, "Live", ".chip.good");
  await publish(server, "orders", { n: "four" });
  await sees(page, '{"n":"four"}');
  assert.ok(!(await textOf(page)).includes('{"n":"three"}'));
});

test("a live tail survives a lost connection, without a gap and without a repetition", async (t) => {
  const server = await startServer(t, { isDurable: true });
  await publish(server, "orders", { n: "old" });
  const page = await openDashboard(t, server, { hash: "#/topics/orders" });
  await press(page, "Live tail");
  await sees(page, "Live", ".chip.good");
  const shown = async () => (await rowsOf(page, events("orders"))).map((cells) => cells.at(-1)).reverse();
  for (let n = 0; n < 3; n++) await publish(server, "orders", { n });
  await until(async () => (await shown()).length === 3);
  for (let round = 1; round <= 2; round++) {
    await server.kill();
    await sees(page, "The server does not answer.");
    await sees(page, "Waiting for the server…", ".chip.warn");
    assert.equal(await page.$(".chip.good"), null);
    await server.start();
    // These come before the tail is back.
    for (let n = 0; n < 3; n++) await publish(server, "orders", { n: 3 * round + n });
    await sees(page, "Live", ".chip.good");
    await publish(server, "orders", { last: round });
    await sees(page, `{"last":${round}}`);
  }
  const numbers = (first) => [0, 1, 2].map((n) => `{"n":${first + n}}`);
  assert.deepEqual(await shown(), [...numbers(0), ...numbers(3), '{"last":1}', ...numbers(6), '{"last":2}']);
  await press(page, "Stop");
  await sees(page, "Go on where it stopped");
});

test("a long tail keeps the page small", async (t) => {
  const server = await startServer(t);
  await publish(server, "orders", 0);
  const page = await openDashboard(t, server, { hash: "#/topics/orders" });
  await press(page, "Live tail");
  await sees(page, "Live", ".chip.good");
  const note = "x".repeat(1000);
  for (let n = 0; n < 30; n++)
    await publishMany(
      server,
      "orders",
      Array.from({ length: 1000 }, (_, i) => ({ n, i, note })),
    );
  await sees(page, "30,000", "p-rows");
  const session = await page.createCDPSession();
  await session.send("HeapProfiler.collectGarbage");
  const { JSHeapUsedSize: bytes } = await page.metrics();
  t.diagnostic(`${Math.round(bytes / 1e6)} MB of JavaScript heap after 30 MB of events`);
  assert.ok(bytes < 60e6, `${bytes} bytes`);
});

test("a cause is found in another topic", async (t) => {
  const server = await startServer(t);
  const cause = await publish(server, "orders", { n: 1 });
  await publish(server, "orders", { n: 2 });
  await publish(server, "invoices", { n: 3 }, { query: `caused_by=${cause.id}` });
  const page = await openDashboard(t, server, { hash: "#/topics/invoices?offset=0" });
  await press(page, cause.id);
  await sees(page, "Offset 0", "aside");
  await until(() => page.url().includes("#/topics/orders?offset=0"));
});

test("publishing by hand, with help of the schema", async (t) => {
  const server = await startServer(t);
  const admin = new Admin(server.url);
  const schema = {
    type: "object",
    properties: { order: { type: "integer", minimum: 5 }, by: { type: "string" } },
    required: ["order"],
    additionalProperties: false,
  };
  await admin.registerSchema("orders", schema);
  const page = await openDashboard(t, server, { hash: "#/topics/orders/publish" });
  await press(page, "Example from the schema");
  await sees(page, "Fits version 1 of the schema.");
  await write(page, "Payload, any JSON; null is a tombstone", '{"order": "seven"}');
  await sees(page, "/order");
  await press(page, "Publish", "form");
  await sees(page, "break the schema");
  await write(page, "Payload, any JSON; null is a tombstone", '{"order":');
  await sees(page, "Not JSON yet");
  await write(page, "Payload, any JSON; null is a tombstone", '{"order": 12345678901234567890}');
  await write(page, "Key", "customer-1");
  await write(page, "Tags", "web test");
  await write(page, "Headers, one in a line", "x-region: eu");
  await press(page, "Publish", "form");
  await sees(page, "Stored at offset 0.");
  const replay = await (await fetch(`${server.http}/replay?topic=orders`)).text();
  assert.ok(replay.includes('{"order":12345678901234567890}'), replay);
  const [event] = JSON.parse(replay).events;
  assert.deepEqual([event.key, event.tags, event.headers["x-region"]], ["customer-1", ["web", "test"], "eu"]);
});

test("settings are changed and a topic is deleted, each after a question", async (t) => {
  const server = await startServer(t);
  await publishMany(server, "orders", [1, 2, 3]);
  const page = await openDashboard(t, server, { hash: "#/topics/orders/settings" });
  await write(page, "Age", "7d");
  await write(page, "Attempts before a dead letter", "3");
  await press(page, "Save");
  await sees(page, "retention.age: default becomes 7d", "dialog");
  await sees(page, "max_attempts: 5 becomes 3", "dialog");
  await press(page, "Cancel", "dialog");
  assert.equal((await new Admin(server.url).topic("orders")).settings.max_attempts, 5);
  await press(page, "Save");
  await press(page, "Save", "dialog");
  await sees(page, "Saved.");
  const { settings } = await new Admin(server.url).topic("orders");
  assert.deepEqual([settings.retention, settings.max_attempts], [{ age: "7d" }, 3]);
  await press(page, "Delete…");
  await sees(page, "This removes 3 events", "dialog");
  assert.ok(await page.$eval("dialog button.danger", (button) => button.disabled));
  await write(page, "Type orders to go on", "orders", "dialog");
  await press(page, "Delete", "dialog");
  await sees(page, "orders was deleted.");
  await until(async () => (await server.json("/topics")).topics.length === 0);
});

test("a topic is created", async (t) => {
  const server = await startServer(t);
  const page = await openDashboard(t, server, { hash: "#/topics" });
  await press(page, "New topic");
  await write(page, "Name", "Not A Topic", "dialog");
  await press(page, "Create", "dialog");
  await sees(page, "use only a-z", "dialog .failure");
  await write(page, "Name", "orders.placed", "dialog");
  await press(page, "Create", "dialog");
  await sees(page, "orders.placed was created.");
  await sees(page, "Retention");
  assert.equal((await new Admin(server.url).topic("orders.placed")).end, 0);
});

test("every event of a key is found, also those of the same time and before a tombstone", async (t) => {
  const server = await startServer(t);
  const ts = Date.now() - 60_000;
  const add = (payload, key, at) => publish(server, "orders", payload, { query: `key=${key}&ts=${at}` });
  await add({ n: 0 }, "a", ts);
  await add("null", "a", ts + 1);
  for (let n = 2; n < 8; n++) await add({ n }, n % 2 ? "b" : "a", ts + 2);
  await add({ n: 8 }, "a", ts + 3);
  const page = await openDashboard(t, server, { hash: "#/topics/orders?offset=8" });
  await press(page, "Same key", "aside");
  await until(async () => (await page.$$("aside li")).length === 6);
  const found = await page.$$eval("aside li a", (links) => links.map((one) => one.innerText));
  assert.deepEqual(
    found,
    [8, 6, 4, 2, 1, 0].map((offset) => `offset ${offset}`),
  );
});

const hasClipboard = () => {
  globalThis.copied = [];
  const clipboard = { writeText: async (text) => void globalThis.copied.push(text) };
  Object.defineProperty(navigator, "clipboard", { value: clipboard });
};

test("an event is copied as JSON, for curl, for the command line and for a program", async (t) => {
  const server = await startServer(t);
  const key = `it's "1"; $HOME`;
  const query = new URLSearchParams({ key, tags: "web" }).toString();
  await publish(server, "orders", `{"text": "it's", "total": 12.50}`, {
    query,
    headers: { "x-region": "e'u", "content-type": "application/json" },
  });
  const page = await openDashboard(t, server, { hash: "#/topics/orders?offset=0", script: hasClipboard });
  const copied = async (name) => {
    await press(page, name, "aside");
    await sees(page, `Copied ${name}.`);
    return page.evaluate(() => copied.pop());
  };
  const sh = (text) => execFileSync("sh", ["-ec", text], { encoding: "utf8" });
  const raw = `{"text":"it's","total":12.50}`;
  assert.equal(await copied("payload"), raw);
  const event = await copied("event");
  assert.ok(event.endsWith(`,"payload":${raw}}`), event);
  assert.equal(JSON.parse(event).key, key);
  assert.equal(JSON.parse(sh(await copied("curl to read"))).events[0].id, JSON.parse(event).id);
  sh(await copied("curl to publish"));
  const { events: all } = JSON.parse(sh(`curl -s '${server.http}/replay?topic=orders'`));
  const parts = ({ key, tags, payload, headers }) => [key, tags, payload, headers["x-region"]];
  assert.deepEqual(parts(all[1]), parts(all[0]));
  // A shell gives the command these words.
  const words = (line) => sh(`promethean() { printf '%s\\n' "$@"; }\n${line}`).trimEnd().split("\n");
  assert.deepEqual(words(await copied("CLI to read")), [
    ..."sub orders --from 0 --limit 1 --url".split(" "),
    server.http,
  ]);
  assert.deepEqual(words(await copied("CLI to publish")), [
    "pub",
    `--url=${server.http}`,
    `--key=${key}`,
    "--tag=web",
    "--header=content-type: application/json",
    "--header=x-region: e'u",
    "--",
    "orders",
    raw,
  ]);
  const code = await copied("JavaScript");
  assert.ok(code.includes(`await client.publish("orders", ${raw}, `), code);
  const library = new URL("../../clients/typescript/src/index.js", import.meta.url).href;
  execFileSync(process.execPath, ["--input-type=module", "-e", code.replace("@promethean/client", library)]);
  const last = (await server.json("/replay?topic=orders")).events.at(-1);
  assert.deepEqual([last.offset, last.key, last.headers["x-region"]], [2, key, "e'u"]);
});

test("where there is no clipboard the text is shown to be copied by hand", async (t) => {
  const server = await startServer(t);
  await publish(server, "orders", { n: 1 });
  const script = () => Object.defineProperty(navigator, "clipboard", { value: undefined });
  const page = await openDashboard(t, server, { hash: "#/topics/orders?offset=0", script });
  await press(page, "payload", "aside");
  await until(() => page.$eval("dialog textarea", (area) => area.value === '{"n":1}').catch(() => false));
});
