import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { WebSocketServer } from "ws";
import { clientOf } from "./support/client.js";
import { sleep, until } from "./support/wait.js";

/** A server that answers each frame as the test says, for refusals that a real server cannot be brought to at will. */
async function startScript(t, answer) {
  const listener = new WebSocketServer({ host: "127.0.0.1", port: 0 });
  await new Promise((resolve) => listener.once("listening", resolve));
  t.after(() => {
    for (const socket of listener.clients) socket.terminate();
    listener.close();
  });
  const frames = [];
  listener.on("connection", (socket) => {
    socket.on("message", (data) => {
      const frame = JSON.parse(data.toString());
      frames.push(frame);
      const said = frame.op === "AUTH" ? { op: "OK" } : answer(frame, socket, frames);
      if (said) socket.send(JSON.stringify({ ...said, corr: frame.corr }));
    });
  });
  return { url: `ws://127.0.0.1:${listener.address().port}`, frames };
}

const published = (frame) => ({
  op: "OK",
  id: frame.opts.id,
  topic: frame.topic,
  offset: 0,
  ts: 1,
  durability: "fsync",
});
const refused = (code, more = {}) => ({ op: "ERR", code, msg: `${code}, says the test`, ...more });

for (const code of ["busy", "closed", "auth_unavailable", "unknown_outcome", "rate_limited"]) {
  test(`a publish that is refused with ${code} is tried again with the same id`, async (t) => {
    let left = 3;
    const script = await startScript(t, (frame) =>
      left-- > 0 ? refused(code, { retry_after_ms: 5 }) : published(frame),
    );
    const client = clientOf(t, script.url);
    await client.publish("t", 1);
    const ids = script.frames.filter((frame) => frame.op === "PUBLISH").map((frame) => frame.opts.id);
    assert.equal(ids.length, 4);
    assert.equal(new Set(ids).size, 1);
  });
}

test("a server that stays busy is named when the time is over", async (t) => {
  const script = await startScript(t, () => refused("busy", { retry_after_ms: 10 }));
  const client = clientOf(t, script.url);
  await assert.rejects(client.publish("t", 1, { timeoutMs: 300 }), (error) => {
    // At that moment the frame waits here or is on its way.
    assert.ok(error.code === "busy" ? error.hasNoSideEffects : error.code === "timeout" && !error.hasNoSideEffects);
    assert.match(error.message, /busy, says the test/);
    return error.isRetryable;
  });
  assert.ok(script.frames.length < 60, "it does not hammer");
});

test("a server that is full refuses at once, and the caller may try later", async (t) => {
  const script = await startScript(t, () => refused("storage_full"));
  const client = clientOf(t, script.url);
  await assert.rejects(client.publish("t", 1), { code: "storage_full", isRetryable: true, hasNoSideEffects: true });
  assert.equal(script.frames.length, 2);
});

test("refused publishes keep their order among themselves", async (t) => {
  let isBusy = true;
  const stored = [];
  const script = await startScript(t, (frame) => {
    if (isBusy) return refused("busy", { retry_after_ms: 20 });
    stored.push(frame.payload);
    return published(frame);
  });
  const client = clientOf(t, script.url, { maxOutstanding: 5 });
  const publishes = Array.from({ length: 20 }, (_, n) => client.publish("t", n));
  await sleep(50);
  isBusy = false;
  await Promise.all(publishes);
  assert.deepEqual(
    stored,
    Array.from({ length: 20 }, (_, n) => n),
  );
});

test("a server that never answers a publish is asked again on each connection, in order", async (t) => {
  const seen = [[]];
  const script = await startScript(t, (frame, socket) => {
    if (frame.op !== "PUBLISH") return refused("unknown_op");
    seen.at(-1).push(frame.payload);
    if (seen.length === 3) return published(frame);
    if (seen.at(-1).length === 4) {
      seen.push([]);
      socket.terminate();
    }
  });
  const client = clientOf(t, script.url);
  await Promise.all([0, 1, 2, 3].map((n) => client.publish("t", n)));
  assert.deepEqual(seen, [
    [0, 1, 2, 3],
    [0, 1, 2, 3],
    [0, 1, 2, 3],
  ]);
});

test("a subscription that is refused with busy is tried again", async (t) => {
  let left = 2;
  const script = await startScript(t, () => (left-- > 0 ? refused("busy", { retry_after_ms: 5 }) : { op: "OK" }));
  const client = clientOf(t, script.url);
  await client.subscribe("t", "g", () => {});
  assert.equal(script.frames.filter((frame) => frame.op === "SUBSCRIBE").length, 3);
});

test("an ack that is refused is reported", async (t) => {
  const event = { id: "017f22e2-79b0-7cc3-98c4-dc0c0c07398f", ts: 1, topic: "t", offset: 0, payload: 1 };
  const script = await startScript(t, (frame, socket) => {
    if (frame.op === "ACK") return refused("storage_failed");
    if (frame.op === "SUBSCRIBE") {
      const events = [{ event, ctx: { attempt: 1, ack_deadline_ms: 30_000 } }];
      setImmediate(() => socket.send(JSON.stringify({ op: "EVENTS", topic: "t", group: "g", events })));
    }
    return { op: "OK" };
  });
  const client = clientOf(t, script.url);
  await client.subscribe("t", "g", () => {});
  await until(() => client.errors.length === 1);
  assert.equal(client.errors[0].code, "storage_failed");
});

test("a callback that throws stops no work of the client, and is not hidden", async (t) => {
  const script = await startScript(t, published);
  // In a process of its own, because the test runner takes an uncaught error for a failure.
  const code = `
    import { Client } from "@promethean/client";
    process.on("uncaughtException", (error) => console.log(error.message));
    const onState = (state) => { throw new Error(state + " is broken"); };
    const client = new Client("${script.url}", { onState });
    console.log((await client.publish("t", 1)).topic);
    await client.close();
  `;
  const cwd = fileURLToPath(new URL("..", import.meta.url));
  const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", code], { cwd });
  assert.equal(stdout, "connecting is broken\nopen is broken\nt\nclosed is broken\n");
});
