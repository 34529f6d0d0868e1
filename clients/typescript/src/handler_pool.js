/**
 * Handlers of a subscription, several at a time.
 * @module
 */

/**
 * @template [T=any]
 * @typedef {(event: import("./types.js").BusEvent<T>, lease: import("./lease.js").Lease<T>) => unknown} Handler
 */

/**
 * Runs a handler for each lease, up to a number at a time.
 * @template [T=any]
 */
export class HandlerPool {
  /**
   * @param {Handler<T>} handler
   * @param {number} concurrency
   * @param {object} owner
   * @param {() => import("./lease.js").Lease<T> | undefined} owner.next The next lease to handle.
   * @param {(lease: import("./lease.js").Lease<T>) => void} owner.done
   * @param {(lease: import("./lease.js").Lease<T>, error: unknown) => void} owner.failed
   */
  constructor(handler, concurrency, owner) {
    /** @private */
    this.handler = handler;
    /** @private */
    this.concurrency = concurrency;
    /** @private */
    this.owner = owner;
    /** How many handlers run. */
    this.running = 0;
  }

  /** Starts as many handlers as may run. */
  pump() {
    while (this.running < this.concurrency) {
      const lease = this.owner.next();
      if (!lease) return;
      this.start(lease);
    }
  }

  /**
   * @private
   * @param {import("./lease.js").Lease<T>} lease
   */
  start(lease) {
    this.running++;
    let result;
    try {
      result = this.handler(lease.event, lease);
    } catch (error) {
      return this.end(lease, error, true);
    }
    // A handler that returns no promise is done: waiting for it would cost a turn for each event.
    if (typeof (/** @type {any} */ (result)?.then) !== "function") return this.end(lease);
    Promise.resolve(result)
      .then(
        () => this.end(lease),
        (error) => this.end(lease, error, true),
      )
      .then(() => this.pump());
  }

  /**
   * @private
   * @param {import("./lease.js").Lease<T>} lease
   * @param {unknown} [error]
   * @param {boolean} [hasFailed]
   */
  end(lease, error, hasFailed = false) {
    this.running--;
    if (hasFailed) this.owner.failed(lease, error);
    else this.owner.done(lease);
  }
}
