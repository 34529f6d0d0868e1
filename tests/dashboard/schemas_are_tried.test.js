import assert from "node:assert/strict";
import { test } from "node:test";
import { Admin, openDashboard, press, publish, sees, startServer, until, write } from "./support.js";

const first = {
  type: "object",
  properties: { order: { type: "integer" } },
  required: ["order"],
  additionalProperties: false,
};
const FIELD = "JSON Schema, draft 2020-12 or 7";

test("topics without a schema are listed too", async (t) => {
  const server = await startServer(t);
  await new Admin(server.url).registerSchema("orders", first);
  await publish(server, "plain", 1);
  const page = await openDashboard(t, server, { hash: "#/schemas" });
  await sees(page, "1 topic with a schema, 1 without");
  await sees(page, "everything is accepted");
  await press(page, "orders");
  await sees(page, "Version 1");
});

test("a candidate is checked before it is registered", async (t) => {
  const server = await startServer(t);
  const admin = new Admin(server.url);
  await admin.registerSchema("orders", first);
  const page = await openDashboard(t, server, { hash: "#/schemas/orders" });
  const closed = { ...first, properties: { ...first.properties, by: { type: "string" } }, required: ["order", "by"] };
  await write(page, FIELD, JSON.stringify(closed));
  await press(page, "Check");
  await sees(page, "It is incompatible: it would be refused.");
  await sees(page, "required added");
  await press(page, "Register…");
  await sees(page, "/required");
  assert.equal((await admin.schemas("orders")).versions.length, 1);
  await write(page, FIELD, "{");
  await press(page, "Check");
  await sees(page, "Not JSON yet");
  const open = { ...closed, required: ["order"] };
  await write(page, FIELD, JSON.stringify(open));
  await press(page, "Check");
  await sees(page, "It is compatible: it can be registered.");
  await press(page, "Register…");
  await sees(page, "Register version 2 of orders?", "dialog");
  await press(page, "Register", "dialog");
  await sees(page, "2 versions");
  await sees(page, "Differences from version 1");
  await sees(page, "`by` is new, optional: string.");
  await until(async () => (await admin.schemas("orders")).versions.length === 2);
});

test("a candidate of which nobody can say whether it is compatible is refused", async (t) => {
  const server = await startServer(t);
  const admin = new Admin(server.url);
  await admin.registerSchema("codes", { type: "string", pattern: "^aa*$" });
  const page = await openDashboard(t, server, { hash: "#/schemas/codes" });
  await write(page, FIELD, JSON.stringify({ type: "string", pattern: "^a+$" }));
  await press(page, "Check");
  await sees(page, "It cannot be decided whether it is compatible: it would be refused.");
  await sees(page, "pattern changed");
  await press(page, "Register…");
  await sees(page, "pattern", ".failure");
  assert.equal((await admin.schemas("codes")).versions.length, 1);
});
