import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Admin, Client, Reader, State } from "../src/index.js";
import { clientOf } from "./support/client.js";
import { freePort, startServer } from "./support/server.js";
import { sleep, until } from "./support/wait.js";

const EXAMPLE = readFileSync(new URL("../../../examples/processes.toml", import.meta.url), "utf8").replace(
  /^schemas = .*$/m,
  "",
);
const HEARTBEAT = { pid: 7, name: "stt", host: "local", cpu_pct: 1, mem_mb: 2 };

test("state: documents, lists, ETags, and earlier times", async (t) => {
  const server = await startServer(t, { config: EXAMPLE });
  const client = clientOf(t, server);
  const state = new State(client);
  assert.equal(await state.document("local:stt:7"), undefined);
  await client.publish("heartbeat.received", HEARTBEAT);
  const document = await until(() => state.document("local:stt:7"));
  assert.equal(document.status, "alive");
  const first = await state.documentIfChanged("local:stt:7", undefined, { collection: "processes" });
  assert.equal(first.isChanged, true);
  assert.deepEqual(await state.documentIfChanged("local:stt:7", first.etag, { collection: "processes" }), {
    isChanged: false,
  });
  for (let pid = 10; pid < 15; pid++) await client.publish("heartbeat.received", { ...HEARTBEAT, pid });
  await until(() => state.document("local:stt:14"));
  const pids = [];
  for await (const { pid } of state.list({ status: "alive" }, { limit: 2 })) pids.push(pid);
  assert.deepEqual(
    pids.sort((a, b) => a - b),
    [7, 10, 11, 12, 13, 14],
  );
  assert.equal((await state.ofKey("process.state", "local:stt:7")).state.pid, 7);
  assert.equal(await state.ofKey("process.state", "local:stt:7", { at: document._ts - 1_000 }), undefined);
  assert.equal(await state.ofKey("process.state", "none"), undefined);
  const at = [];
  for await (const one of state.collectionAt("processes", new Date(), { limit: 2 })) at.push(one.document.pid);
  assert.equal(at.length, 6);
  const differences = [];
  for await (const one of state.collectionDiff("processes", 0)) differences.push(one);
  assert.equal(differences.length, 6);
  await assert.rejects(state.document("x", { collection: "none" }), { code: "unknown_collection" });
});

test("reading: replay in pages, export, latest by key", async (t) => {
  const server = await startServer(t);
  const client = clientOf(t, server);
  const reader = new Reader(client);
  await Promise.all(Array.from({ length: 2_500 }, (_, n) => client.publish("t", n, { key: `k${n % 5}` })));
  const all = async (iterator) => {
    const list = [];
    for await (const event of iterator) list.push(event.payload);
    return list;
  };
  const numbers = Array.from({ length: 2_500 }, (_, n) => n);
  assert.deepEqual(await all(reader.replay("t")), numbers);
  assert.deepEqual(await all(reader.replay("t", { from: "offset", offset: 2_490, limit: 3 })), numbers.slice(2_490));
  assert.deepEqual(await all(reader.export("t")), numbers);
  assert.deepEqual(await all(reader.export("t", { fromOffset: 2_400 })), numbers.slice(2_400));
  assert.deepEqual(await all(reader.replay("none")), []);
  const latest = await reader.latestByKey("t", ["k1", "none"]);
  assert.equal(latest.k1.payload, 2_496);
  assert.equal(latest.none, null);
  assert.equal(await reader.end("t"), 2_500);
});

test("following a topic survives a restart of the server without a gap or a repetition", async (t) => {
  const server = await startServer(t, { isDurable: true });
  const client = clientOf(t, server);
  await client.publish("t", "old");
  const got = [];
  const abort = new AbortController();
  const following = (async () => {
    for await (const event of new Reader(client).follow("t", { signal: abort.signal })) got.push(event.payload);
  })();
  await sleep(100);
  for (let n = 0; n < 3; n++) {
    await client.publish("t", `${n}a`);
    await server.kill();
    await server.start();
    await client.publish("t", `${n}b`);
  }
  await until(() => got.length >= 6);
  abort.abort();
  await following;
  assert.deepEqual(got, ["0a", "0b", "1a", "1b", "2a", "2b"]);
});

