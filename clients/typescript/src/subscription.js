/**
 * A subscription: leases as they come, for a handler, a loop or a fetch.
 * @module
 */

import { Acks } from "./acks.js";
import { backoffMs, waitFor } from "./backoff.js";
import { PrometheanError, reasonOf } from "./errors.js";
import { Extender } from "./extender.js";
import { Lease, lostError } from "./lease.js";

/** Refusals of a `SUBSCRIBE` after which the client itself tries again. */
const TRY_AGAIN = new Set(["auth_unavailable", "busy", "closed", "rate_limited", "timeout", "topic_deleted"]);
/** The most events that are remembered because their handler is done and their ack may be lost. */
const FINISHED_MAX = 10_000;
const HOUR_MS = 3_600_000;

/**
 * @template [T=any]
 * @typedef {(event: import("./types.js").BusEvent<T>, lease: Lease<T>) => unknown} Handler
 */

/**
 * A member of a group. It survives reconnects. Loop over it (`for await`), give it a handler, or, with `pull: true`,
 * call `fetch`.
 * @template [T=any]
 */
export class Subscription {
  /**
   * @param {import("./connection.js").Connection} connection
   * @param {string} topic
   * @param {string} group
   * @param {import("./types.js").SubscribeOptions} options
   * @param {Handler<T>} [handler]
   * @param {{ended: () => void}} [owner]
   */
  constructor(connection, topic, group, options, handler, owner) {
    const { concurrency = 1, autoExtend = true, maxLeaseMs = HOUR_MS, signal, onRebalance, onError, ...opts } = options;
    /** The topic or pattern. */
    this.topic = topic;
    /** The group. */
    this.group = group;
    /** @private */
    this.connection = connection;
    /** @private */
    this.handler = handler;
    /** @private */
    this.owner = owner;
    /** @private */
    this.opts = opts;
    /** @private */
    this.concurrency = concurrency;
    /** @private */
    this.onRebalance = onRebalance;
    /** @private */
    this.onError = onError;
    /** @private Leases that are not settled, by event. @type {Map<string, Lease<T>>} */
    this.held = new Map();
    /** @private Leases that nobody has taken. @type {Lease<T>[]} */
    this.queue = [];
    /** @private Events whose handler is done but whose ack has no answer. @type {Set<string>} */
    this.finished = new Set();
    /** @private */
    this.running = 0;
    /** @private */
    this.isPaused = false;
    /** @private @type {"starting" | "active" | "closing" | "ended"} */
    this.state = "starting";
    /** @private @type {PrometheanError | undefined} */
    this.failure = undefined;
    /** @private @type {Set<() => void>} */
    this.watchers = new Set();
    /** @private @type {any} */
    this.retryTimer = undefined;
    /** @private */
    this.tries = 0;
    /** @private Grows with each `SUBSCRIBE` and each lost connection: an answer of an earlier epoch is too late. */
    this.epoch = 0;
    /** @private */
    this.acks = new Acks(connection, this.target, {
      unknown: (acks) => handler && acks.forEach(({ lease }) => this.remember(lease)),
      stale: () => handler && this.report(lostError()),
      answered: () => this.state === "closing" && this.notify(),
    });
    /** @private */
    this.extender = autoExtend
      ? new Extender(() => this.held.values(), (ids, extend_ms) => this.ask("MODACK", { ids, extend_ms }), maxLeaseMs)
      : undefined;
    /** @private */
    this.signal = signal;
    /** @private */
    this.abort = () => void this.close().catch(() => {});
    signal?.addEventListener("abort", this.abort, { once: true });
    if (signal?.aborted) this.abort();
    else this.up();
  }

  /** Resolves when the server has accepted the subscription; rejects if it is refused. */
  get ready() {
    return this.until(() => this.state !== "starting").then(() => {
      if (this.failure) throw this.failure;
      return this;
    });
  }

  /** How many events this member has that are not finished; acks count until the server has answered them. */
  get inFlight() {
    return this.held.size + this.acks.pending;
  }

