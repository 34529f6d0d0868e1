import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { Client, openDashboard, publish, rowsOf, sees, startServer, textOf, until, visit, write } from "./support.js";

test("metrics are explained", async (t) => {
  const server = await startServer(t);
  await publish(server, "orders", 1);
  const page = await openDashboard(t, server, { hash: "#/admin/metrics" });
  await write(page, "Find a metric", "events_published_total");
  await sees(page, "Events added to the topic.");
  const [[, kind, series, now]] = await rowsOf(page, "Metrics");
  assert.deepEqual([kind, series, now], ["counter", "1", "1"]);
});

test("audit records are shown, newest first", async (t) => {
  const server = await startServer(t, { config: '[audit]\ntopic = "audit.events"\n' });
  await fetch(`${server.http}/topics/orders`, { method: "PUT", body: "{}" });
  const page = await openDashboard(t, server, { hash: "#/admin/audit" });
  await sees(page, "setTopic");
  await fetch(`${server.http}/topics/orders`, { method: "DELETE" });
  await sees(page, "deleteTopic");
  assert.match(await textOf(page), /audit\.events/);
});

const OPS = "prom_ops_token_of_the_dashboard_tests";
const BILLING = "prom_billing_token_of_the_dashboard_tests";
const sha256 = (token) => createHash("sha256").update(token).digest("hex");
const CONFIG = `
[[auth.tokens]]
name = "ops"
sha256 = "${sha256(OPS)}"
scopes = ["admin"]

[[auth.tokens]]
name = "billing"
sha256 = "${sha256(BILLING)}"
scopes = ["publish:orders", "subscribe:orders@*"]
expires = ${new Date(Date.now() + 5_400_000).toISOString()}
limits = { max_connections = 5 }
`;

test("connections, tokens and settings are shown, and no secret", async (t) => {
  const server = await startServer(t, { config: CONFIG });
  const client = new Client(server.url, { token: BILLING, onError() {} });
  t.after(() => client.close({ timeoutMs: 500 }).catch(() => {}));
  for (const group of ["a", "b", "c"]) await client.subscribe("orders", group, () => {});
  const page = await openDashboard(t, server, { hash: "#/admin/connections", token: OPS });
  await until(async () => {
    const rows = (await rowsOf(page, "Connections")).map((cells) => cells.slice(0, 4).join());
    // The page has a connection of its own.
    return rows.includes("billing,127.0.0.1,websocket,3") && rows.includes("ops,127.0.0.1,websocket,0");
  });
  assert.match(await textOf(page), /\d open connections/);
  await visit(page, "#/admin/tokens");
  await sees(page, "2 listed tokens");
  assert.deepEqual(
    (await rowsOf(page, "Tokens")).sort(([a], [b]) => a.localeCompare(b)),
    [
      ["billing", "publish:orders subscribe:orders@*", "in 1 h", "max connections 5"],
      ["ops", "admin", "never", "none"],
    ],
  );
  const html = await page.content();
  for (const secret of [OPS, BILLING]) assert.ok(!html.includes(secret) && !html.includes(sha256(secret)));
  await visit(page, "#/admin/config");
  await sees(page, "settings in force, without secrets");
  await write(page, "Find a setting", "auth.tokens");
  await until(async () => (await rowsOf(page, "Settings")).length === 1);
  assert.deepEqual(await rowsOf(page, "Settings"), [["auth.tokens", "2 tokens"]]);
});
