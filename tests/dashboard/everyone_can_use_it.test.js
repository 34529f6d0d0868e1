import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { test } from "node:test";
import { Client, openDashboard, press, publish, sees, startServer, textOf, until, visit, write } from "./support.js";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const CONFIG = `
[audit]
topic = "audit.events"
[collections.orders]
history = true
fields = { status = "string" }

[[projectors]]
name = "orders.txn"
topic = "orders"
collections = ["orders"]
program = '{upsert: {collection: "orders", key: (.key // "none"), set: .payload}}'
`;
const VIEWS = {
  "#/": "Healthy",
  "#/topics": "orders",
  "#/topics/orders?offset=1": "Offset 1",
  "#/topics/orders/publish": "Payload",
  "#/topics/orders/groups": "billing",
  "#/topics/orders/settings": "Retention",
  "#/groups": "billing",
  "#/groups/billing?topic=orders": "Floor",
  "#/dead-letters": "open letter",
  "#/dead-letters?topic=orders&group=billing&offset=0": "Letter at offset 0",
  "#/schemas": "with a schema",
  "#/schemas/orders": "Version 1",
  "#/state": "orders.txn",
  "#/state/orders": "Now:",
  "#/state/orders?since=1": "added",
  "#/state/orders/none": "History",
  "#/admin/connections": "open connection",
  "#/admin/tokens": "listed tokens",
  "#/admin/config": "settings in force",
  "#/admin/audit": "setTopic",
  "#/admin/metrics": "events_published_total",
};
/** Where each question is, the buttons that lead to it, and what it says. */
const DIALOGS = [
  ["#/topics", ["New topic"], "Name"],
  ["#/topics/orders/settings", ["Delete…"], "to go on"],
  ["#/groups/billing?topic=orders", ["Pause…"], "Nothing is delivered"],
  ["#/groups/billing?topic=orders", ["Seek…"], "From offset"],
  ["#/groups/billing?topic=orders", ["Delete…"], "to go on"],
  ["#/dead-letters?topic=orders&group=billing", ["Redrive all…"], "all 3 letters"],
  ["#/dead-letters?topic=orders&group=billing", ["Redrive by filter…"], "Fill a field"],
  ["#/dead-letters?topic=orders&group=billing", ["Drop all…"], "all 3 letters"],
  ["#/dead-letters?topic=orders&group=billing", ["Drop by filter…"], "Fill a field"],
  [
    "#/dead-letters?topic=orders&group=billing&offset=0",
    ["Mend and redrive…", "Publish the mended event…"],
    "A new event with this payload",
  ],
  ["#/schemas/orders", ["Register…"], "It is equal to the latest version"],
  ["#/state", ["Rebuild…"], "The state is made again"],
];

async function worldOf(t) {
  const server = await startServer(t, { config: CONFIG });
  await fetch(`${server.http}/topics/orders`, { method: "PUT", body: "{}" });
  await fetch(`${server.http}/schemas/orders`, { method: "POST", body: '{"type":"object"}' });
  const client = new Client(server.url, { onError() {} });
  t.after(() => client.close({ timeoutMs: 500 }).catch(() => {}));
  const fail = () => Promise.reject(new Error("no price"));
  await client.subscribe("orders", "billing", fail, { from: "earliest", maxAttempts: 1 });
  for (let n = 0; n < 3; n++) await publish(server, "orders", { status: `s${n}` }, { headers: { "x-region": "eu" } });
  await until(async () => (await server.json("/dlq?topic=orders&group=billing")).letters.length === 3);
  return server;
}

/** The page with axe. */
async function openWithAxe(t, server, options) {
  const page = await openDashboard(t, server, options);
  // The policy of the page forbids scripts of others; a test may add one.
  await page.setBypassCSP(true);
  await page.reload();
  await page.evaluate(AXE);
  return page;
}

/** Asserts that axe finds nothing serious in what the page shows. */
async function isUsable(page, where) {
  const { violations } = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  const grave = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
  const told = ({ html, failureSummary }) => `${html} ${failureSummary}`;
  const found = grave.map(({ id, nodes }) => `${id}: ${nodes.map(told).slice(0, 3).join(" | ")}`);
  assert.deepEqual(found, [], where);
}