  /**
   * Asks for events, in a subscription with `pull: true`. Resolves with at least one lease, or with none after
   * `waitMs`.
   * @param {{max?: number, waitMs?: number, signal?: AbortSignal}} [options]
   * @returns {Promise<Lease<T>[]>}
   */
  async fetch({ max, waitMs = 1000, signal } = {}) {
    await this.ready;
    const frame = await this.ask("FETCH", { max, wait_ms: waitMs }, { signal, timeoutMs: waitMs + 15_000 });
    const leases = this.accept(frame.events);
    this.queue = [];
    return leases;
  }

  /** Stops deliveries until `resume`. Handlers that run are not interrupted. */
  async pause() {
    this.isPaused = true;
    if (this.state === "active") await this.ask("PAUSE");
  }

  /** Starts deliveries again. */
  async resume() {
    this.isPaused = false;
    if (this.state === "active") await this.ask("RESUME");
    this.pump();
  }

  /**
   * Moves the cursor of the group. With `dryRun`, only tells what would happen.
   * @param {import("./types.js").StartOptions & {dryRun?: boolean}} to
   * @returns {Promise<{from: number, to: number, replayed: number, skipped: number, applied: boolean}>}
   */
  async seek(to) {
    await this.ready;
    this.acks.flush();
    const { op, corr, ...report } = await this.ask("SEEK", { opts: to });
    return /** @type {any} */ (report);
  }

  /**
   * Leaves the group: waits until the events that are being handled are settled, and gives all others back, which
   * does not count as an attempt. Rejects with `timeout` if handlers still ran and their events were given back too.
   * @param {import("./types.js").WaitOptions} [limits]
   */
  async close({ signal, timeoutMs = 30_000 } = {}) {
    if (this.state === "ended") return;
    this.state = "closing";
    this.notify();
    const late = () => new PrometheanError("timeout", `handlers of \`${this.topic}\` in \`${this.group}\` still ran; their events are given back`);
    const isIdle = () => (this.handler ? this.running === 0 : this.held.size === this.queue.length);
    let failure;
    try {
      await this.until(() => isIdle() || this.isOver(), { signal, timeoutMs, late });
      this.acks.flush();
      await this.until(() => this.acks.pending === 0 || this.isOver(), { signal, timeoutMs, late });
    } catch (error) {
      failure = error;
    }
    await this.leave();
    if (failure) throw failure;
  }

  /** Closes the subscription at the end of an `await using` block. */
  [Symbol.asyncDispose]() {
    return this.close();
  }

  /**
   * Gives each lease to a loop. Ack each lease; leaving the loop closes the subscription.
   * @returns {AsyncGenerator<Lease<T>, void, void>}
   */
  async *[Symbol.asyncIterator]() {
    if (this.handler) throw new PrometheanError("bad_use", "this subscription has a handler; remove the handler to loop over leases");
    try {
      while (true) {
        await this.until(() => this.state === "ended" || this.state === "closing" || this.queue.length > 0);
        const lease = this.state === "active" || this.state === "starting" ? this.queue.shift() : undefined;
        if (lease) {
          yield lease;
        } else if (this.state !== "active" && this.state !== "starting") {
          if (this.failure) throw this.failure;
          return;
        }
      }
    } finally {
      this.acks.flush();
      await this.leave();
    }
  }

  /**
   * @internal
   * @param {Lease<T>} lease
   * @returns {Promise<void>}
   */
  ack(lease) {
    if (lease.state === "settled") return Promise.resolve();
    if (lease.state === "lost") {
      this.forget(lease);
      return Promise.reject(lostError());
    }
    this.settle(lease);
    // The answer to several acks does not tell which lease was over, so one that seems over goes alone.
    if (lease.until < performance.now()) {
      return this.ask("ACK", { id: lease.event.id }).then((frame) => {
        if (frame.stale) throw lostError();
      });
    }
    return new Promise((resolve, reject) => this.acks.add({ lease, resolve, reject }));
  }

  /**
   * @internal
   * @param {Lease<T>} lease
   * @param {{delayMs?: number, reason?: string}} [options]
   */
  async nack(lease, { delayMs, reason } = {}) {
    if (lease.state === "settled") return;
    if (lease.state === "lost") {
      this.forget(lease);
      throw lostError();
    }
    this.settle(lease);
    const { stale } = await this.ask("NACK", { id: lease.event.id, delay_ms: delayMs, reason });
    if (stale) throw lostError();
  }

