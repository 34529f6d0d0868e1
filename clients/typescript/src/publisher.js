/**
 * Publishing: frames leave without waiting for earlier answers, and are sent again with the same ids until the
 * server has answered.
 * @module
 */

import { unreachable } from "./address.js";
import { backoffMs, waitFor } from "./backoff.js";
import { PrometheanError, refusal } from "./errors.js";
import { encodeBatch, encodeMinted, encodePayload, encodePublish } from "./frames.js";
import { newId } from "./id.js";
import { Outbox } from "./outbox.js";
import { PublishEntry, answerOf } from "./publish_entry.js";

/** Refusals after which the client itself tries again. */
const TRY_AGAIN = new Set(["auth_unavailable", "busy", "closed", "rate_limited", "unknown_outcome"]);
/** How often overdue publishes are looked for. */
const SWEEP_MS = 250;
const MESSAGE_BYTES_MAX = 16 * 1024 * 1024;
const MESSAGE_TOO_LONG = 1009;

/**
 * @typedef {object} PublisherOptions
 * @property {number} [maxOutstanding] The most frames that are sent and not answered (1024).
 * @property {number} [maxQueued] The most frames that wait to be sent (10000).
 * @property {number} [maxQueuedBytes] The most characters of frames in all (64 Mi).
 * @property {number} [publishTimeoutMs] How long a publish is tried (60000).
 */

/** The publishes of a client. */
export class Publisher {
  /**
   * @param {import("./connection.js").Connection} connection
   * @param {PublisherOptions} options
   */
  constructor(
    connection,
    { maxOutstanding = 1024, maxQueued = 10_000, maxQueuedBytes = 64 << 20, publishTimeoutMs = 60_000 },
  ) {
    /** @private */
    this.connection = connection;
    /** @private */
    this.limits = { maxOutstanding, maxQueued, maxQueuedBytes, publishTimeoutMs };
    /** @private */
    this.outbox = new Outbox();
    /** @private @type {Set<() => void>} */
    this.watchers = new Set();
    /** @private @type {any} */
    this.sweepTimer = undefined;
    /** @private Set while the server wants nothing. @type {any} */
    this.pauseTimer = undefined;
    /** @private */
    this.isClosing = false;
  }

  /** How many publishes have no answer yet. */
  get pending() {
    return this.outbox.pending;
  }

