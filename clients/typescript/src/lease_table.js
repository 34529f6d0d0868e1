/**
 * The leases of one subscription.
 * @module
 */

import { Lease } from "./lease.js";

/** The most events that are remembered because their handler is done and their ack may be lost. */
const FINISHED_MAX = 10_000;

/**
 * When a finished event is forgotten: a few lease times from now.
 * @param {number} lastsMs
 */
const forgetAt = (lastsMs) => performance.now() + 2 * lastsMs;

/**
 * @template [T=any]
 * @typedef {{event: import("./types.js").BusEvent<T>, ctx: {attempt: number, ack_deadline_ms: number}}} Delivery
 */

/**
 * The leases of a subscription that are not settled, and the queue of those that wait for a handler or a loop.
 * @template [T=any]
 */
export class LeaseTable {
  /** @param {string} topic The topic or pattern. */
  constructor(topic) {
    /** @private */
    this.topic = topic;
    /** Leases that are not settled, by event. @type {Map<string, Lease<T>>} */
    this.held = new Map();
    /** Leases that wait for a handler or a loop, the oldest first. @type {Lease<T>[]} */
    this.queue = [];
    /**
     * Events whose handler is done but whose ack may be lost.
     * @type {Map<string, {attempt: number, lastsMs: number, until: number}>}
     */
    this.finished = new Map();
  }

  /**
   * Takes deliveries over. If leases are extended, an event that is still worked on under a lost lease continues under
   * the new one; otherwise it is a new lease.
   * @param {import("./subscription.js").Subscription<T>} subscription
   * @param {Delivery<T>[]} deliveries
   * @param {{isManual: boolean, isExtended: boolean}} how `isManual`: the client acks.
   * @returns {{fresh: Lease<T>[], finished: Lease<T>[]}} The new leases, and those whose event is done and needs only
   *   an ack.
   */
  accept(subscription, deliveries, { isManual, isExtended }) {
    const fresh = [];
    const finished = [];
    for (const { event, ctx } of deliveries) {
      const key = this.keyOf(event);
      const earlier = this.held.get(key);
      if (earlier && isExtended) {
        earlier.renew(ctx);
        continue;
      }
      earlier?.lose();
      const lease = new Lease(subscription, event, ctx);
      if (this.finished.size > 0 && this.isFinished(key, ctx.attempt)) {
        finished.push(lease);
        continue;
      }
      if (isManual) this.held.set(key, lease);
      else lease.state = "settled";
      fresh.push(lease);
    }
    return { fresh, finished };
  }

  /** How many leases are taken and not settled. */
  get taken() {
    return this.held.size - this.queue.length;
  }

  /** @param {Lease<T>} lease */
  settle(lease) {
    lease.state = "settled";
    this.forget(lease);
  }

  /** @param {Lease<T>} lease */
  forget(lease) {
    const key = this.keyOf(lease.event);
    // The event may have come again under another lease.
    if (this.held.get(key) === lease) this.held.delete(key);
  }

  /**
   * Remembers that the handler of an event is done, so that the event is only acked when it comes again.
   * @param {Lease<T>} lease
   */
  remember(lease) {
    this.forget(lease);
    const { attempt, ack_deadline_ms: lastsMs } = lease;
    this.finished.set(this.keyOf(lease.event), { attempt, lastsMs, until: forgetAt(lastsMs) });
    if (this.finished.size > FINISHED_MAX) this.finished.delete(this.finished.keys().next().value ?? "");
  }

  /** The member has joined the group again: from now on, events whose acks were lost come again soon. */
  rejoined() {
    for (const one of this.finished.values()) one.until = forgetAt(one.lastsMs);
  }

  /**
   * Whether a delivery repeats one whose handler is done. An event that comes late or with a smaller attempt does not:
   * its ack was durable, and a seek or a redrive delivers it once more.
   * @private
   * @param {string} key
   * @param {number} attempt
   */
  isFinished(key, attempt) {
    const one = this.finished.get(key);
    this.finished.delete(key);
    return one !== undefined && attempt >= one.attempt && performance.now() < one.until;
  }

  /** The server has taken all leases back. Leases that a handler or a loop has are kept, for when their events come again. */
  lose() {
    for (const lease of this.queue) this.forget(lease);
    this.queue = [];
    for (const lease of this.held.values()) lease.lose();
  }

  clear() {
    this.lose();
    this.held.clear();
  }

  /**
   * Topics of one pattern can have events with the same id.
   * @private
   * @param {import("./types.js").BusEvent<T>} event
   */
  keyOf(event) {
    return event.topic === this.topic ? event.id : `${event.topic} ${event.id}`;
  }
}
