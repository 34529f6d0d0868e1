/// <reference lib="esnext.disposable" preserve="true" />
/**
 * A subscription: leases as they come, for a handler, a loop or a fetch.
 * @module
 */

import { Acks } from "./acks.js";
import { backoffMs, waitFor } from "./backoff.js";
import { PrometheanError, inform, reasonOf } from "./errors.js";
import { Extender } from "./extender.js";
import { HandlerPool } from "./handler_pool.js";
import { lostError } from "./lease.js";
import { LeaseTable } from "./lease_table.js";

/** Refusals of a `SUBSCRIBE` after which the client itself tries again. */
const TRY_AGAIN = new Set(["auth_unavailable", "busy", "closed", "rate_limited", "timeout", "topic_deleted"]);
/** Errors that say that the server has no such subscription. */
const GONE = new Set(["disconnected", "not_subscribed", "client_closed"]);
const HOUR_MS = 3_600_000;
/** How long a `SUBSCRIBE` of a lost connection may still arrive: by then the server has given the connection up. */
const LATE_MS = 60_000;
/** The most events of a fetch that names no number. */
const FETCH_MAX = 100;

/**
 * @template [T=any]
 * @typedef {import("./lease.js").Lease<T>} Lease
 */

/**
 * @template [T=any]
 * @typedef {import("./handler_pool.js").Handler<T>} Handler
 */

/**
 * A member of a group. It survives reconnects. Loop over it (`for await`), give it a handler, or, with `pull: true`,
 * call `fetch`.
 * @template [T=any]
 */
