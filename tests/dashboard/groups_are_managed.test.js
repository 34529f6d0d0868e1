import assert from "node:assert/strict";
import { test } from "node:test";
import {
  Admin,
  Client,
  openDashboard,
  press,
  publish,
  publishMany,
  sees,
  startServer,
  until,
  visit,
  write,
} from "./support.js";

async function worldOf(t, { handler = () => {}, options = {}, count = 20 } = {}) {
  const server = await startServer(t);
  const client = new Client(server.url, { onError() {} });
  t.after(() => client.close({ timeoutMs: 500 }).catch(() => {}));
  const subscription = await client.subscribe("orders", "billing", handler, { from: "earliest", ...options });
  await publishMany(
    server,
    "orders",
    Array.from({ length: count }, (_, n) => ({ n })),
  );
  return { server, client, subscription, admin: new Admin(server.url) };
}

/** The table below a heading, as lists of texts, its titles first. */
const tableOf = (page, heading) =>
  page.$$eval(
    "h2, h3",
    (all, wanted) => {
      const { parentElement } = all.find((one) => one.innerText === wanted);
      const cells = (row) => [...row.children].map((cell) => cell.innerText);
      return [...parentElement.querySelectorAll("tr")].map(cells);
    },
    heading,
  );

test("a group shows its progress and why it does not deliver", async (t) => {
  const { server } = await worldOf(t, { handler: () => new Promise(() => {}), options: { maxInFlight: 4 } });
  const page = await openDashboard(t, server, { hash: "#/groups" });
  await sees(page, "billing");
  await press(page, "billing");
  await sees(page, "The members hold as many events as they may.");
  await sees(page, "20 events");
  await sees(page, "0 of 20");
});

test("pause and resume ask first and say what will happen", async (t) => {
  const { server, admin } = await worldOf(t);
  await until(async () => (await admin.lag("orders", "billing")).lag === 0);
  const page = await openDashboard(t, server, { hash: "#/groups/billing?topic=orders" });
  await press(page, "Pause…");
  await sees(page, "Nothing is delivered to 1 member until the group is resumed", "dialog");
  await press(page, "Cancel", "dialog");
  assert.equal((await admin.group("orders", "billing")).paused, false);
  await press(page, "Pause…");
  await press(page, "Pause", "dialog");
  await sees(page, "The group is paused");
  assert.equal((await admin.group("orders", "billing")).paused, true);
  await publish(server, "orders", 1);
  await sees(page, "1 event");
  await press(page, "Resume…");
  await sees(page, "beginning with the oldest of 1 unfinished event", "dialog");
  await press(page, "Resume", "dialog");
  await sees(page, "caught up");
});

test("a seek shows its dry run before anything moves", async (t) => {
  const { server, admin, subscription } = await worldOf(t);
  await until(async () => (await admin.lag("orders", "billing")).lag === 0);
  await subscription.close();
  const page = await openDashboard(t, server, { hash: "#/groups/billing?topic=orders" });
  await press(page, "Seek…");
  await sees(page, "20 offsets would be delivered again", "dialog");
  await write(page, "To", "offset", "dialog");
  await write(page, "Place", "15", "dialog");
  await sees(page, "From offset 20 to 15: 5 offsets would be delivered again", "dialog");
  assert.equal((await admin.lag("orders", "billing")).lag, 0);
  await write(page, "Place", "999", "dialog");
  await until(async () => !(await page.$eval("dialog", (dialog) => dialog.innerText)).includes("From offset 20 to 15"));
  await press(page, "Move the group", "dialog");
  await sees(page, "hoose a place that exists first", "dialog");
  await write(page, "Place", "15", "dialog");
  await sees(page, "5 offsets", "dialog");
  await press(page, "Move the group", "dialog");
  await sees(page, "Moved to offset 15.");
  assert.equal((await admin.lag("orders", "billing")).lag, 5);
});

