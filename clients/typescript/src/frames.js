/**
 * Frames of the protocol as text. `fixtures/protocol/` has one example of each.
 * @module
 */

import { PrometheanError, reasonOf } from "./errors.js";

/** The ops that a server sends. */
export const SERVER_OPS = ["OK", "ERR", "EVENT", "EVENTS", "REBALANCE"];

/**
 * Decodes a frame of the server. Unknown fields stay in the frame; an unknown `op` is refused.
 * @param {string} text
 * @returns {import("./types.js").ServerFrame}
 */
export function decode(text) {
  let frame;
  try {
    frame = JSON.parse(text);
  } catch (cause) {
    throw new PrometheanError("bad_json", `the server sent a frame that is not JSON: ${text.slice(0, 80)}`, { cause });
  }
  if (!SERVER_OPS.includes(frame?.op)) {
    const op = JSON.stringify(frame?.op);
    throw new PrometheanError("unknown_op", `the server sent a frame with the unknown op ${op}; use a newer client`);
  }
  return frame;
}

/**
 * Encodes a frame of a client; fields that are `undefined` are left out.
 * @param {string} op
 * @param {Record<string, unknown>} fields
 */
export function encode(op, fields) {
  return JSON.stringify({ op, ...fields });
}

/**
 * Encodes a `PUBLISH` of one event.
 * @param {string} topic
 * @param {string} payload JSON text.
 * @param {import("./types.js").PublishOptions | undefined} opts
 * @param {unknown} [corr]
 */
export function encodePublish(topic, payload, opts, corr) {
  let text = `{"op":"PUBLISH","topic":${JSON.stringify(topic)},"payload":${payload}`;
  if (opts !== undefined) text += `,"opts":${JSON.stringify(opts)}`;
  if (corr !== undefined) text += `,"corr":${JSON.stringify(corr)}`;
  return `${text}}`;
}

let lastTopic = "";
let lastTopicJson = '""';

/**
 * Encodes a `PUBLISH` of one event that has no options but an id of `newId`. This is what is published most, so it is
 * written without a detour.
 * @param {string} topic
 * @param {string} payload JSON text.
 * @param {string} id
 * @param {number} corr
 */
export function encodeMinted(topic, payload, id, corr) {
  if (topic !== lastTopic) {
    lastTopic = topic;
    lastTopicJson = JSON.stringify(topic);
  }
  return `{"op":"PUBLISH","topic":${lastTopicJson},"payload":${payload},"opts":{"id":"${id}"},"corr":${corr}}`;
}

/**
 * Encodes a `PUBLISH` of several events.
 * @param {import("./types.js").EventToPublish[]} events
 * @param {unknown} [corr]
 * @param {string} [topic] The topic of events without one.
 */
export function encodeBatch(events, corr, topic) {
  const texts = events.map(({ topic: own, payload, opts }) => {
    const name = own === undefined ? "" : `"topic":${JSON.stringify(own)},`;
    const more = opts === undefined ? "" : `,"opts":${JSON.stringify(opts)}`;
    return `{${name}"payload":${encodePayload(payload)}${more}}`;
  });
  const name = topic === undefined ? "" : `"topic":${JSON.stringify(topic)},`;
  const end = corr === undefined ? "" : `,"corr":${JSON.stringify(corr)}`;
  return `{"op":"PUBLISH",${name}"events":[${texts.join(",")}]${end}}`;
}

/**
 * The JSON text of a payload.
 * @param {unknown} payload
 * @returns {string}
 */
export function encodePayload(payload) {
  let text;
  try {
    text = JSON.stringify(payload);
  } catch (cause) {
    throw new PrometheanError("bad_payload", `the payload cannot be JSON: ${reasonOf(cause)}; convert it first`, {
      cause,
    });
  }
  if (text === undefined) {
    const kind = typeof payload;
    throw new PrometheanError(
      "bad_payload",
      `the payload is ${kind}, which JSON does not have; use null for a tombstone`,
    );
  }
  return text;
}
