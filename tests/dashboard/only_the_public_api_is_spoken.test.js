// Every test compares what its pages ask the server for with /openapi.json, in `openDashboard`. This one asks whether the
// comparison finds something, and looks at the WebSocket and at all views.

import assert from "node:assert/strict";
import { test } from "node:test";
import { descriptionOf, openDashboard, publish, sees, startServer, until, unknownPart, visit } from "./support.js";

const CONFIG = `
[collections.orders]
history = true

[[projectors]]
name = "orders.txn"
topic = "orders"
collections = ["orders"]
program = '{upsert: {collection: "orders", key: .key, set: .payload}}'
`;

test("requests that the description of the API does not have are found", async (t) => {
  const server = await startServer(t);
  const api = await descriptionOf(server);
  const unknown = (method, path) => unknownPart(api, method, `${server.http}${path}`);
  assert.equal(unknown("GET", "/topics?limit=5"), undefined);
  assert.equal(unknown("GET", "/topics/orders"), undefined);
  assert.equal(unknown("GET", "/dashboard/lib/dom.js"), undefined);
  assert.equal(unknown("GET", "/internal"), "GET /internal");
  assert.equal(unknown("POST", "/topics/orders"), "POST /topics/orders");
  assert.equal(unknown("GET", "/topics/orders/secrets"), "GET /topics/orders/secrets");
  assert.equal(unknown("GET", "/topics?secrets=1"), "GET /topics: secrets");
  const page = await openDashboard(t, server);
  await sees(page, "Connected");
  await page.evaluate(() => fetch("/topics?secrets=1").then(() => fetch("/internal")));
  assert.deepEqual(page.errors.splice(0), [
    "not in /openapi.json: GET /topics: secrets",
    "not in /openapi.json: GET /internal",
  ]);
});

test("the dashboard speaks the WebSocket of the clients, and every view the public routes", async (t) => {
  const server = await startServer(t, { config: CONFIG });
  await publish(server, "orders", { n: 1 }, { query: "key=a" });
  const page = await openDashboard(t, server);
  await sees(page, "Connected");
  const session = await page.createCDPSession();
  await session.send("Network.enable");
  const sockets = [];
  session.on("Network.webSocketCreated", ({ url }) => sockets.push(url));
  await page.reload();
  await sees(page, "Connected");
  assert.deepEqual(sockets, [`${server.url}/`]);
  for (const [hash, request] of [
    ["#/", "GET /ops"],
    ["#/topics", "GET /topics"],
    ["#/topics/orders", "GET /replay"],
    ["#/topics/orders?key=a", "GET /latest-by-key"],
    ["#/schemas/orders", "GET /schemas/orders"],
    ["#/groups", "GET /groups"],
    ["#/dead-letters", "GET /metrics"],
    ["#/schemas", "GET /schemas"],
    ["#/state", "GET /projectors"],
    ["#/state/orders", "GET /collections/orders/list"],
    ["#/state/orders?at=1", "GET /collections/orders/at"],
    ["#/state/orders?since=1", "GET /collections/orders/diff"],
    ["#/admin/connections", "GET /admin/connections"],
    ["#/admin/tokens", "GET /admin/tokens"],
    ["#/admin/config", "GET /admin/config"],
  ]) {
    page.requests.clear();
    await visit(page, hash);
    await until(() => page.requests.has(request), { what: `${hash}: ${request}` });
  }
  assert.deepEqual(sockets, [`${server.url}/`]);
});