test("a group is moved to a time and after an event", async (t) => {
  const server = await startServer(t);
  const published = [];
  for (let n = 0; n < 10; n++)
    published.push(await publish(server, "orders", { n }, { query: `ts=${1_700_000_000_000 + n * 60_000}` }));
  const client = new Client(server.url, { onError() {} });
  t.after(() => client.close({ timeoutMs: 500 }).catch(() => {}));
  const subscription = await client.subscribe("orders", "billing", () => {}, { from: "earliest" });
  const admin = new Admin(server.url);
  await until(async () => (await admin.lag("orders", "billing")).lag === 0);
  await subscription.close();
  const page = await openDashboard(t, server, { hash: "#/groups/billing?topic=orders" });
  const move = async (kind, place, to) => {
    await press(page, "Seek…");
    await write(page, "To", kind, "dialog");
    await write(page, "Place", place, "dialog");
    await sees(page, ` to ${to}: `, "dialog");
    await press(page, "Move the group", "dialog");
    await sees(page, `Moved to offset ${to}.`);
    await until(async () => (await page.$("dialog")) === null);
    assert.equal((await admin.lag("orders", "billing")).floor, to);
  };
  // A time in words, in the zone of the browser, goes to the first event that is not before it.
  await move("ts", "2023-11-14 22:16:30", 4);
  await move("ts", String(1_700_000_000_000 + 60_000), 1);
  await move("afterId", published[6].id, 7);
  await press(page, "Seek…");
  await write(page, "To", "ts", "dialog");
  await write(page, "Place", "yesterday", "dialog");
  await sees(page, "`yesterday` is not a time", "dialog");
  await write(page, "To", "afterId", "dialog");
  await write(page, "Place", "f47ac10b-58cc-4372-a567-0e02b2c3d479", "dialog");
  await sees(page, "f47ac10b", "dialog .warn");
  await press(page, "Move the group", "dialog");
  await sees(page, "hoose a place that exists first", "dialog");
  assert.equal((await admin.lag("orders", "billing")).floor, 7);
});

test("a group goes where its preview said, whatever came in between", async (t) => {
  const { server, admin, subscription } = await worldOf(t);
  await until(async () => (await admin.lag("orders", "billing")).lag === 0);
  await subscription.close();
  // The answer to the preview of offset 5 is late.
  const script = () => {
    const real = globalThis.fetch;
    globalThis.late = 0;
    globalThis.fetch = async (url, init) => {
      const isLate = String(init?.body).includes('"offset":5') && String(init?.body).includes("dryRun");
      const response = await real(url, init);
      if (!isLate) return response;
      await new Promise((resolve) => setTimeout(resolve, 500));
      setTimeout(() => globalThis.late++, 50);
      return response;
    };
  };
  const page = await openDashboard(t, server, { hash: "#/groups/billing?topic=orders", script });
  await press(page, "Seek…");
  await write(page, "To", "offset", "dialog");
  await write(page, "Place", "5", "dialog");
  await write(page, "Place", "18", "dialog");
  await sees(page, "From offset 20 to 18", "dialog");
  await until(() => page.evaluate(() => late > 0));
  await sees(page, "From offset 20 to 18", "dialog");
  // The end moves after the preview.
  await write(page, "To", "latest", "dialog");
  await sees(page, "From offset 20 to 20", "dialog");
  await publishMany(server, "orders", [1, 2, 3]);
  await press(page, "Move the group", "dialog");
  await sees(page, "Moved to offset 20.");
  assert.equal((await admin.lag("orders", "billing")).lag, 3);
});

test("a group with members is not deleted, and one without is", async (t) => {
  const { server, admin, subscription } = await worldOf(t);
  const page = await openDashboard(t, server, { hash: "#/groups/billing?topic=orders" });
  await press(page, "Delete…");
  await sees(page, "The group has 1 member.", "dialog");
  await write(page, "Type billing to go on", "billing", "dialog");
  await press(page, "Delete", "dialog");
  await sees(page, "members", "dialog .failure");
  await subscription.close();
  await until(async () => (await admin.group("orders", "billing")).topics[0].members === 0);
  await press(page, "Delete", "dialog");
  await sees(page, "billing was deleted.");
  assert.deepEqual(await admin.groups(), []);
});