  /**
   * @internal
   * @param {Lease<T>} lease
   * @param {number} [ms]
   */
  async extend(lease, ms) {
    if (lease.state !== "held") throw lostError();
    const sentAt = performance.now();
    const lasts = ms ?? lease.ack_deadline_ms;
    const { stale } = await this.ask("MODACK", { id: lease.event.id, extend_ms: lasts }).catch((error) => {
      if (error.code === "unknown_id") return { stale: true };
      throw error;
    });
    if (!stale) return void (lease.until = sentAt + lasts);
    lease.lose();
    throw lostError();
  }

  /** @internal The connection is open: subscribes, for the first time or again. */
  up() {
    if (this.state === "closing" || this.state === "ended" || this.connection.state !== "open") return;
    const epoch = ++this.epoch;
    const isCurrent = () => epoch === this.epoch;
    this.ask("SUBSCRIBE", { batch: true, opts: this.opts }).then(
      () => isCurrent() && this.subscribed(),
      (error) => isCurrent() && this.refused(error),
    );
  }

  /** @internal The connection ended: the server has taken all leases back. */
  down() {
    this.epoch++;
    clearTimeout(this.retryTimer);
    for (const lease of this.queue) this.held.delete(this.keyOf(lease.event));
    this.queue = [];
    for (const lease of this.held.values()) lease.lose();
    this.notify();
  }

  /**
   * @internal
   * @param {import("./types.js").ServerFrame} frame
   */
  receive(frame) {
    if (frame.op === "REBALANCE") {
      const { epoch, assigned, revoked } = frame;
      return this.onRebalance?.({ epoch, assigned, revoked });
    }
    this.accept(frame.op === "EVENT" ? [frame] : frame.events);
    this.pump();
    this.notify();
  }

  /**
   * The subscription is over, by the server's or the client's decision.
   * @internal
   * @param {PrometheanError} [failure]
   */
  end(failure) {
    if (this.state === "ended") return;
    this.state = "ended";
    this.failure = failure;
    clearTimeout(this.retryTimer);
    this.signal?.removeEventListener("abort", this.abort);
    this.extender?.stop();
    for (const lease of this.held.values()) lease.lose();
    this.held.clear();
    this.queue = [];
    this.owner?.ended();
    this.notify();
    if (failure) this.report(failure);
  }

  /** @private */
  get target() {
    return { topic: this.topic, group: this.group };
  }

  /** @private */
  subscribed() {
    if (this.state === "starting") this.state = "active";
    this.tries = 0;
    if (this.isPaused) this.ask("PAUSE").catch(() => {});
    this.notify();
  }

  /**
   * @private
   * @param {PrometheanError} error
   */
  refused(error) {
    // The answer to an earlier try was too slow: the server has this subscription.
    if (error.code === "already_subscribed" && this.tries > 0) return this.subscribed();
    if (!TRY_AGAIN.has(error.code)) return this.end(error);
    clearTimeout(this.retryTimer);
    this.retryTimer = setTimeout(() => this.up(), error.retryAfterMs ?? backoffMs(++this.tries));
  }

  /**
   * Takes deliveries over. An event whose handler still runs under a lost lease continues under the new one; an event
   * whose handler is done is acked again.
   * @private
   * @param {{event: import("./types.js").BusEvent<T>, ctx: {attempt: number, ack_deadline_ms: number}}[]} items
   * @returns {Lease<T>[]} The new leases.
   */
  accept(items) {
    const leases = [];
    const isManual = this.opts.manualAck !== false;
    for (const { event, ctx } of items) {
      const key = this.keyOf(event);
      const earlier = this.held.get(key);
      if (earlier && this.extender) {
        earlier.renew(ctx);
        continue;
      }
      earlier?.lose();
      const lease = new Lease(this, event, ctx);
      if (this.finished.size > 0 && this.finished.delete(key)) {
        this.acks.add({ lease });
        continue;
      }
      if (isManual) this.held.set(key, lease);
      else lease.state = "settled";
      leases.push(lease);
      this.queue.push(lease);
    }
    if (isManual && items.length > 0) this.extender?.arrived(items[0].ctx.ack_deadline_ms);
    return leases;
  }

