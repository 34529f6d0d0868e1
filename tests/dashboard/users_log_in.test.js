import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, openDashboard, press, publish, sees, startServer, textOf, until, visit, write } from "./support.js";
import { createHash } from "node:crypto";

const hash = (token) => createHash("sha256").update(token).digest("hex");
const entry = (name, token, scopes, more = "") =>
  `[[auth.tokens]]\nname = "${name}"\nsha256 = "${hash(token)}"\nscopes = ${JSON.stringify(scopes)}\n${more}\n`;
const ADMIN = "prom_admin_token_of_the_dashboard_tests";
const READER = "prom_reader_token_of_the_dashboard_tests";

test("a server without tokens needs no login", async (t) => {
  const page = await openDashboard(t, await startServer(t));
  await sees(page, "Overview");
  await sees(page, "Connected");
  assert.ok(!(await textOf(page)).includes("Log out"));
});

test("a token that is not kept is gone when the page is loaded again", async (t) => {
  const server = await startServer(t, { args: ["--token", ADMIN] });
  const page = await openDashboard(t, server);
  await write(page, "Token", "prom_wrong");
  await press(page, "Log in");
  await sees(page, "The server refused the token.");
  await write(page, "Token", ADMIN);
  await press(page, "Log in");
  await sees(page, "Connected");
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);
  assert.ok(!page.url().includes(ADMIN));
  await page.reload();
  await sees(page, "Log in");
});

test("a token that is kept survives loading, and ends with the session", async (t) => {
  const server = await startServer(t, { args: ["--token", ADMIN] });
  const page = await openDashboard(t, server, { hash: "#/topics" });
  await write(page, "Token", ADMIN);
  await write(page, "Keep it until this tab is closed", true);
  await press(page, "Log in");
  await sees(page, "New topic");
  await page.reload();
  await sees(page, "New topic");
  await press(page, "Log out");
  await sees(page, "Log in");
  assert.equal(await page.evaluate(() => sessionStorage.length + localStorage.length), 0);
});

test("a revoked token leads back to the login", async (t) => {
  const config = `[auth]\ncheck_every = "200ms"\n`;
  const server = await startServer(t, { config: config + entry("ops", ADMIN, ["admin"]) });
  const page = await openDashboard(t, server, { token: ADMIN });
  await sees(page, "Connected");
  server.configure(config + entry("other", READER, ["admin"]));
  server.signal("SIGHUP");
  await sees(page, "it expired or was revoked");
  await write(page, "Token", READER);
  await press(page, "Log in");
  await sees(page, "Connected");
});

test("an expired token leads back to the login", async (t) => {
  const expires = new Date(Date.now() + 4_000).toISOString();
  const server = await startServer(t, { config: entry("ops", ADMIN, ["admin"], `expires = ${expires}`) });
  const page = await openDashboard(t, server, { token: ADMIN });
  await sees(page, "Overview");
  await sees(page, "it expired or was revoked");
});

test("a lost connection is shown, and the view recovers", async (t) => {
  const server = await startServer(t, { isDurable: true });
  await publish(server, "orders", 1);
  const page = await openDashboard(t, server, { hash: "#/topics" });
  await sees(page, "orders");
  await sees(page, "Connected");
  await server.kill();
  await sees(page, "The server does not answer.");
  await server.start();
  await sees(page, "Connected");
  await publish(server, "later.orders", 1);
  await visit(page, "#/topics?find=later");
  await sees(page, "later.orders");
  assert.ok(!(await textOf(page)).includes("does not answer"));
});

test("a token that reads one topic is offered no more", async (t) => {
  const config = entry("ops", ADMIN, ["admin"]) + entry("reader", READER, ["subscribe:orders"]);
  const server = await startServer(t, { config });
  await publish(server, "orders", { n: 1 }, { token: ADMIN });
  await publish(server, "secrets", { n: 2 }, { token: ADMIN });
  const page = await openDashboard(t, server, { hash: "#/topics", token: READER });
  await sees(page, "orders");
  assert.ok(!(await textOf(page)).includes("secrets"));
  assert.ok(!(await textOf(page)).includes("New topic"));
  await visit(page, "#/topics/orders");
  await sees(page, '{"n":1}');
  // What the token may not do is not there.
  assert.deepEqual(await page.$$eval(".tabs a", (tabs) => tabs.map((tab) => tab.innerText)), [
    "Messages",
    "Groups",
    "Settings",
    "Schema",
  ]);
  assert.ok(!(await textOf(page, "#nav")).includes("Admin"));
  await visit(page, "#/topics/secrets");
  await sees(page, "token");
  await until(async () => !(await textOf(page, "#main")).includes('{"n":2}'));
});

