import assert from "node:assert/strict";
import { test } from "node:test";
import { EventClient, PromClient } from "../src/index.js";
import { startServer } from "./support/server.js";
import { until } from "./support/wait.js";

test("EventClient: publish, subscribe, ack, nack, modAck, unsubscribe", async (t) => {
  const server = await startServer(t, { args: ["--token", "devtoken"] });
  const client = new EventClient(server.url, "devtoken");
  t.after(() => client.close());
  const got = [];
  // As with the first client, calls may come before the connection is open.
  const subscribed = client.subscribe(
    "heartbeat.received",
    "ops",
    async (event, ctx) => {
      got.push([event.payload.n, ctx.attempt, ctx.ack_deadline_ms]);
      client.modAck("heartbeat.received", "ops", event.id, 5_000);
      if (event.payload.n === 3 && ctx.attempt === 1) throw new Error("once");
    },
    { from: "earliest", ackTimeoutMs: 10_000 },
  );
  assert.equal((await subscribed).op, "OK");
  for (let n = 0; n < 10; n++) {
    const ok = await client.publish("heartbeat.received", { n }, { key: "k" });
    assert.equal(ok.op, "OK");
    assert.match(ok.id, /-7/);
  }
  await until(() => got.length === 11);
  assert.deepEqual(
    got.filter(([n]) => n === 3),
    [
      [3, 1, 10_000],
      [3, 2, 10_000],
    ],
  );
  const headers = { authorization: "Bearer devtoken" };
  await until(async () => (await server.json("/lag?topic=heartbeat.received&group=ops", { headers })).lag === 0);
  assert.equal((await client.unsubscribe("heartbeat.received", "ops")).op, "OK");
});

test("EventClient: refusals have code and msg", async (t) => {
  const server = await startServer(t);
  const client = new EventClient(server.url);
  t.after(() => client.close());
  await assert.rejects(client.publish("no spaces", 1), (error) => error.code === "bad_name" && error.msg.length > 0);
  await client.subscribe("t", "g", () => {});
  await assert.rejects(
    client.subscribe("t", "g", () => {}),
    { code: "already_subscribed" },
  );
  await assert.rejects(client.unsubscribe("t", "other"), { code: "not_subscribed" });
});

test("PromClient: connect, publish, subscribe, close", async (t) => {
  const server = await startServer(t, { args: ["--token", "devtoken"] });
  const client = new PromClient(server.url, "devtoken");
  await client.connect();
  const got = [];
  await client.subscribe("process.state", "page", (event) => void got.push(event.payload), { from: "earliest" });
  await client.publish("process.state", { status: "alive" });
  await until(() => got.length === 1);
  await client.unsubscribe("process.state", "page");
  await client.close();
  await assert.rejects(client.publish("process.state", 1), { code: "client_closed" });
  await assert.rejects(new PromClient(server.url, "wrong").connect(), { code: "bad_token" });
});