  /** @private Starts handlers, up to the concurrency. */
  pump() {
    const { handler } = this;
    if (!handler) return;
    while (this.running < this.concurrency && !this.isPaused && this.state !== "closing") {
      const lease = this.queue.shift();
      if (!lease) return;
      this.running++;
      let result;
      try {
        result = handler(lease.event, lease);
      } catch (error) {
        this.failed(lease, error);
        continue;
      }
      if (typeof (/** @type {any} */ (result)?.then) !== "function") this.done(lease);
      else Promise.resolve(result).then(() => this.done(lease), (error) => this.failed(lease, error)).then(() => this.pump());
    }
  }

  /**
   * @private
   * @param {Lease<T>} lease
   */
  done(lease) {
    this.running--;
    if (lease.state === "held") {
      this.settle(lease);
      this.acks.add({ lease });
    } else if (lease.state === "lost") {
      this.remember(lease);
    }
    if (this.state === "closing") this.notify();
  }

  /**
   * @private
   * @param {Lease<T>} lease
   * @param {unknown} error
   */
  failed(lease, error) {
    this.running--;
    this.report(error instanceof Error ? error : new Error(String(error)), lease.event);
    if (lease.state === "held") {
      const delayMs = /** @type {any} */ (error)?.delayMs;
      this.nack(lease, { reason: reasonOf(error), delayMs: typeof delayMs === "number" ? delayMs : undefined }).catch(() => {});
    } else {
      this.forget(lease);
    }
    if (this.state === "closing") this.notify();
  }

  /**
   * Remembers that the handler of an event is done, so that the event is only acked when it comes again.
   * @private
   * @param {Lease<T>} lease
   */
  remember(lease) {
    this.forget(lease);
    this.finished.add(this.keyOf(lease.event));
    if (this.finished.size > FINISHED_MAX) this.finished.delete(this.finished.values().next().value ?? "");
  }

  /**
   * @private
   * @param {Lease<T>} lease
   */
  settle(lease) {
    lease.state = "settled";
    this.forget(lease);
  }

  /**
   * @private
   * @param {Lease<T>} lease
   */
  forget(lease) {
    const key = this.keyOf(lease.event);
    // The event may have come again under another lease.
    if (this.held.get(key) === lease) this.held.delete(key);
    if (this.state === "closing") this.notify();
  }

  /** @private Gives all events back and ends. */
  async leave() {
    try {
      if (this.connection.state === "open") await this.ask("UNSUBSCRIBE");
    } catch (error) {
      if (!isGone(error)) this.report(/** @type {Error} */ (error));
    } finally {
      this.end();
    }
  }

  /** @private Whether there is no server to wait for. */
  isOver() {
    return this.state === "ended" || this.connection.state === "closed";
  }

  /**
   * Topics of one pattern can have events with the same id.
   * @private
   * @param {import("./types.js").BusEvent<T>} event
   */
  keyOf(event) {
    return event.topic === this.topic ? event.id : `${event.topic} ${event.id}`;
  }

  /**
   * @private
   * @param {string} op
   * @param {Record<string, unknown>} [fields]
   * @param {import("./types.js").WaitOptions} [limits]
   */
  ask(op, fields, limits) {
    return this.connection.request(op, { topic: this.topic, group: this.group, ...fields }, limits);
  }

  /**
   * @private
   * @param {Error} error
   * @param {import("./types.js").BusEvent<T>} [event]
   */
  report(error, event) {
    this.onError?.(error, event);
  }

  /** @private */
  notify() {
    for (const watcher of [...this.watchers]) watcher();
  }

  /**
   * @private
   * @param {() => boolean} isTrue
   * @param {import("./types.js").WaitOptions & {late?: () => Error}} [limits]
   */
  until(isTrue, limits = {}) {
    if (isTrue()) return Promise.resolve();
    return waitFor((resolve) => {
      const look = () => isTrue() && resolve();
      this.watchers.add(look);
      return () => this.watchers.delete(look);
    }, limits);
  }
}

/**
 * Whether an error says that the server has no such subscription, which is what `close` wants.
 * @param {unknown} error
 */
function isGone(error) {
  return error instanceof PrometheanError && ["disconnected", "not_subscribed", "client_closed"].includes(error.code);
}