for (const isDark of [false, true]) {
  for (const isWide of [true, false]) {
    const how = `in ${isDark ? "dark" : "light"} on a ${isWide ? "desktop" : "phone"}`;
    test(`no view has a serious finding of axe ${how}`, { timeout: 180_000 }, async (t) => {
      const page = await openWithAxe(t, await worldOf(t), { isDark, isWide });
      for (const [hash, text] of Object.entries(VIEWS)) {
        await visit(page, hash);
        await sees(page, text);
        await isUsable(page, hash);
      }
    });

    test(`no dialog has a serious finding of axe ${how}`, { timeout: 180_000 }, async (t) => {
      const page = await openWithAxe(t, await worldOf(t), { isDark, isWide });
      for (const [hash, buttons, text] of DIALOGS) {
        await visit(page, hash);
        for (const button of buttons) await press(page, button, "#main");
        await sees(page, text, "dialog");
        await isUsable(page, `${hash} ${buttons.at(-1)}`);
        const fits = await page.$eval("dialog", (dialog) => {
          const { left, right, top, bottom } = dialog.getBoundingClientRect();
          return left >= 0 && right <= innerWidth && top >= 0 && bottom <= innerHeight;
        });
        assert.ok(fits, `${hash} ${buttons.at(-1)} does not fit the page`);
        await press(page, "Cancel", "dialog");
        await until(async () => (await page.$("dialog")) === null);
        await visit(page, "#/");
        await sees(page, "Healthy");
      }
    });

    test(`the login has no serious finding of axe ${how}`, async (t) => {
      const server = await startServer(t, { args: ["--token", "prom_admin_token_of_the_dashboard_tests"] });
      const page = await openWithAxe(t, server, { isDark, isWide });
      await sees(page, "Log in");
      await isUsable(page, "login");
      await write(page, "Token", "prom_wrong");
      await press(page, "Log in");
      await sees(page, "The server refused the token.");
      await isUsable(page, "refused login");
      const width = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(isWide || width <= 390, `${width} px wide`);
    });
  }
}

test("every view fits a phone", async (t) => {
  const server = await worldOf(t);
  const page = await openDashboard(t, server, { isWide: false });
  for (const [hash, text] of Object.entries(VIEWS)) {
    await visit(page, hash);
    await sees(page, text);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= 390, `${hash} is ${width} px wide`);
    // The list of views is wider than a phone: the present one is scrolled into sight.
    const { left, right } = await page.$eval("#views a[aria-current]", (item) => item.getBoundingClientRect().toJSON());
    assert.ok(left >= 0 && right <= 390, `${hash}: the view in the list is at ${left} to ${right} px`);
  }
  assert.match(await textOf(page), /Times: UTC/);
});

test("a table is used with the keyboard alone", async (t) => {
  const server = await startServer(t);
  for (let n = 0; n < 50; n++) await publish(server, "orders", { n });
  const page = await openDashboard(t, server, { hash: "#/topics/orders" });
  await sees(page, "50 events shown");
  await page.focus("p-rows .line");
  for (const key of ["ArrowDown", "ArrowDown", "PageDown", "ArrowUp", "Enter"]) await page.keyboard.press(key);
  await sees(page, "Offset 38", "aside");
  await page.keyboard.press("End");
  await page.keyboard.press("Enter");
  await sees(page, "Offset 0", "aside");
});

test("light and dark follow the system until the user chooses", async (t) => {
  const server = await startServer(t);
  const page = await openDashboard(t, server, { isDark: true });
  await sees(page, "Connected");
  const scheme = () => page.evaluate(() => getComputedStyle(document.documentElement).colorScheme);
  assert.equal(await scheme(), "dark");
  await press(page, "Light / dark");
  assert.equal(await scheme(), "light");
  await page.reload();
  await sees(page, "Connected");
  assert.equal(await scheme(), "light");
});
