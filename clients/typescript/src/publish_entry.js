/**
 * One `PUBLISH` frame on its way.
 * @module
 */

import { PrometheanError } from "./errors.js";

/** One `PUBLISH` frame that is not answered yet. It waits for its own answer. */
export class PublishEntry {
  /**
   * @param {{answered: (entry: PublishEntry, frame: import("./types.js").ServerFrame) => void}} publisher
   * @param {{corr: number, text: string, id: string}} frame `id` is the id of its first event.
   * @param {number} overdueAt
   * @param {(answer: any) => void} resolve
   * @param {(error: unknown) => void} reject
   */
  constructor(publisher, { corr, text, id }, overdueAt, resolve, reject) {
    this.publisher = publisher;
    this.corr = corr;
    this.text = text;
    this.id = id;
    this.overdueAt = overdueAt;
    this.resolve = resolve;
    this.reject = reject;
    /** Whether it was sent at least once: then it may have been published. */
    this.isSent = false;
    this.isDone = false;
    /** How often the server asked to try again. */
    this.tries = 0;
    /** The last such answer. @type {PrometheanError | undefined} */
    this.refusal = undefined;
    /** Whether it waits to be sent again after such an answer: then it was not published. */
    this.isRefused = false;
  }

  /** @param {import("./types.js").ServerFrame} frame */
  reply(frame) {
    this.publisher.answered(this, frame);
  }

  /** The publisher sends it again on the next connection. */
  lost() {}

  /**
   * The error of a publish that ends without an answer. It has the id, so that the caller can try again with it.
   * @param {string} code
   * @param {string} message
   * @param {unknown} cause
   */
  error(code, message, cause) {
    const { id, isSent } = this;
    const outcome = isSent ? `it may have been published; try again with id ${id}` : "it was not sent";
    return new PrometheanError(code, `${message}; ${outcome}`, { id, sideEffects: isSent, cause });
  }
}

/**
 * The answer in an `OK` frame. Answers to one event, the most frequent, are copied field by field, which is fastest.
 * @param {import("./types.js").ServerFrame} frame
 */
export function answerOf(frame) {
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
