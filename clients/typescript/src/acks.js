/**
 * Acks, several in one frame.
 * @module
 */

import { refusal } from "./errors.js";
import { lostError } from "./lease.js";

/** The most acks in one frame. */
const BATCH_MAX = 500;

/** Calls a function after the current turn. Browsers slow timers of hidden pages down, but not messages. */
const afterTurn = (() => {
  const { setImmediate } = /** @type {any} */ (globalThis);
  if (typeof setImmediate === "function") return (/** @type {() => void} */ call) => void setImmediate(call);
  /** @type {(() => void)[]} */
  const calls = [];
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => calls.shift()?.();
  return (/** @type {() => void} */ call) => {
    calls.push(call);
    port2.postMessage(0);
  };
})();

/**
 * @typedef {object} Ack
 * @property {import("./lease.js").Lease} lease
 * @property {() => void} [resolve]
 * @property {(error: unknown) => void} [reject]
 */

/** Collects the acks of one subscription and sends those of one turn together. */
export class Acks {
  /**
   * @param {import("./connection.js").Connection} connection
   * @param {{topic: string, group: string}} target
   * @param {{unknown: (acks: Ack[]) => void, failed: (error: Error) => void, answered: () => void}} events
   *   `unknown`: the connection ended before the answer. `failed`: the acks were refused, or at least one of the
   *   leases was over.
   */
  constructor(connection, target, events) {
    /** @private */
    this.connection = connection;
    /** @private */
    this.events = events;
    /** @private */
    this.start = `{"op":"ACK","topic":${JSON.stringify(target.topic)},"group":${JSON.stringify(target.group)},"ids":["`;
    /** @private @type {Ack[]} */
    this.waiting = [];
    /** @private */
    this.isPlanned = false;
    /** Acks that are sent and not answered. */
    this.unanswered = 0;
  }

  /** Acks that have no answer yet. */
  get pending() {
    return this.waiting.length + this.unanswered;
  }

  /** @param {Ack} ack */
  add(ack) {
    this.waiting.push(ack);
    if (this.waiting.length >= BATCH_MAX) return this.flush();
    if (this.isPlanned) return;
    this.isPlanned = true;
    afterTurn(() => {
      this.isPlanned = false;
      this.flush();
    });
  }

  /** Sends the collected acks. */
  flush() {
    const acks = this.waiting;
    if (acks.length === 0) return;
    this.waiting = [];
    if (this.connection.state !== "open") {
      this.events.unknown(acks);
      return rejectAll(acks, lostError());
    }
    const corr = this.connection.nextCorr();
    const text = `${this.start}${acks.map((ack) => ack.lease.event.id).join('","')}"],"corr":${corr}}`;
    this.unanswered += acks.length;
    this.connection.send(text, corr, {
      reply: (frame) => {
        this.unanswered -= acks.length;
        const error = frame.op === "ERR" ? refusal(frame) : frame.stale ? lostError() : undefined;
        // The server names the events whose lease was over; the other acks are durable. An older one names none.
        const stale = frame.stale_ids && new Set(frame.stale_ids);
        for (const ack of acks) {
          if (error && (!stale || stale.has(ack.lease.event.id))) ack.reject?.(error);
          else ack.resolve?.();
        }
        if (error) this.events.failed(error);
        this.events.answered();
      },
      lost: (error) => {
        this.unanswered -= acks.length;
        this.events.unknown(acks);
        rejectAll(acks, error);
        this.events.answered();
      },
    });
  }
}

/**
 * @param {Ack[]} acks
 * @param {unknown} error
 */
function rejectAll(acks, error) {
  for (const ack of acks) ack.reject?.(error);
}