test("what the scopes of a token do not allow is not offered", async (t) => {
  const scopes = ["subscribe:orders.**", "subscribe:orders", "publish:orders", "!subscribe:orders.audited"];
  const expires = new Date(Date.now() + 5_400_000).toISOString();
  const config = entry("ops", ADMIN, ["admin"]) + entry("reader", READER, scopes, `expires = ${expires}`);
  const server = await startServer(t, { config });
  await publish(server, "orders", { n: 1 }, { token: ADMIN });
  await publish(server, "orders.audited", { n: 2 }, { token: ADMIN });
  const page = await openDashboard(t, server, { hash: "#/topics/orders", token: READER });
  await sees(page, "Token reader, ends in 1 h");
  assert.ok(!(await textOf(page, "#nav")).includes("Admin"));
  const tabs = () => page.$$eval(".tabs a", (all) => all.map((tab) => tab.innerText));
  assert.deepEqual(await tabs(), ["Messages", "Publish", "Groups", "Settings", "Schema"]);
  await visit(page, "#/topics/orders/settings");
  await sees(page, "it lacks the scope manage:orders");
  assert.equal((await page.$$("#main button")).length, 0);
  await visit(page, "#/topics/orders.audited");
  await until(async () => (await tabs()).join() === "Groups,Settings,Schema");
  for (const name of ["constructor", "toString"]) {
    await visit(page, `#/${name}`);
    await sees(page, "Only an admin sees the store.");
    await visit(page, "#/topics");
    await sees(page, "1 topic,");
  }
  await visit(page, "#/admin/constructor");
  await sees(page, "Only a token with the scope admin sees this.");
  await visit(page, "#/admin");
  await sees(page, "Only a token with the scope admin sees this.");
  await visit(page, "#/");
  await sees(page, "Only an admin sees the store.");
});

test("a scope for one group does not offer to read the topic", async (t) => {
  const config = entry("ops", ADMIN, ["admin"]) + entry("worker", READER, ["subscribe:orders@billing"]);
  const server = await startServer(t, { config });
  await publish(server, "orders", { n: 1 }, { token: ADMIN });
  const page = await openDashboard(t, server, { hash: "#/topics/orders", token: READER });
  await until(
    async () =>
      (await page.$$eval(".tabs a", (all) => all.map((tab) => tab.innerText))).join() === "Groups,Settings,Schema",
  );
  assert.ok(!(await textOf(page)).includes('{"n":1}'));
});

test("what a token may not do is refused if it is tried, and the refusal is shown", async (t) => {
  const config =
    entry("ops", ADMIN, ["admin"]) + entry("reader", READER, ["subscribe:orders", "subscribe:orders@billing"]);
  const server = await startServer(t, { config });
  const client = new Client(server.url, { token: ADMIN, onError() {} });
  t.after(() => client.close({ timeoutMs: 500 }).catch(() => {}));
  const fail = () => Promise.reject(new Error("no price"));
  await client.subscribe("orders", "billing", fail, { from: "earliest", maxAttempts: 1 });
  await publish(server, "orders", { n: 1 }, { token: ADMIN });
  const letters = async () =>
    (
      await server.json("/dlq?topic=orders&group=billing", { headers: { authorization: `Bearer ${ADMIN}` } })
    ).letters.filter((one) => !one.redriving).length;
  await until(async () => (await letters()) === 1);
  const hash = "#/dead-letters?topic=orders&group=billing&offset=0";
  const page = await openDashboard(t, server, { hash, token: READER });
  await sees(page, "Letter at offset 0", "aside");
  await sees(page, "Your token may look at the letters, not change them.");
  assert.equal((await page.$$('p-rows input[type="checkbox"]')).length, 0);
  const offered = await page.$$eval("#main button", (all) => all.map((one) => one.innerText));
  assert.ok(!offered.some((text) => /Redrive|Drop|Mend/.test(text)), offered.join());
  // A user who calls what is not offered is refused by the server.
  await page.$eval("workbench-view", (view) => void view.redrive([0]));
  await sees(page, "This delivers 1 letter again.", "dialog");
  await press(page, "Redrive", "dialog");
  await sees(page, "manage:orders", "dialog .failure");
  assert.equal(await letters(), 1);
  await press(page, "Cancel", "dialog");
  const status = await page.evaluate(async () => {
    const { session } = await import("/dashboard/lib/session.js");
    const query = { topic: "orders", group: "billing" };
    const send = session.http.json(["dlq", "redrive"], { method: "POST", query, json: { all: true } });
    return send.then(
      () => "done",
      (error) => error.code,
    );
  });
  assert.equal(status, "forbidden");
  assert.equal(await letters(), 1);
});
