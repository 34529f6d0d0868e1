/**
 * One topic of a client, with the type of its payload.
 * @module
 */

/**
 * A topic with the type of its payload.
 * @template T
 */
export class Topic {
  /**
   * @param {import("./client.js").Client<any>} client
   * @param {string} name
   */
  constructor(client, name) {
    /** @private */
    this.client = client;
    /** The name of the topic. */
    this.name = name;
  }

  /**
   * Publishes an event; see `Client.publish`.
   * @param {T} payload
   * @param {import("./types.js").PublishOptions & import("./types.js").WaitOptions} [options]
   * @returns {Promise<import("./types.js").Published>}
   */
  publish(payload, options) {
    return this.client.publish(this.name, payload, options);
  }

  /**
   * Publishes events in one commit; see `Client.publishMany`.
   * @param {T[]} payloads
   * @param {import("./types.js").WaitOptions} [options]
   * @returns {Promise<import("./types.js").PublishedBatch>}
   */
  publishMany(payloads, options) {
    return this.client.publishMany(
      payloads.map((payload) => ({ topic: this.name, payload })),
      options,
    );
  }

  /**
   * Handles the events of a group; see `Client.subscribe`.
   * @param {string} group
   * @param {import("./subscription.js").Handler<T>} handler
   * @param {import("./types.js").SubscribeOptions & {timeoutMs?: number}} [options]
   * @returns {Promise<import("./subscription.js").Subscription<T>>}
   */
  subscribe(group, handler, options) {
    return this.client.subscribe(this.name, group, handler, options);
  }

  /**
   * The leases of a group; see `Client.leases`.
   * @param {string} group
   * @param {import("./types.js").SubscribeOptions} [options]
   * @returns {import("./subscription.js").Subscription<T>}
   */
  leases(group, options) {
    return this.client.leases(this.name, group, options);
  }
}