  /**
   * Publishes one event.
   * @param {string} topic
   * @param {unknown} payload
   * @param {import("./types.js").PublishOptions & import("./types.js").WaitOptions} [options]
   * @returns {Promise<import("./types.js").Published>}
   */
  publish(topic, payload, options) {
    try {
      const json = encodePayload(payload);
      const corr = this.connection.nextCorr();
      if (options === undefined) {
        const id = newId();
        return this.add({ corr, id, text: encodeMinted(nameOf(topic), json, id, corr) });
      }
      const { signal, timeoutMs, ...opts } = options;
      const id = (opts.id ??= newId());
      return this.add({ corr, id, text: encodePublish(nameOf(topic), json, opts, corr) }, signal, timeoutMs);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /**
   * Publishes several events in one commit: all of them, or none.
   * @param {import("./types.js").EventToPublish[]} events
   * @param {import("./types.js").WaitOptions} [options]
   * @returns {Promise<import("./types.js").PublishedBatch>}
   */
  publishMany(events, { signal, timeoutMs } = {}) {
    try {
      const items = events.map(({ topic, payload, opts }) => {
        return { topic: nameOf(topic), payload, opts: { ...opts, id: opts?.id ?? newId() } };
      });
      const corr = this.connection.nextCorr();
      return this.add({ corr, id: items[0]?.opts.id ?? "", text: encodeBatch(items, corr) }, signal, timeoutMs);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /**
   * Waits until there is room for another publish.
   * @param {import("./types.js").WaitOptions} [options]
   */
  async room({ signal } = {}) {
    const { outbox, limits } = this;
    await this.until(() => outbox.outstanding.size < limits.maxOutstanding && outbox.queued === 0, signal);
  }

  /**
   * Waits until every publish has its answer. Publishes that are made meanwhile are refused.
   * @param {AbortSignal} [signal]
   */
  async drain(signal) {
    this.isClosing = true;
    await this.until(() => this.pending === 0, signal);
  }

  /** The connection is open: sends first what has no answer from the last connection. */
  up() {
    this.flush();
  }

  /**
   * The connection ended. What was sent is sent again, in the same order, on the next one.
   * @param {number} closeCode
   */
  down(closeCode) {
    const { outbox } = this;
    const sent = [...outbox.outstanding.values()].filter((entry) => !entry.isDone);
    if (closeCode === MESSAGE_TOO_LONG && sent.length > 0) {
      // Sent again, the frame that was too long would end every connection.
      const longest = sent.reduce((a, b) => (b.text.length > a.text.length ? b : a));
      const message = "the server closed the connection because a message is too long; send less at once";
      if (outbox.finish(longest)) longest.reject(new PrometheanError("too_large", message));
    }
    outbox.putAllBack();
    this.notify();
  }

  /**
   * Ends all publishes that have no answer.
   * @param {PrometheanError} error
   */
  fail(error) {
    clearInterval(this.sweepTimer);
    clearTimeout(this.pauseTimer);
    for (const entry of this.outbox.clear()) {
      if (this.outbox.finish(entry)) entry.reject(entry.error(error.code, error.message, error));
    }
    this.notify();
  }

  /**
   * @private
   * @param {{corr: number, id: string, text: string}} frame `id` is the id of its first event.
   * @param {AbortSignal} [signal]
   * @param {number} [timeoutMs]
   * @returns {Promise<any>}
   */
  add(frame, signal, timeoutMs = this.limits.publishTimeoutMs) {
    const { connection, outbox } = this;
    if (this.isClosing || connection.state === "closed") throw connection.overError();
    if (signal?.aborted) throw signal.reason;
    if (outbox.queued >= this.limits.maxQueued || outbox.size > this.limits.maxQueuedBytes) {
      const message = `${this.pending} publishes wait for the server; await each one, or await \`room()\` before the next`;
      throw new PrometheanError("outbox_full", message);
    }
    const { length } = frame.text;
    if (length > MESSAGE_BYTES_MAX) {
      throw new PrometheanError("too_large", `the frame has ${length} characters, more than 16 MiB; send less at once`);
    }
    connection.start();
    this.sweepTimer ??= setInterval(() => this.sweep(), SWEEP_MS);
    return new Promise((resolve, reject) => {
      const entry = new PublishEntry(this, frame, performance.now() + timeoutMs, resolve, reject);
      outbox.push(entry);
      if (signal) this.watchAbort(entry, signal);
      this.flush();
    });
  }

  /**
   * @private
   * @param {PublishEntry} entry
   * @param {AbortSignal} signal
   */
  watchAbort(entry, signal) {
    const abort = () => this.drop(entry, signal.reason);
    signal.addEventListener("abort", abort, { once: true });
    const { resolve, reject } = entry;
    entry.resolve = (answer) => (signal.removeEventListener("abort", abort), resolve(answer));
    entry.reject = (error) => (signal.removeEventListener("abort", abort), reject(error));
  }

  /** @private Sends what may be sent. */
  flush() {
    const { connection, outbox } = this;
    if (connection.state !== "open" || this.pauseTimer !== undefined) return;
    while (outbox.outstanding.size < this.limits.maxOutstanding) {
      const entry = outbox.next();
      if (!entry) return;
      entry.isSent = true;
      entry.isRefused = false;
      connection.send(entry.text, entry.corr, entry);
    }
  }

  /**
   * @internal
   * @param {PublishEntry} entry
   * @param {import("./types.js").ServerFrame} frame
   */
  answered(entry, frame) {
    this.outbox.outstanding.delete(entry.corr);
    // A caller that stopped waiting gets no answer; its frame only kept its place.
    if (!entry.isDone) {
      if (frame.op === "ERR") this.refused(entry, refusal(frame));
      else if (this.outbox.finish(entry)) entry.resolve(answerOf(frame));
    }
    this.flush();
    this.notify();
  }

  /**
   * @private
   * @param {PublishEntry} entry
   * @param {PrometheanError} error
   */
  refused(entry, error) {
    // A batch over the limit is refused without a time to wait: it never fits.
    const isFinal = !TRY_AGAIN.has(error.code) || (error.code === "rate_limited" && error.retryAfterMs === undefined);
    if (isFinal) {
      if (this.outbox.finish(entry)) entry.reject(error);
      return;
    }
    entry.tries++;
    entry.refusal = error;
    entry.isRefused = true;
    this.outbox.putBack(entry);
    this.pauseTimer ??= setTimeout(
      () => {
        this.pauseTimer = undefined;
        this.flush();
      },
      Math.max(1, error.retryAfterMs ?? backoffMs(entry.tries)),
    );
  }

  /**
   * Ends the wait of a publish without an answer. A sent frame stays outstanding, because its answer will come.
   * @private
   * @param {PublishEntry} entry
   * @param {unknown} error
   */
  drop(entry, error) {
    if (this.outbox.finish(entry)) entry.reject(error);
    this.outbox.remove(entry);
    this.notify();
  }

  /** @private Ends publishes whose time is over. */
  sweep() {
    const { connection } = this;
    if (this.pending === 0) {
      clearInterval(this.sweepTimer);
      this.sweepTimer = undefined;
      return;
    }
    const now = performance.now();
    const away =
      connection.state === "open"
        ? undefined
        : (connection.failure ?? unreachable(connection.address, "no connection yet"));
    for (const entry of this.outbox.all()) {
      if (entry.overdueAt > now || entry.isDone) continue;
      const cause = away ?? entry.refusal;
      const why = cause?.message ?? "the server did not answer in time";
      const isRefused = entry.isRefused && !away;
      this.drop(entry, isRefused ? entry.refusal : entry.error("timeout", `the publish was given up: ${why}`, cause));
    }
  }

  /** @private */
  notify() {
    if (this.watchers.size > 0) for (const watcher of [...this.watchers]) watcher();
  }

  /**
   * @private
   * @param {() => boolean} isTrue
   * @param {AbortSignal} [signal]
   */
  async until(isTrue, signal) {
    if (isTrue()) return;
    await waitFor(
      (resolve) => {
        const look = () => isTrue() && resolve();
        this.watchers.add(look);
        return () => this.watchers.delete(look);
      },
      { signal },
    );
  }
}

/**
 * @param {unknown} topic
 * @returns {string}
 */
function nameOf(topic) {
  if (typeof topic === "string") return topic;
  const kind = topic === null ? "null" : typeof topic;
  throw new PrometheanError("bad_name", `the topic is ${kind}; give its name, for example "orders.placed"`);
}
