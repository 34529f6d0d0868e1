/// <reference lib="esnext.disposable" preserve="true" />
/**
 * The client: one connection with its publishes and subscriptions.
 * @module
 */

import { addressOf } from "./address.js";
import { waitFor } from "./backoff.js";
import { Connection } from "./connection.js";
import { PrometheanError, inform, refusal } from "./errors.js";
import { Publisher } from "./publisher.js";
import { Subscription } from "./subscription.js";
import { Topic } from "./topic.js";

/**
 * @typedef {object} ClientEvents
 * @property {(state: import("./connection.js").ConnectionState, error?: Error) => void} [onState] Called when the
 *   connection opens, is lost or ends.
 * @property {(error: Error) => void} [onError] Called for failures that no call reports. Writes to the console if left
 *   out.
 */

/** @typedef {import("./connection.js").ConnectionOptions} ConnectionOptions */
/** @typedef {import("./publisher.js").PublisherOptions} PublisherOptions */
/** @typedef {ConnectionOptions & PublisherOptions & ClientEvents} ClientOptions */

/**
 * A client of one server. It connects when it is first used, and again whenever the connection is lost.
 * @template {Record<string, any>} [P=Record<string, any>] Payloads by topic, such as `Payloads` of
 *   `promethean generate typescript`.
 */
export class Client {
  /**
   * @param {string | URL} url For example `ws://127.0.0.1:8090`; `wss`, `http` and `https` work too.
   * @param {ClientOptions | string} [options] Options, or only the token.
   */
  constructor(url, options = {}) {
    const given = typeof options === "string" ? { token: options } : options;
    /** The addresses of the server. */
    this.address = addressOf(url);
    /** The token, or the function for it. */
    this.token = given.token;
    /** @private */
    this.onError = given.onError ?? ((error) => console.error(`promethean: ${error.message}`));
    /** @private @type {Map<string, Subscription>} */
    this.subscriptions = new Map();
    /** @private */
    this.isClosing = false;
    /** @internal */
    this.connection = new Connection(this.address, given, {
      up: () => this.up(),
      down: (_, code) => this.down(code),
      frame: (frame) => this.receive(frame),
      failed: (error) => this.failed(error),
      error: (error) => inform(this.onError, error),
      state: (state, error) => inform(given.onState, state, error),
    });
    /** @private */
    this.publisher = new Publisher(this.connection, given);
  }

  /** `idle`, `connecting`, `open` or `closed`. */
  get state() {
    return this.connection.state;
  }

  /**
   * Waits until the client is connected and its token is accepted. Calling it is optional; it shows mistakes early.
   * After a rejection with `unreachable` the client keeps trying until it is closed.
   * @param {import("./types.js").WaitOptions} [limits]
   */
  async connect(limits) {
    await this.connection.whenOpen(limits);
    return this;
  }

  /**
   * Publishes an event. Resolves when the event is durable. The id is minted before the first try, so tries after a
   * lost answer never publish twice.
   * @template {keyof P & string} K
   * @param {K} topic
   * @param {P[K]} payload Anything that JSON has; `null` is a tombstone.
   * @param {import("./types.js").PublishOptions & import("./types.js").WaitOptions} [options]
   * @returns {Promise<import("./types.js").Published>}
   */
  publish(topic, payload, options) {
    return this.publisher.publish(topic, payload, options);
  }

  /**
   * Publishes up to 1,000 events in one commit: all of them, or none.
   * @param {import("./types.js").EventToPublish[]} events
   * @param {import("./types.js").WaitOptions} [options]
   * @returns {Promise<import("./types.js").PublishedBatch>}
   */
  publishMany(events, options) {
    return this.publisher.publishMany(events, options);
  }

  /**
   * Waits until a publish would be sent at once: back-pressure for code that does not await each publish.
   * @param {import("./types.js").WaitOptions} [options]
   */
  room(options) {
    return this.publisher.room(options);
  }

  /**
   * Handles the events of a group. The event is acked when the handler is done, and given back (nacked) when it
   * throws. Resolves when the server has accepted the subscription.
   * @template {keyof P & string} K
   * @param {K} topic A topic or pattern.
   * @param {string} group
   * @param {import("./subscription.js").Handler<P[K]>} handler
   * @param {import("./types.js").SubscribeOptions & {timeoutMs?: number}} [options]
   * @returns {Promise<Subscription<P[K]>>}
   */
  async subscribe(topic, group, handler, { timeoutMs = 30_000, ...options } = {}) {
    const subscription = this.add(topic, group, options, handler);
    const late = () => new PrometheanError("timeout", `the server did not answer SUBSCRIBE within ${timeoutMs} ms`);
    const accepted = this.connection.whenOpen({ timeoutMs }).then(() => subscription.ready);
    try {
      await waitFor((resolve, reject) => void accepted.then(() => resolve(), reject), {
        timeoutMs: timeoutMs + 1,
        late,
      });
    } catch (error) {
      await subscription.close({ timeoutMs: 1_000 }).catch(() => {});
      throw error;
    }
    return subscription;
  }