test("administration: topics, schemas, groups", async (t) => {
  const client = clientOf(t, await startServer(t));
  const admin = new Admin(client);
  await admin.setTopic("a", { max_attempts: 2 });
  await client.publish("b", 1);
  const names = [];
  for await (const { topic } of admin.topics({ limit: 1 })) names.push(topic);
  assert.deepEqual(names, ["a", "b"]);
  assert.equal((await admin.topic("a")).settings.max_attempts, 2);
  await admin.registerSchema("b", { type: "number" });
  assert.equal((await admin.schemas("b")).versions.length, 1);
  assert.deepEqual((await admin.schema("b")).schema, { type: "number" });
  await assert.rejects(admin.validate("b", "text"), { code: "schema_rejected" });
  const subscription = await client.subscribe("b", "g", () => {}, { from: "earliest" });
  await until(async () => (await admin.lag("b", "g")).lag === 0);
  assert.equal((await admin.groups("b"))[0].group, "g");
  assert.equal((await admin.seek("b", "g", { from: "earliest", dryRun: true })).replayed, 1);
  await admin.pause("b", "g");
  assert.equal((await admin.group("b", "g")).paused, true);
  await admin.resume("b", "g");
  await assert.rejects(admin.deleteGroup("b", "g"), { code: "group_busy" });
  await subscription.close();
  await admin.deleteGroup("b", "g");
  await admin.deleteTopic("b");
  await assert.rejects(admin.topic("b"), { code: "unknown_topic" });
});

test("administration: schemas are compared, tried and deleted", async (t) => {
  const client = clientOf(t, await startServer(t));
  const admin = new Admin(client);
  for (const topic of ["used", "unused"]) await admin.registerSchema(topic, { type: "object" });
  await client.publish("used", { n: 1 });
  const topics = [];
  for await (const { topic } of admin.schemaTopics({ limit: 1 })) topics.push(topic);
  assert.deepEqual(topics, ["unused", "used"]);
  assert.equal((await admin.checkSchema("used", { type: "object" })).verdict, "compatible");
  const { verdict, compared } = await admin.checkSchema("used", { type: "object", required: ["b"] });
  assert.deepEqual([verdict, compared[0].findings[0].rule], ["incompatible", "required_added"]);
  const { events, same, failed } = await admin.tryMigration("used");
  assert.deepEqual([events, same, failed], [1, 1, 0]);
  await assert.rejects(admin.deleteSchema("used", 1), { code: "schema_in_use" });
  assert.equal((await admin.deleteSchema("unused", 1)).deleted, true);
  await assert.rejects(admin.schema("unused"), { code: "unknown_schema" });
});

test("administration: all groups and cursors come, however many there are", async (t) => {
  const client = clientOf(t, await startServer(t));
  const admin = new Admin(client);
  await client.publish("t", 1);
  const names = Array.from({ length: 130 }, (_, n) => `g${String(n).padStart(3, "0")}`);
  const subscriptions = await Promise.all(names.map((name) => client.subscribe("t", name, () => {})));
  assert.deepEqual((await admin.groups("t")).map(({ group }) => group).sort(), names);
  const cursors = [];
  for await (const { group } of admin.cursors("t", { limit: 50 })) cursors.push(group);
  assert.deepEqual(cursors.sort(), names);
  await Promise.all(subscriptions.map((subscription) => subscription.close()));
});

