/**
 * Publishing: frames leave without waiting for earlier answers, and are sent again with the same ids until the
 * server has answered.
 * @module
 */

import { backoffMs, waitFor } from "./backoff.js";
import { PrometheanError, refusal } from "./errors.js";
import { encodeBatch, encodePayload, encodePublish } from "./frames.js";
import { newId } from "./id.js";

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

/** One `PUBLISH` frame that is not answered yet. It waits for its own answer. */
class Entry {
  /**
   * @param {Publisher} publisher
   * @param {number} corr
   * @param {string} text
   * @param {string} first The id of its first event.
   * @param {number} overdueAt
   * @param {(answer: any) => void} resolve
   * @param {(error: unknown) => void} reject
   */
  constructor(publisher, corr, text, first, overdueAt, resolve, reject) {
    this.publisher = publisher;
    this.corr = corr;
    this.text = text;
    this.first = first;
    this.overdueAt = overdueAt;
    this.resolve = resolve;
    this.reject = reject;
    /** Whether it was sent at least once: then it may have been published. */
    this.isSent = false;
    this.isDone = false;
    /** How often the server asked to try again. */
    this.tries = 0;
    /** The last such answer, until the frame is sent again. @type {PrometheanError | undefined} */
    this.refusal = undefined;
  }

  /** @param {import("./types.js").ServerFrame} frame */
  reply(frame) {
    this.publisher.answered(this, frame);
  }

  /** The publisher sends it again on the next connection. */
  lost() {}
}

