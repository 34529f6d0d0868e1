/**
 * Keeping leases while their events are handled.
 * @module
 */

import { PrometheanError } from "./errors.js";

/** The most leases in one frame. */
const BATCH_MAX = 500;
/**
 * How long leases of a hidden page are extended. Browsers may run the timers of a hidden page only once a minute.
 * If the page ends, its connection ends too and the server takes the leases back, so a long lease does no harm.
 */
const HIDDEN_MS = 180_000;

const isHidden = () => globalThis.document?.visibilityState === "hidden";

/** Extends the leases of one subscription before they end. */
export class Extender {
  /**
   * @param {() => Iterable<import("./lease.js").Lease>} leases All leases that are held.
   * @param {(ids: string[], extendMs: number) => Promise<import("./types.js").ServerFrame | undefined>} send
   *   Sends one `MODACK`.
   * @param {number} maxLeaseMs
   */
  constructor(leases, send, maxLeaseMs) {
    /** @private */
    this.leases = leases;
    /** @private */
    this.send = send;
    /** @private */
    this.maxLeaseMs = maxLeaseMs;
    /** @private @type {any} */
    this.timer = undefined;
    /** @private */
    this.everyMs = 0;
    /** @private */
    this.look = () => this.extendDue();
  }

  /**
   * Leases have arrived.
   * @param {number} lastsMs How long they last.
   */
  arrived(lastsMs) {
    if (this.everyMs !== lastsMs / 3) {
      clearInterval(this.timer);
      this.everyMs = lastsMs / 3;
      this.timer = setInterval(this.look, this.everyMs);
      globalThis.document?.addEventListener("visibilitychange", this.look);
    }
    // The timer of a hidden page may come too late for them.
    if (isHidden()) this.extendDue();
  }

  stop() {
    clearInterval(this.timer);
    this.everyMs = 0;
    globalThis.document?.removeEventListener("visibilitychange", this.look);
  }

  /** @private Extends the leases that would not last until some time after the next look. */
  extendDue() {
    const now = performance.now();
    const lastsMs = this.everyMs * 3;
    const extendMs = isHidden() ? Math.max(lastsMs, HIDDEN_MS) : lastsMs;
    const due = [];
    for (const lease of this.leases()) {
      if (lease.isHeld && lease.until - now < (extendMs * 2) / 3 && now - lease.since < this.maxLeaseMs)
        due.push(lease);
    }
    for (let at = 0; at < due.length; at += BATCH_MAX) this.extend(due.slice(at, at + BATCH_MAX), extendMs);
  }

  /**
   * @private
   * @param {import("./lease.js").Lease[]} leases
   * @param {number} extendMs
   */
  async extend(leases, extendMs) {
    const sentAt = performance.now();
    try {
      const reply = await this.send(
        leases.map((lease) => lease.event.id),
        Math.round(extendMs),
      );
      const stale = new Set(reply?.stale_ids);
      for (const lease of leases) {
        if (stale.has(lease.event.id)) lease.lose();
        else lease.until = sentAt + extendMs;
      }
    } catch (error) {
      if (!(error instanceof PrometheanError) || error.code !== "unknown_id") return;
      // Older servers refuse the frame if one lease is over; the others are extended one by one.
      if (leases.length === 1) leases[0].lose();
      else for (const lease of leases) if (lease.isHeld) this.extend([lease], extendMs);
    }
  }
}