test("blocked keys and partitions are shown", async (t) => {
  const server = await startServer(t);
  const client = new Client(server.url, { onError() {} });
  t.after(() => client.close({ timeoutMs: 500 }).catch(() => {}));
  const options = { from: "earliest", order: "key", maxInFlight: 10, memberId: "worker-7" };
  await client.subscribe("orders", "ordered", () => new Promise(() => {}), options);
  for (let n = 0; n < 6; n++) await publish(server, "orders", { n }, { query: "key=customer-1" });
  await client.subscribe("orders", "spread", () => {}, { from: "earliest", partitions: 8, memberId: "worker-a" });
  const page = await openDashboard(t, server, { hash: "#/groups/ordered?topic=orders" });
  await sees(page, "Blocked keys");
  await sees(page, "customer-1");
  await sees(page, "5 events");
  assert.deepEqual(await tableOf(page, "Blocked keys"), [
    ["Key", "Blocked by", "Member", "Waiting"],
    ["customer-1", "offset 0", "worker-7", "5 events"],
  ]);
  const other = await openDashboard(t, server, { hash: "#/groups/spread?topic=orders" });
  await sees(other, "Members and partitions (8)");
  await sees(other, "8: 0–7");
  const [heads, line] = await tableOf(other, "Members and partitions (8)");
  assert.deepEqual(heads, ["Member", "Partitions", "In flight", "Joined", "Alive by"]);
  assert.deepEqual(line.slice(0, 3), ["worker-a", "8: 0–7", "0 events"]);
});

test("the members of a group are shown with what they have in flight", async (t) => {
  const server = await startServer(t);
  const hold = () => new Promise(() => {});
  for (const [memberId, maxInFlight] of [
    ["worker-a", 3],
    ["worker-b", 5],
  ]) {
    const client = new Client(server.url, { onError() {} });
    t.after(() => client.close({ timeoutMs: 100 }).catch(() => {}));
    await client.subscribe("orders", "billing", hold, { from: "earliest", memberId, maxInFlight });
  }
  await publishMany(
    server,
    "orders",
    Array.from({ length: 20 }, (_, n) => ({ n })),
  );
  const page = await openDashboard(t, server, { hash: "#/groups/billing?topic=orders" });
  await sees(page, "Members (2)");
  const shown = async () => (await tableOf(page, "Members (2)")).map((cells) => cells.join(": ")).sort();
  await until(async () => (await shown()).join() === "Member: In flight,worker-a: 3 events,worker-b: 5 events");
  // A server without names for its members numbers them.
  const unnamed = new Client(server.url, { onError() {} });
  await unnamed.subscribe("orders", "billing", hold, { maxInFlight: 1 });
  await sees(page, "Members (3)");
  assert.equal((await tableOf(page, "Members (3)")).length, 4);
  await unnamed.close({ timeoutMs: 100 }).catch(() => {});
  await sees(page, "Members (2)");
});

test("a group on a pattern has no link to a topic of that name", async (t) => {
  const server = await startServer(t);
  const client = new Client(server.url, { onError() {} });
  t.after(() => client.close({ timeoutMs: 500 }).catch(() => {}));
  await client.subscribe("orders.*", "all", () => {}, { from: "earliest" });
  await publish(server, "orders.placed", 1);
  const page = await openDashboard(t, server, { hash: "#/groups/all?topic=orders.*" });
  await sees(page, "orders.placed");
  const links = await page.$$eval("#main a", (all) => all.map((one) => decodeURIComponent(one.hash)));
  assert.deepEqual(
    links.filter((link) => link.startsWith("#/topics/orders.*")),
    [],
  );
});

test("the group of a projector that waits for a person says so", async (t) => {
  const config = `
[collections.orders]

[[projectors]]
name = "orders.txn"
topic = "orders"
collections = ["orders"]
on_failure = "halt"
retries = 0
program = 'if .payload.bad then error("a bad order") else empty end'

[[projectors]]
name = "orders.later"
topic = "orders"
on_failure = "halt"
retries = 100
program = 'error("not yet")'
`;
  const server = await startServer(t, { config });
  await publish(server, "orders", { bad: true }, { query: "key=a" });
  const page = await openDashboard(t, server, { hash: "#/groups/orders.txn?topic=orders" });
  await sees(page, "The projector of the group waits for a person.", ".card");
  await visit(page, "#/groups/orders.later?topic=orders");
  await sees(page, "tries an event, or the store, again.", ".card");
});

test("a reason that the page does not know is shown as it is", async (t) => {
  const server = await startServer(t);
  await publish(server, "orders", 1);
  const part = { topic: "orders", floor: 0, end: 1, lag: 1, in_flight: 0, members: 1, expired: 0, reason: "asleep" };
  const options = { maxAttempts: 5, from: "earliest" };
  const group = { group: "g", topic: "orders", paused: false, created: 1, options, topics: [part] };
  const answers = { "/groups/g": group, "/lag": { lag: 1 } };
  const page = await openDashboard(t, server, { hash: "#/groups/g?topic=orders", answers });
  await sees(page, "asleep", ".card");
});
