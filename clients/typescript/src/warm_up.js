/**
 * Starting with the snapshots of a topic, and going on with its events, without a gap.
 * @module
 */

import { Reader } from "./reader.js";

/**
 * @template [T=any]
 * @typedef {object} KeyState
 * @property {T} payload The state of the key.
 * @property {number} ts The time of the last event in it.
 * @property {number} offset The offset after the last event in it.
 */

/**
 * The state of every key of a topic as of its snapshots, and the events after them.
 * @template [T=any]
 */
export class WarmUp {
  /**
   * @internal
   * @param {import("./client.js").Client<any>} client
   * @param {Reader} reader
   * @param {string} topic
   */
  constructor(client, reader, topic) {
    /** @private */
    this.client = client;
    /** @private */
    this.reader = reader;
    /** The topic. */
    this.topic = topic;
    /** The state of each key that has one. @type {Map<string, KeyState<T>>} */
    this.state = new Map();
    /** The offset to go on from. */
    this.offset = 0;
    /** @private Where the snapshot of each key ends. @type {Map<string, number>} */
    this.ends = new Map();
  }

  /**
   * Whether the state has this event already.
   * @param {import("./types.js").BusEvent<T>} event
   */
  contains(event) {
    return event.key !== undefined && event.offset < (this.ends.get(event.key) ?? 0);
  }

  /**
   * The events after the snapshots, as they come, without a group: for a view of the whole state.
   * @param {{signal?: AbortSignal}} [options]
   * @returns {AsyncGenerator<import("./types.js").BusEvent<T>, void, void>}
   */
  async *follow({ signal } = {}) {
    for await (const event of this.reader.follow(this.topic, {
      from: "offset",
      offset: this.offset,
      ...(signal && { signal }),
    })) {
      if (!this.contains(event)) yield event;
    }
  }

  /**
   * Handles the events after the snapshots as a new group.
   * @param {string} group
   * @param {import("./subscription.js").Handler<T>} handler
   * @param {import("./types.js").SubscribeOptions} [options]
   */
  subscribe(group, handler, options) {
    const passing = (/** @type {any} */ event, /** @type {any} */ lease) =>
      this.contains(event) ? undefined : handler(event, lease);
    return this.client.subscribe(this.topic, group, passing, { ...options, from: "offset", offset: this.offset });
  }

  /**
   * @internal
   * @param {import("./types.js").BusEvent} event
   */
  load(event) {
    const { key, payload, ts } = event.payload ?? {};
    const number = (/** @type {string} */ name) => Number(event.headers?.[`x-snapshot-${name}`]);
    const offset = number("offset");
    if (typeof key !== "string" || !Number.isInteger(offset)) return;
    this.ends.set(key, offset);
    if (payload === null) this.state.delete(key);
    else this.state.set(key, { payload, ts, offset });
    // Only the last event of a key matters to the reducer `latest`; other reducers need every event.
    const isLatest = event.headers?.["x-snapshot-by"]?.split(";")[0] === "latest";
    this.offset = Math.max(this.offset, isLatest ? offset : number("floor") || 0);
  }
}

/**
 * Loads the snapshots of a topic, which a compactor writes.
 * @template [T=any]
 * @param {import("./client.js").Client<any>} client
 * @param {string} topic
 * @param {{snapshots?: string, signal?: AbortSignal}} [options] `snapshots` is `<topic>.snapshot` if left out.
 * @returns {Promise<WarmUp<T>>}
 */
export async function warmUp(client, topic, { snapshots = `${topic}.snapshot`, signal } = {}) {
  const reader = new Reader(client);
  /** @type {WarmUp<T>} */
  const warm = new WarmUp(client, reader, topic);
  for await (const event of reader.replay(snapshots, { limit: 10_000, ...(signal && { signal }) })) warm.load(event);
  return warm;
}
