/**
 * `EventClient` and `PromClient`: the small clients that the first services were written with.
 * @module
 */

import { Client } from "./client.js";
import { PrometheanError } from "./errors.js";

/**
 * @template [T=any]
 * @typedef {(event: import("./types.js").BusEvent<T>, ctx: {attempt: number, ack_deadline_ms: number}) => Promise<void> | void} EventHandler
 */

/** The most handlers of one subscription at a time: as many as the server delivers. */
const CONCURRENCY = 1_000;

/**
 * A client with the least to learn. It connects when it is created, acks after the handler, and nacks when the handler
 * throws. Refusals have `code` and `msg`.
 */
export class EventClient {
  /**
   * @param {string} url
   * @param {import("./types.js").Token} [token]
   */
  constructor(url, token) {
    /** @protected */
    this.client = new Client(url, token === undefined ? {} : { token });
    this.client.connection.start();
  }

  /**
   * Publishes an event. Resolves with `OK` and the id, offset and time of the event when it is durable.
   * @template [T=any]
   * @param {string} topic
   * @param {T} payload
   * @param {import("./types.js").PublishOptions} [opts]
   * @returns {Promise<{op: "OK"} & import("./types.js").Published>}
   */
  async publish(topic, payload, opts) {
    return { op: "OK", ...(await this.client.publish(topic, payload, opts)) };
  }

  /**
   * Handles the events of a group. Resolves when the server has accepted the subscription.
   * @template [T=any]
   * @param {string} topic
   * @param {string} group
   * @param {EventHandler<T>} handler
   * @param {import("./types.js").SubscribeOptions} [opts]
   * @returns {Promise<{op: "OK"}>}
   */
  async subscribe(topic, group, handler, opts = {}) {
    await this.client.subscribe(topic, group, handler, { concurrency: CONCURRENCY, ...opts });
    return { op: "OK" };
  }

  /**
   * Ends a subscription after the handlers that run.
   * @param {string} topic
   * @param {string} group
   * @returns {Promise<{op: "OK"}>}
   */
  async unsubscribe(topic, group) {
    await this.client.unsubscribe(topic, group);
    return { op: "OK" };
  }

  /**
   * Extends the lease of an event from now.
   * @param {string} topic
   * @param {string} group
   * @param {string} id
   * @param {number} extend_ms
   */
  modAck(topic, group, id, extend_ms) {
    this.client.connection.request("MODACK", { topic, group, id, extend_ms }).catch((error) => {
      // The event may have been acked in the meantime.
      if (!(error instanceof PrometheanError)) throw error;
    });
  }

  /** Closes the client; see `Client.close`. */
  close() {
    return this.client.close();
  }
}

/** `EventClient` that also waits for its connection. */
export class PromClient extends EventClient {
  /** Waits until the token is accepted. */
  async connect() {
    await this.client.connect();
  }
}