test("the server: health, readiness, what goes on, projectors and collections", async (t) => {
  const halting = `
[[projectors]]
name = "halting"
topic = "h"
on_failure = "halt"
program = 'if .payload == "bad" then error("no") else empty end'
`;
  const server = await startServer(t, { config: EXAMPLE + halting });
  const client = clientOf(t, server);
  const [admin, state] = [new Admin(client), new State(client)];
  assert.deepEqual([(await admin.health()).status, await admin.isReady()], ["ok", true]);
  await client.publish("heartbeat.received", HEARTBEAT);
  await until(() => state.document("local:stt:7"));
  const found = (await state.collections()).find(({ name }) => name === "processes");
  assert.deepEqual([found.documents, found.history, found.projector], [1, true, "processes.txn"]);
  const projector = async (wanted) => (await admin.projectors()).projectors.find(({ name }) => name === wanted);
  for (const options of [undefined, { acceptLoss: true }]) {
    await admin.rebuildProjector("processes.txn", options);
    const { rebuild } = await until(async () => {
      const now = await projector("processes.txn");
      return now.rebuild?.running === false && now;
    });
    assert.equal(rebuild.equal, true);
  }
  await client.publish("h", "bad");
  const { failures } = await until(async () => {
    const now = await projector("halting");
    return now.activity === "halted" && now;
  });
  await until(async () => (await admin.health()).status === "degraded");
  await admin.resumeProjector("halting");
  await until(async () => (await projector("halting")).failures > failures, { what: "the event is tried again" });
  await assert.rejects(admin.resumeProjector("none"), { code: "unknown_projector" });
  const first = await admin.ops({ limit: 1 });
  assert.equal(first.groups.length, 1);
  const second = await admin.ops({ limit: 1, after: first.next });
  assert.notEqual(second.groups[0].group, first.groups[0].group);
  assert.equal((await admin.get(["topics", "h"])).end, 1);
  await server.kill();
  await assert.rejects(admin.isReady(), { code: "unreachable" });
});

test("a server that is away is named, and an abort ends a request", async (t) => {
  const admin = new Admin(`http://127.0.0.1:${await freePort()}`);
  await assert.rejects(admin.topic("t"), {
    code: "unreachable",
    message: /127\.0\.0\.1:\d+: ECONNREFUSED/,
    hasNoSideEffects: true,
  });
  await assert.rejects(admin.deleteTopic("t"), { code: "unreachable", hasNoSideEffects: false });
  await assert.rejects(admin.topic("t", { signal: AbortSignal.abort(new Error("no")) }), { message: "no" });
});

test("a token tells who it is, and a ticket stands for it in one request", async (t) => {
  const server = await startServer(t, { args: ["--token", "secret-token"] });
  const admin = new Admin(server.url, { token: "secret-token" });
  const { name, scopes } = await admin.whoami();
  assert.deepEqual([typeof name, scopes], ["string", ["admin"]]);
  const { ticket } = await admin.ticket("/topics");
  const get = () => fetch(`${server.http}/topics?ticket=${ticket}`);
  assert.deepEqual([(await get()).status, (await get()).status], [200, 401]);
  const client = new Client(server.url, "secret-token");
  t.after(() => client.close());
  await client.publish("a.b", { n: 1 });
  const url = await new Reader(client).streamUrl("a.b", { from: "earliest" });
  assert.ok(!url.includes("secret-token"));
  const response = await fetch(url);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  await until(async () => (text += (await reader.read()).value).includes('"n":1'));
  await reader.cancel();
});

test("a dead letter is published with another payload", async (t) => {
  const server = await startServer(t);
  const client = new Client(server.url, { onError() {} });
  t.after(() => client.close());
  const fail = (event) => {
    if (event.payload.price === undefined) throw new Error("no price");
  };
  await client.subscribe("t", "g", fail, { from: "earliest", maxAttempts: 1 });
  await client.publish("t", { n: 1 });
  const admin = new Admin(client);
  const letters = async () => {
    const found = [];
    for await (const letter of admin.deadLetters("t", "g")) found.push(letter);
    return found;
  };
  await until(async () => (await letters()).length === 1);
  const [{ offset }] = await letters();
  await admin.redrive("t", "g", { offsets: [offset], to: "topic", payload: { n: 1, price: 2 } });
  await until(async () => (await letters()).length === 0);
  const events = [];
  for await (const event of new Reader(client).replay("t")) events.push(event.payload);
  assert.deepEqual(events, [{ n: 1 }, { n: 1, price: 2 }]);
});
