/**
 * Noticing that the other side is gone.
 * @module
 */

/** Asks a silent server whether it is there, and gives a connection up that answers nothing. */
export class Keepalive {
  /**
   * @param {{pingEveryMs: number, pingTimeoutMs: number}} options
   * @param {() => void} ping
   * @param {(silentMs: number) => void} giveUp
   */
  constructor({ pingEveryMs, pingTimeoutMs }, ping, giveUp) {
    /** @private */
    this.limits = { pingEveryMs, pingTimeoutMs, tickMs: Math.min(pingEveryMs, pingTimeoutMs) / 2 };
    /** @private */
    this.ping = ping;
    /** @private */
    this.giveUp = giveUp;
    /** When a frame came last; written for each frame. */
    this.heardAt = 0;
    /** @private */
    this.pingedAt = 0;
    /** @private */
    this.tickedAt = 0;
    /** @private @type {any} */
    this.timer = undefined;
  }

  start() {
    this.heardAt = this.tickedAt = performance.now();
    this.pingedAt = 0;
    this.timer = setInterval(() => this.tick(), this.limits.tickMs);
  }

  stop() {
    clearInterval(this.timer);
  }

  /** @private */
  tick() {
    const { pingEveryMs, pingTimeoutMs, tickMs } = this.limits;
    const now = performance.now();
    // A process that did not run has not looked for answers either.
    const isLate = now - this.tickedAt > 2 * tickMs + 1_000;
    this.tickedAt = now;
    if (now - this.heardAt < pingEveryMs) {
      this.pingedAt = 0;
    } else if (this.pingedAt === 0 || isLate) {
      this.pingedAt = now;
      this.ping();
    } else if (now - this.pingedAt >= pingTimeoutMs) {
      this.giveUp(Math.round(now - this.heardAt));
    }
  }
}
