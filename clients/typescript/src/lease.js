/**
 * One delivery of one event.
 * @module
 */

import { PrometheanError } from "./errors.js";

/**
 * One delivery of one event to this member until a deadline. The client keeps the lease while the event waits here
 * or is handled, unless `autoExtend` is off.
 * @template [T=any]
 */
export class Lease {
  /**
   * @param {import("./subscription.js").Subscription<T>} subscription
   * @param {import("./types.js").BusEvent<T>} event
   * @param {{attempt: number, ack_deadline_ms: number}} ctx
   */
  constructor(subscription, event, ctx) {
    /** The event. */
    this.event = event;
    /** The number of this delivery; 1 is the first. */
    this.attempt = ctx.attempt;
    /** How long the lease lasted when it arrived, in ms. */
    this.ack_deadline_ms = ctx.ack_deadline_ms;
    /** @internal */
    this.subscription = subscription;
    /** @internal When the lease arrived, on the clock of `performance.now()`. */
    this.since = performance.now();
    /** @internal When the lease ends, unless it is extended. */
    this.until = this.since + ctx.ack_deadline_ms;
    /** @internal @type {"held" | "lost" | "settled"} */
    this.state = "held";
    /** @private @type {AbortController | undefined} */
    this.controller = undefined;
  }

  /** Whether this member still has the event, as far as the client knows. */
  get isHeld() {
    return this.state === "held";
  }

  /** A signal that aborts when the lease is lost: another member may have the event now. */
  get signal() {
    if (!this.controller) {
      this.controller = new AbortController();
      if (this.state === "lost") this.controller.abort(lostError());
    }
    return this.controller.signal;
  }

  /**
   * Finishes the event for the group. Resolves when that is durable; rejects with `lease_lost` if the lease was over,
   * because the event is then delivered again.
   * @returns {Promise<void>}
   */
  ack() {
    return this.subscription.ack(this);
  }

  /**
   * Gives the event back, to be delivered again after a delay that grows with the attempts, or after `delayMs`.
   * @param {{delayMs?: number, reason?: string}} [options]
   * @returns {Promise<void>}
   */
  nack(options) {
    return this.subscription.nack(this, options);
  }

  /**
   * Extends the lease: it lasts `ms` from now, or again as long as it lasted at first.
   * @param {number} [ms] At least 1000.
   * @returns {Promise<void>}
   */
  extend(ms) {
    return this.subscription.extend(this, ms);
  }

  /** @internal The lease is over, and this member did not end it. */
  lose() {
    if (this.state !== "held") return;
    this.state = "lost";
    this.controller?.abort(lostError());
  }

  /**
   * The event has come again while its handler still runs: the handler continues under the new lease.
   * @internal
   * @param {{attempt: number, ack_deadline_ms: number}} ctx
   */
  renew(ctx) {
    this.state = "held";
    this.attempt = ctx.attempt;
    this.until = performance.now() + ctx.ack_deadline_ms;
  }
}

/** The error of a lease that is over. */
export function lostError() {
  return new PrometheanError(
    "lease_lost",
    "the lease of the event is over, so the event is delivered again; finish sooner, or raise `ackTimeoutMs`",
  );
}
