/**
 * Ids that are computed from other ids, so that a repeated run makes duplicates and not new events.
 * @module
 */

import { xxh3 } from "./xxh3.js";

const encoder = new TextEncoder();

/**
 * Derives an id from a namespace and a name, as the server does: a UUID of version 8.
 * @param {Uint8Array} namespace
 * @param {Uint8Array} name Namespace and name have at least 9 bytes together.
 * @returns {string}
 */
export function deriveId(namespace, name) {
  const bytes = new Uint8Array(8 + namespace.length + name.length);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(namespace.length), true);
  bytes.set(namespace, 8);
  bytes.set(name, 8 + namespace.length);
  const hex = xxh3(bytes).toString(16).padStart(32, "0").split("");
  hex[12] = "8";
  hex[16] = ((parseInt(hex[16], 16) & 0x3) | 0x8).toString(16);
  return hex.join("").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

/**
 * The id of the `n`th event that a group publishes because of an event. It is the same at every delivery of that
 * event, and the same in every client and in the server.
 * @param {string} group
 * @param {string} topic
 * @param {string} id
 * @param {number} n
 * @returns {string}
 */
export function producedId(group, topic, id, n) {
  const names = encoder.encode(`${group}\0${topic}\0`);
  const name = new Uint8Array(names.length + 20);
  name.set(names);
  const hex = id.replaceAll("-", "");
  for (let at = 0; at < 16; at++) name[names.length + at] = parseInt(hex.slice(at * 2, at * 2 + 2), 16);
  new DataView(name.buffer).setUint32(names.length + 16, n);
  return deriveId(encoder.encode("produced"), name);
}
