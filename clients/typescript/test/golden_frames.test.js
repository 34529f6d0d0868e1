import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { PrometheanError, newId } from "../src/index.js";
import { refusal } from "../src/errors.js";
import { SERVER_OPS, decode, encode, encodeBatch, encodeMinted, encodePayload, encodePublish } from "../src/frames.js";
import { socketClass } from "../src/socket.js";
import { startServer } from "./support/server.js";
import { clientOf } from "./support/client.js";
import { until } from "./support/wait.js";

const golden = (name) =>
  readFileSync(new URL(`../../../fixtures/protocol/${name}.jsonl`, import.meta.url), "utf8")
    .trim()
    .split("\n");

/** A value without the fields named `unknown`, which a client ignores. */
function known(value) {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(known);
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, field]) => (name === "unknown" ? [] : [[name, known(field)]])),
  );
}

/** Encodes the content of a golden frame with the functions that the client sends frames with. */
function encodeAgain({ op, ...fields }) {
  const { topic, payload, events, opts, corr } = fields;
  if (op !== "PUBLISH") return encode(op, fields);
  return events ? encodeBatch(events, corr, topic) : encodePublish(topic, encodePayload(payload), opts, corr);
}

test("frames that the client encodes are the golden ones", () => {
  for (const line of golden("client")) {
    const frame = JSON.parse(line);
    // Numbers keep their value, not their zeros: 1.50 and 1.5 are the same JSON number.
    assert.equal(encodeAgain(frame), JSON.stringify(frame));
  }
});

test("the short way to encode a publish writes the same", () => {
  for (const [topic, payload] of [
    ["a.b", 1],
    ['x"y', { n: 1.5 }],
    ["a.b", null],
  ]) {
    const [id, json] = [newId(), encodePayload(payload)];
    assert.equal(encodeMinted(topic, json, id, 7), encodePublish(topic, json, { id }, 7));
  }
});

test("the server understands every frame that the client encodes", async (t) => {
  const server = await startServer(t);
  const socket = new (await socketClass())(server.url);
  t.after(() => socket.close());
  await new Promise((resolve) => (socket.onopen = resolve));
  const answers = new Map();
  socket.onmessage = ({ data }) => {
    const frame = decode(data);
    if (frame.corr !== undefined) answers.set(frame.corr, frame);
  };
  const frames = golden("client").map((line) => JSON.parse(line));
  frames.forEach((frame, at) => socket.send(encodeAgain({ ...frame, corr: at })));
  await until(() => answers.size === frames.length, { what: "every frame is answered" });
  for (const [at, { code, msg }] of answers) {
    assert.equal(["bad_json", "bad_request", "unknown_op"].includes(code), false, `${golden("client")[at]}: ${msg}`);
  }
});

test("golden frames of the server decode to their content and are written the same", () => {
  for (const line of golden("server")) {
    const frame = decode(line);
    assert.equal(JSON.stringify(frame), JSON.stringify(JSON.parse(line)));
  }
  assert.deepEqual(new Set(golden("server").map((line) => JSON.parse(line).op)), new Set(SERVER_OPS));
});

test("frames of newer servers have their content, and their unknown ops are reported", () => {
  const newer = golden("server-newer");
  assert.ok(newer.length >= 6 && newer.every((line) => line.includes("unknown")));
  const id = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f";
  const event = { id, ts: 2, topic: "a.b", offset: 8, payload: "x" };
  const delivery = { event, ctx: { attempt: 1, ack_deadline_ms: 1000 } };
  assert.deepEqual(
    newer.map((line) => known(decode(line))),
    [
      { op: "OK", id, offset: 4, corr: 9 },
      { op: "OK", stale: true, stale_ids: [id], corr: "8" },
      { op: "OK", offset: 3, corr: 7 },
      { op: "EVENT", topic: "a.b", group: "g", ...delivery },
      { op: "EVENTS", topic: "a.b", group: "g", events: [delivery] },
      { op: "REBALANCE", topic: "a.b", group: "g", epoch: 4, assigned: [1, 2], revoked: [] },
    ],
  );
  const unknown = ['{"op":"DANCE","corr":1}', "7", ...golden("server-unknown")];
  for (const line of unknown) assert.throws(() => decode(line), { code: "unknown_op" }, line);
});

test("a client acts on frames of newer servers as on those it knows", async (t) => {
  const client = clientOf(t, await startServer(t));
  const [got, changes] = [[], []];
  await client.subscribe("a.b", "g", (event, lease) => void got.push([event.payload, event.offset, lease.attempt]), {
    onRebalance: (change) => changes.push(change),
  });
  for (const line of golden("server-newer")) client.connection.receive(line);
  await until(() => got.length > 1);
  assert.deepEqual(got, [
    ["x", 8, 1],
    ["x", 8, 1],
  ]);
  assert.deepEqual(changes, [{ epoch: 4, assigned: [1, 2], revoked: [] }]);
});

test("an ERR becomes an error with its code, its wait and its further fields", () => {
  const error = refusal(
    decode(
      '{"op":"ERR","code":"rate_limited","msg":"too fast; wait \\"a bit\\"","retry_after_ms":20,"corr":"2","limit":5}',
    ),
  );
  assert.deepEqual(
    [error.code, error.msg, error.retryAfterMs, error.details],
    ["rate_limited", 'too fast; wait "a bit"', 20, { limit: 5 }],
  );
  assert.ok(error instanceof PrometheanError && error.isRetryable && error.hasNoSideEffects);
});

test("unknown fields are ignored, unknown ops and broken frames are reported, and the client goes on", async (t) => {
  const server = await startServer(t);
  const client = clientOf(t, server);
  const events = [];
  await client.subscribe("t", "g", (event) => void events.push(event));
  const receive = (text) => client.connection.receive(text);
  receive(
    '{"op":"EVENT","topic":"t","group":"g","new":1,"event":{"id":"017f22e2-79b0-7cc3-98c4-dc0c0c07398f","ts":1,"topic":"t","offset":7,"payload":5,"colour":"red"},"ctx":{"attempt":2,"ack_deadline_ms":30000,"more":true}}',
  );
  assert.equal(events[0].payload, 5);
  receive('{"op":"DANCE","corr":1}');
  receive("{");
  receive("[]");
  assert.deepEqual(
    client.errors.map((error) => error.code),
    ["unknown_op", "bad_json", "unknown_op"],
  );
  assert.match(client.errors[0].message, /DANCE/);
  await client.publish("t", 1);
});
