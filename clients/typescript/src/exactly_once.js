/**
 * Handling each event once, with a store of the user's choice that remembers handled events.
 * @module
 */

import { PrometheanError } from "./errors.js";
import { Http } from "./http.js";

/** How long a mark lives: 7 days. */
const TTL_MS = 7 * 24 * 60 * 60 * 1000;
const MEMORY_MAX = 100_000;

/**
 * Remembers handled events. A store that can run the work and the mark in one transaction of its own has `once`, which
 * then replaces `seen` and `mark`: only such a store makes an effect happen once even if the process dies in between.
 * @typedef {object} DedupeStore
 * @property {(topic: string, group: string, id: string) => Promise<boolean> | boolean} seen Whether the event is
 *   marked.
 * @property {(topic: string, group: string, id: string, ttlMs: number) => Promise<void> | void} mark Marks the event.
 * @property {(topic: string, group: string, id: string, work: () => Promise<void>) => Promise<void>} [once] Runs `work`
 *   and marks the event in one transaction, or does nothing if the event is marked.
 */

/**
 * Makes a handler that handles each event once: marked events are passed over, and an event is marked after its
 * handler.
 * @template [T=any]
 * @param {DedupeStore} store
 * @param {import("./subscription.js").Handler<T>} handler
 * @param {{ttlMs?: number}} [options] How long marks live.
 * @returns {import("./subscription.js").Handler<T>}
 */
export function exactlyOnce(store, handler, { ttlMs = TTL_MS } = {}) {
  return async (event, lease) => {
    const { topic, id } = event;
    const { group } = lease.subscription;
    if (store.once) {
      return store.once(topic, group, id, async () => {
        await handler(event, lease);
      });
    }
    if (await store.seen(topic, group, id)) return;
    await handler(event, lease);
    await store.mark(topic, group, id, ttlMs);
  };
}

/** Marks on the server (`/dedupe`), which all members of the group share. */
export class ServerDedupe {
  /**
   * @param {ConstructorParameters<typeof Http>[0]} server A client, or the URL of the server.
   * @param {import("./http.js").HttpOptions} [options]
   */
  constructor(server, options) {
    /** @private */
    this.http = new Http(server, options);
  }

  /**
   * Whether the event is marked.
   * @param {string} topic
   * @param {string} group
   * @param {string} id
   */
  async seen(topic, group, id) {
    try {
      return (await this.http.json(["dedupe", topic, group, id])).seen;
    } catch (error) {
      if (error instanceof PrometheanError && error.code === "not_found") return false;
      throw error;
    }
  }

  /**
   * Marks the event for `ttlMs`.
   * @param {string} topic
   * @param {string} group
   * @param {string} id
   * @param {number} ttlMs
   */
  async mark(topic, group, id, ttlMs) {
    await this.http.send(["dedupe", topic, group, id], { method: "PUT", query: { ttl_ms: ttlMs } });
  }
}

/** Marks in this process, for tests and for effects that live no longer than the process. Forgets the oldest. */
export class MemoryDedupe {
  /** @param {number} [max] The most marks. */
  constructor(max = MEMORY_MAX) {
    /** @private */
    this.max = max;
    /** @private @type {Map<string, number>} */
    this.marks = new Map();
  }

  /**
   * Whether the event is marked.
   * @param {string} topic
   * @param {string} group
   * @param {string} id
   */
  seen(topic, group, id) {
    return (this.marks.get(`${topic} ${group} ${id}`) ?? 0) > Date.now();
  }

  /**
   * Marks the event for `ttlMs`.
   * @param {string} topic
   * @param {string} group
   * @param {string} id
   * @param {number} ttlMs
   */
  mark(topic, group, id, ttlMs) {
    this.marks.set(`${topic} ${group} ${id}`, Date.now() + ttlMs);
    if (this.marks.size > this.max) this.marks.delete(this.marks.keys().next().value ?? "");
  }
}