export class Subscription {
  /**
   * @internal
   * @param {import("./connection.js").Connection} connection
   * @param {string} topic
   * @param {string} group
   * @param {import("./types.js").SubscribeOptions} options
   * @param {Handler<T> | undefined} handler
   * @param {{ended: () => void}} owner
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
    this.owner = owner;
    /** @private What the server is asked for. */
    this.opts = opts;
    /** @private */
    this.events = { onRebalance, onError };
    /** @private @type {LeaseTable<T>} */
    this.leases = new LeaseTable(topic);
    /** @private @type {HandlerPool<T> | undefined} */
    this.pool =
      handler &&
      new HandlerPool(handler, concurrency, {
        next: () => (this.isPaused || this.state === "closing" ? undefined : this.leases.queue.shift()),
        done: (lease) => this.done(lease),
        failed: (lease, error) => this.failed(lease, error),
      });
    /** @private The FETCH that is under way. @type {Promise<void> | undefined} */
    this.fetching = undefined;
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
    /** @private Until when a `SUBSCRIBE` of a lost connection may arrive and take this member's own name from it. */
    this.lateUntil = 0;
    /** @private */
    this.acks = new Acks(
      connection,
      { topic, group },
      {
        unknown: (acks) => this.pool && acks.forEach(({ lease }) => this.leases.remember(lease)),
        failed: (error) => this.pool && this.report(error),
        answered: () => this.state === "closing" && this.notify(),
      },
    );
    /** @private */
    this.extender = autoExtend
      ? new Extender(
          () => this.leases.held.values(),
          (ids, extend_ms) => this.ask("MODACK", { ids, extend_ms }),
          maxLeaseMs,
        )
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
    return this.leases.held.size + this.acks.pending;
  }

  /**
   * Asks for events, in a subscription with `pull: true`. Resolves with at least one lease, or with none after
   * `waitMs`.
   * @param {{max?: number, waitMs?: number, signal?: AbortSignal}} [options]
   * @returns {Promise<Lease<T>[]>}
   */
  async fetch({ max, waitMs = 1000, signal } = {}) {
    await this.ready;
    // The server takes one FETCH at a time; one that was aborted is still under way.
    while (this.fetching) await waitFor((resolve) => void this.fetching?.then(resolve), { signal });
    signal?.throwIfAborted();
    if (this.leases.queue.length > 0) return this.leases.queue.splice(0, max ?? FETCH_MAX);
    const asked = this.ask("FETCH", { max, wait_ms: waitMs }, { timeoutMs: waitMs + 15_000 });
    const over = () => {};
    this.fetching = asked.then(over, over).then(() => void (this.fetching = undefined));
    return waitFor(
      (resolve, reject) => {
        let isAwaited = true;
        asked.then((frame) => {
          const leases = this.accept(frame.events);
          // Events that come after an abort are for the next call.
          if (isAwaited) resolve(leases);
          else this.leases.queue.push(...leases);
        }, reject);
        return () => void (isAwaited = false);
      },
      { signal },
    );
  }

  /**
   * Stops deliveries until `resume`. Handlers that run are not interrupted.
   * @param {import("./types.js").WaitOptions} [limits]
   */
  async pause(limits) {
    this.isPaused = true;
    if (this.isConnected()) await this.ask("PAUSE", {}, limits);
  }

  /**
   * Starts deliveries again.
   * @param {import("./types.js").WaitOptions} [limits]
   */
  async resume(limits) {
    this.isPaused = false;
    if (this.isConnected()) await this.ask("RESUME", {}, limits);
    this.pool?.pump();
  }

  /**
   * Moves the cursor of the group. With `dryRun`, only tells what would happen.
   * @param {import("./types.js").StartOptions & {dryRun?: boolean}} to
   * @param {import("./types.js").WaitOptions} [limits]
   * @returns {Promise<{from: number, to: number, replayed: number, skipped: number, applied: boolean}>}
   */
  async seek(to, limits) {
    await this.ready;
    this.acks.flush();
    // What a seek replays is handled again.
    if (!to.dryRun) this.leases.finished.clear();
    const { op, corr, ...report } = await this.ask("SEEK", { opts: to }, limits);
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
    const message = `handlers of \`${this.topic}\` in \`${this.group}\` still ran; their events are given back`;
    const limits = { signal, timeoutMs, late: () => new PrometheanError("timeout", message) };
    const isIdle = () => (this.pool ? this.pool.running : this.leases.taken) === 0;
    let failure;
    try {
      await this.until(() => isIdle() || this.isOver(), limits);
      this.acks.flush();
      await this.until(() => this.acks.pending === 0 || this.isOver(), limits);
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
    if (this.pool)
      throw new PrometheanError("bad_use", "this subscription has a handler; remove the handler to loop over leases");
    const isOpen = () => this.state === "starting" || this.state === "active";
    try {
      while (true) {
        await this.until(() => !isOpen() || this.leases.queue.length > 0);
        if (!isOpen()) break;
        const lease = this.leases.queue.shift();
        if (lease) yield lease;
      }
      if (this.failure) throw this.failure;
    } finally {
      this.acks.flush();
      if (isOpen()) await this.leave();
    }
  }

  /**
   * @internal
   * @param {Lease<T>} lease
   * @returns {Promise<void>}
   */
  ack(lease) {
    if (lease.state === "settled") return Promise.resolve();
    if (!this.take(lease)) return Promise.reject(lostError());
    // The answer to several acks does not tell which lease was over, so one that seems over goes alone.
    if (lease.until < performance.now()) return this.settleAlone("ACK", lease);
    return new Promise((resolve, reject) => this.acks.add({ lease, resolve, reject }));
  }

  /**
   * @internal
   * @param {Lease<T>} lease
   * @param {{delayMs?: number, reason?: string}} [options]
   */
  async nack(lease, { delayMs, reason } = {}) {
    if (lease.state === "settled") return;
    if (!this.take(lease)) throw lostError();
    await this.settleAlone("NACK", lease, { delay_ms: delayMs, reason });
  }

  /**
   * @internal
   * @param {Lease<T>} lease
   * @param {number} [ms]
   */
  async extend(lease, ms = lease.ack_deadline_ms) {
    if (lease.state !== "held") throw lostError();
    const sentAt = performance.now();
    try {
      await this.settleAlone("MODACK", lease, { extend_ms: ms });
      lease.until = sentAt + ms;
    } catch (error) {
      const isLost = error instanceof PrometheanError && ["unknown_id", "lease_lost"].includes(error.code);
      if (!isLost) throw error;
      lease.lose();
      throw lostError();
    }
  }

  /** @internal The connection is open: subscribes, for the first time or again. */
  up() {
    if (this.state === "closing" || this.state === "ended" || this.connection.state !== "open") return;
    const epoch = ++this.epoch;
    const isCurrent = () => epoch === this.epoch;
    this.ask("SUBSCRIBE", { batch: true, opts: this.opts }).then(
      () => isCurrent() && this.subscribed(),
      (error) => {
        if (isCurrent()) this.refused(error);
        else this.lateUntil = performance.now() + LATE_MS;
      },
    );
  }

  /** @internal The connection ended: the server has taken all leases back. */
  down() {
    this.epoch++;
    clearTimeout(this.retryTimer);
    this.leases.lose();
    this.notify();
  }

  /**
   * @internal
   * @param {import("./types.js").ServerFrame} frame
   */
  receive(frame) {
    if (frame.op === "REBALANCE") {
      const { epoch, assigned, revoked } = frame;
      return inform(this.events.onRebalance, { epoch, assigned, revoked });
    }
    const deliveries = frame.op === "EVENT" ? [/** @type {any} */ (frame)] : frame.events;
    for (const lease of this.accept(deliveries)) this.leases.queue.push(lease);
    this.pool?.pump();
    this.notify();
  }

  /**
   * The server ended the subscription.
   * @internal
   * @param {PrometheanError} error
   */
  endedByServer(error) {
    const isOwn = error.code === "member_fenced" && performance.now() < this.lateUntil;
    if (!isOwn || this.state === "closing") return this.end(error);
    // A late `SUBSCRIBE` of this member took its name. Another member that has the name ends this one the next time.
    this.lateUntil = 0;
    this.down();
    this.up();
  }

  /**
   * The subscription is over, by the server's or the client's decision.
   * @internal
   * @param {PrometheanError} [failure]
   */
  end(failure) {
    if (this.state === "ended") return;
    // Before that, `ready` rejects; a loop throws.
    const isUnheard = this.pool && this.state === "active";
    this.state = "ended";
    this.failure = failure;
    clearTimeout(this.retryTimer);
    this.signal?.removeEventListener("abort", this.abort);
    this.extender?.stop();
    this.leases.clear();
    this.owner.ended();
    this.notify();
    if (failure && isUnheard) this.report(failure);
  }

  /** @private */
  subscribed() {
    if (this.state === "starting") this.state = "active";
    this.tries = 0;
    this.leases.rejoined();
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
   * @private
   * @param {import("./lease_table.js").Delivery<T>[]} deliveries
   * @returns {Lease<T>[]} The new leases.
   */
  accept(deliveries) {
    const isManual = this.opts.manualAck !== false;
    const { fresh, finished } = this.leases.accept(this, deliveries, {
      isManual,
      isExtended: this.extender !== undefined,
    });
    for (const lease of finished) this.acks.add({ lease });
    if (isManual && deliveries.length > 0) this.extender?.arrived(deliveries[0].ctx.ack_deadline_ms);
    return fresh;
  }

  /**
   * A handler is done.
   * @private
   * @param {Lease<T>} lease
   */
  done(lease) {
    if (lease.state === "held") {
      this.leases.settle(lease);
      this.acks.add({ lease });
    } else if (lease.state === "lost") {
      this.leases.remember(lease);
    }
    if (this.state === "closing") this.notify();
  }

  /**
   * A handler has thrown.
   * @private
   * @param {Lease<T>} lease
   * @param {unknown} error
   */
  failed(lease, error) {
    this.report(error instanceof Error ? error : new Error(String(error)), lease.event);
    const delayMs = /** @type {any} */ (error)?.delayMs;
    const how = { reason: reasonOf(error), ...(typeof delayMs === "number" && { delayMs }) };
    // An event whose lease is lost comes again without this.
    this.nack(lease, how).catch(() => {});
    if (this.state === "closing") this.notify();
  }

  /**
   * Takes a lease out of the table to settle it; false if the lease is lost.
   * @private
   * @param {Lease<T>} lease
   */
  take(lease) {
    const isHeld = lease.state === "held";
    if (isHeld) this.leases.settle(lease);
    else this.leases.forget(lease);
    if (this.state === "closing") this.notify();
    return isHeld;
  }

  /**
   * @private
   * @param {string} op
   * @param {Lease<T>} lease
   * @param {Record<string, unknown>} [fields]
   */
  async settleAlone(op, lease, fields) {
    const { stale } = await this.ask(op, { id: lease.event.id, ...fields });
    if (stale) throw lostError();
  }

  /** @private Gives all events back and ends. */
  async leave() {
    try {
      if (this.connection.state === "open") await this.ask("UNSUBSCRIBE");
    } catch (error) {
      if (!(error instanceof PrometheanError && GONE.has(error.code))) this.report(/** @type {Error} */ (error));
    } finally {
      this.end();
    }
  }

  /** @private Whether the server has this subscription. Without a connection it is paused when it is made again. */
  isConnected() {
    return this.state === "active" && this.connection.state === "open";
  }

  /** @private Whether there is no server to wait for. */
  isOver() {
    return this.state === "ended" || this.connection.state === "closed";
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
    inform(this.events.onError, error, event);
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