export class Publisher {
  /**
   * @param {import("./connection.js").Connection} connection
   * @param {PublisherOptions} options
   */
  constructor(connection, { maxOutstanding = 1024, maxQueued = 10_000, maxQueuedBytes = 64 << 20, publishTimeoutMs = 60_000 }) {
    /** @private */
    this.connection = connection;
    /** @private */
    this.limits = { maxOutstanding, maxQueued, maxQueuedBytes, publishTimeoutMs };
    /** @private Sent and not answered, in the order of sending. @type {Map<number, Entry>} */
    this.outstanding = new Map();
    /** @private Not sent on this connection. @type {Entry[]} */
    this.queue = [];
    /** @private The queue begins here; what is before has left. */
    this.head = 0;
    /** @private */
    this.bytes = 0;
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
    return this.outstanding.size + this.queue.length - this.head;
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
      if (options === undefined) {
        const id = newId();
        return this.add((corr) => encodePublish(nameOf(topic), json, { id }, corr), id);
      }
      const { signal, timeoutMs, ...opts } = options;
      opts.id ??= newId();
      return this.add((corr) => encodePublish(nameOf(topic), json, opts, corr), opts.id, signal, timeoutMs);
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
      const items = events.map(({ topic, payload, opts }) => ({ topic: nameOf(topic), payload, opts: { ...opts, id: opts?.id ?? newId() } }));
      return this.add((corr) => encodeBatch(items, corr), items[0]?.opts.id ?? "", signal, timeoutMs);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /**
   * Waits until there is room for another publish.
   * @param {import("./types.js").WaitOptions} [options]
   */
  async room({ signal } = {}) {
    await this.until(() => this.outstanding.size < this.limits.maxOutstanding && this.queue.length === this.head, signal);
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
    const unanswered = [...this.outstanding.values()].filter((entry) => !entry.isDone);
    this.outstanding.clear();
    if (closeCode === MESSAGE_TOO_LONG && unanswered.length > 0) {
      // Sent again, the frame that was too long would end every connection.
      const longest = unanswered.reduce((a, b) => (b.text.length > a.text.length ? b : a));
      const error = new PrometheanError("too_large", "the server closed the connection because a message is too long; send less at once");
      if (this.finish(longest)) longest.reject(error);
    }
    this.queue = [...unanswered.filter((entry) => !entry.isDone), ...this.queue.slice(this.head)];
    this.head = 0;
  }

  /**
   * Ends all publishes that have no answer.
   * @param {PrometheanError} error
   */
  fail(error) {
    clearInterval(this.sweepTimer);
    clearTimeout(this.pauseTimer);
    const entries = [...this.outstanding.values(), ...this.queue.slice(this.head)];
    this.outstanding.clear();
    this.queue = [];
    this.head = 0;
    for (const entry of entries) if (this.finish(entry)) entry.reject(ofEntry(error.code, error.message, entry, error));
    this.notify();
  }

  /**
   * @private
   * @param {(corr: number) => string} encode
   * @param {string} first
   * @param {AbortSignal} [signal]
   * @param {number} [timeoutMs]
   * @returns {Promise<any>}
   */
  add(encode, first, signal, timeoutMs = this.limits.publishTimeoutMs) {
    if (this.isClosing || this.connection.state === "closed") throw this.connection.overError();
    if (signal?.aborted) throw signal.reason;
    const { maxQueued, maxQueuedBytes } = this.limits;
    if (this.queue.length - this.head >= maxQueued || this.bytes > maxQueuedBytes) {
      const message = `${this.pending} publishes wait for the server; await each publish, or await \`room()\` before the next`;
      throw new PrometheanError("outbox_full", message);
    }
    const corr = this.connection.nextCorr();
    const text = encode(corr);
    if (text.length > MESSAGE_BYTES_MAX) {
      throw new PrometheanError("too_large", `the frame has ${text.length} characters, more than 16 MiB; send less at once`);
    }
    this.connection.start();
    this.sweepTimer ??= setInterval(() => this.sweep(), SWEEP_MS);
    return new Promise((resolve, reject) => {
      const entry = new Entry(this, corr, text, first, performance.now() + timeoutMs, resolve, reject);
      this.bytes += text.length;
      this.queue.push(entry);
      if (signal) this.watchAbort(entry, signal);
      this.flush();
    });
  }

  /**
   * @private
   * @param {Entry} entry
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
    const { connection, outstanding, queue } = this;
    if (connection.state !== "open" || this.pauseTimer !== undefined) return;
    while (this.head < queue.length && outstanding.size < this.limits.maxOutstanding) {
      const entry = queue[this.head++];
      entry.isSent = true;
      entry.refusal = undefined;
      outstanding.set(entry.corr, entry);
      connection.send(entry.text, entry.corr, entry);
    }
    if (this.head === queue.length) {
      queue.length = this.head = 0;
    } else if (this.head > 1024 && this.head * 2 > queue.length) {
      queue.splice(0, this.head);
      this.head = 0;
    }
  }

  /**
   * @internal
   * @param {Entry} entry
   * @param {import("./types.js").ServerFrame} frame
   */
  answered(entry, frame) {
    this.outstanding.delete(entry.corr);
    // A caller that stopped waiting gets no answer; its frame only kept its place.
    if (!entry.isDone) {
      if (frame.op === "ERR") this.refused(entry, refusal(frame));
      else if (this.finish(entry)) entry.resolve(answerOf(frame));
    }
    this.flush();
    this.notify();
  }

  /**
   * @private
   * @param {Entry} entry
   * @param {PrometheanError} error
   */
  refused(entry, error) {
    // A batch over the limit is refused without a time to wait: it never fits.
    const isFinal = !TRY_AGAIN.has(error.code) || (error.code === "rate_limited" && error.retryAfterMs === undefined);
    if (isFinal) {
      if (this.finish(entry)) entry.reject(error);
      return;
    }
    entry.tries++;
    entry.refusal = error;
    // The queue stays in the order of the publishes.
    const rest = this.queue.slice(this.head);
    const at = rest.findIndex((other) => other.corr > entry.corr);
    rest.splice(at < 0 ? rest.length : at, 0, entry);
    this.queue = rest;
    this.head = 0;
    const wait = error.retryAfterMs ?? backoffMs(entry.tries);
    this.pauseTimer ??= setTimeout(() => {
      this.pauseTimer = undefined;
      this.flush();
    }, Math.max(1, wait));
  }

  /**
   * Ends the wait of a publish without an answer.
   * @private
   * @param {Entry} entry
   * @param {unknown} error
   */
  drop(entry, error) {
    if (this.finish(entry)) entry.reject(error);
    // A sent frame stays outstanding, because its answer will come.
    const at = this.queue.indexOf(entry, this.head);
    if (at >= 0) this.queue.splice(at, 1);
    this.notify();
  }

  /**
   * Marks an entry as done; false if it was done already.
   * @private
   * @param {Entry} entry
   */
  finish(entry) {
    if (entry.isDone) return false;
    entry.isDone = true;
    this.bytes -= entry.text.length;
    return true;
  }

  /** @private */
  notify() {
    if (this.watchers.size > 0) for (const watcher of [...this.watchers]) watcher();
  }

  /** @private */
  sweep() {
    if (this.pending === 0) {
      clearInterval(this.sweepTimer);
      this.sweepTimer = undefined;
      return;
    }
    const now = performance.now();
    const { connection } = this;
    const why = connection.state === "open" ? "the server did not answer in time" : (connection.failure?.message ?? "there is no connection");
    for (const entry of [...this.outstanding.values(), ...this.queue.slice(this.head)]) {
      if (entry.overdueAt > now || entry.isDone) continue;
      this.drop(entry, entry.refusal ?? ofEntry("timeout", `the publish was given up: ${why}`, entry, connection.failure));
    }
  }

  /**
   * @private
   * @param {() => boolean} isTrue
   * @param {AbortSignal} [signal]
   */
  async until(isTrue, signal) {
    if (isTrue()) return;
    await waitFor((resolve) => {
      const look = () => isTrue() && resolve();
      this.watchers.add(look);
      return () => this.watchers.delete(look);
    }, { signal });
  }
}

/**
 * The error of a publish that ends without an answer. It names the id, so that the caller can try again with it.
 * @param {string} code
 * @param {string} message
 * @param {Entry} entry
 * @param {unknown} cause
 */
function ofEntry(code, message, { first: id, isSent }, cause) {
  const outcome = isSent ? `it may have been published; try again with id ${id}` : "it was not sent";
  return new PrometheanError(code, `${message}; ${outcome}`, { id, sideEffects: isSent, cause });
}

/**
 * The answer in an `OK` frame. Answers to one event, the most frequent, are copied field by field, which is fastest.
 * @param {import("./types.js").ServerFrame} frame
 */
function answerOf(frame) {
  if (frame.count !== undefined) {
    const { op, corr, ...batch } = frame;
    return batch;
  }
  const { id, topic, offset, ts, durability, partition, duplicate } = frame;
  /** @type {import("./types.js").Published} */
  const published = { id, topic, offset, ts, durability };
  if (partition !== undefined) published.partition = partition;
  if (duplicate !== undefined) published.duplicate = duplicate;
  return published;
}

/**
 * @param {unknown} topic
 * @returns {string}
 */
function nameOf(topic) {
  if (typeof topic === "string") return topic;
  throw new PrometheanError("bad_name", `the topic is ${topic === null ? "null" : typeof topic}; give its name, for example "orders.placed"`);
}