  /**
   * The leases of a group, to loop over or, with `pull: true`, to fetch. A refusal is thrown by the loop.
   * @template {keyof P & string} K
   * @param {K} topic A topic or pattern.
   * @param {string} group
   * @param {import("./types.js").SubscribeOptions} [options]
   * @returns {Subscription<P[K]>}
   */
  leases(topic, group, options = {}) {
    return this.add(topic, group, options);
  }

  /**
   * Ends the subscription to a topic in a group.
   * @param {string} topic
   * @param {string} group
   * @param {import("./types.js").WaitOptions} [limits]
   */
  async unsubscribe(topic, group, limits) {
    const subscription = this.subscriptions.get(`${topic} ${group}`);
    if (!subscription)
      throw new PrometheanError("not_subscribed", `this client has no subscription to \`${topic}\` in \`${group}\``);
    await subscription.close(limits);
  }

  /**
   * One topic with the type of its payload: `client.topic<Heartbeat>("heartbeat.received")`.
   * @template {keyof P & string} K
   * @overload
   * @param {K} name
   * @returns {Topic<P[K]>}
   */
  /**
   * @template T
   * @overload
   * @param {string} name
   * @returns {Topic<T>}
   */
  /**
   * @param {string} name
   * @returns {any}
   */
  topic(name) {
    return new Topic(/** @type {any} */ (this), name);
  }

  /** Shows a new token on the open connection. Tokens from a function are renewed before they expire without this. */
  renewToken() {
    return this.connection.renewToken();
  }

  /**
   * Closes the client and loses nothing: waits for handlers, which may still publish, and their acks, gives all other
   * events back, then refuses publishes and waits for those that were made. After `timeoutMs` it closes anyway and rejects.
   * @param {import("./types.js").WaitOptions} [limits]
   */
  async close({ signal, timeoutMs = 30_000 } = {}) {
    this.isClosing = true;
    const timeout = AbortSignal.timeout(timeoutMs);
    const limit = signal ? AbortSignal.any([signal, timeout]) : timeout;
    const subscriptions = [...this.subscriptions.values()].map((subscription) =>
      subscription.close({ timeoutMs, ...(signal && { signal }) }),
    );
    // Handlers that run may publish: if they could not, their events would be given back as failed.
    const results = await Promise.allSettled(subscriptions);
    results.push(...(await Promise.allSettled([this.publisher.drain(limit)])));
    const unsent = this.publisher.pending;
    this.publisher.fail(new PrometheanError("client_closed", "the client was closed before the server answered"));
    this.connection.close();
    if (unsent > 0)
      throw new PrometheanError("timeout", `${unsent} publishes had no answer when the client was closed`);
    for (const result of results) if (result.status === "rejected") throw result.reason;
  }

  /** Closes the client at the end of an `await using` block. */
  [Symbol.asyncDispose]() {
    return this.close();
  }

  /**
   * @private
   * @param {string} topic
   * @param {string} group
   * @param {import("./types.js").SubscribeOptions} options
   * @param {import("./subscription.js").Handler} [handler]
   */
  add(topic, group, options, handler) {
    if (this.isClosing || this.state === "closed") throw this.connection.overError();
    const key = `${topic} ${group}`;
    if (this.subscriptions.has(key)) {
      const message =
        `this client has a subscription to \`${topic}\` in \`${group}\`; ` +
        "raise its `concurrency`, use another group, or create a second client";
      throw new PrometheanError("already_subscribed", message);
    }
    this.connection.start();
    const onError = options.onError ?? this.onError;
    const ended = () => this.subscriptions.delete(key);
    const subscription = new Subscription(this.connection, topic, group, { ...options, onError }, handler, { ended });
    this.subscriptions.set(key, subscription);
    return subscription;
  }

  /** @private */
  up() {
    for (const subscription of this.subscriptions.values()) subscription.up();
    this.publisher.up();
  }

  /**
   * @private
   * @param {number} code
   */
  down(code) {
    this.publisher.down(code);
    for (const subscription of this.subscriptions.values()) subscription.down();
  }

  /**
   * @private
   * @param {PrometheanError} error
   */
  failed(error) {
    this.publisher.fail(error);
    for (const subscription of [...this.subscriptions.values()]) subscription.end(error);
  }

  /**
   * @private
   * @param {import("./types.js").ServerFrame} frame
   */
  receive(frame) {
    const subscription = this.subscriptions.get(`${frame.topic} ${frame.group}`);
    if (frame.op === "ERR") return this.refused(frame, subscription);
    subscription?.receive(frame);
  }

  /**
   * An `ERR` that answers no frame tells that a subscription ended.
   * @private
   * @param {import("./types.js").ServerFrame} frame
   * @param {Subscription | undefined} named The subscription that the frame names.
   */
  refused(frame, named) {
    const error = refusal(frame);
    // Servers that do not name it in fields name it in the message.
    const isMeant = (/** @type {Subscription} */ { topic, group }) =>
      error.message.includes(`\`${topic}\` in \`${group}\``) || error.message.includes(`subscribe:${topic}\``);
    const ended = named ? [named] : [...this.subscriptions.values()].filter(isMeant);
    for (const subscription of ended) subscription.endedByServer(error);
    if (ended.length === 0) inform(this.onError, error);
  }
}
