/**
 * The frames that wait to be sent or to be answered, in the order of the publishes.
 * @module
 */

/** @typedef {import("./publish_entry.js").PublishEntry} PublishEntry */

/** Queued and outstanding publishes. An entry that is done stays outstanding until its answer comes. */
export class Outbox {
  constructor() {
    /** Sent and not answered, in the order of sending. @type {Map<number, PublishEntry>} */
    this.outstanding = new Map();
    /** The characters of all frames that are not done. */
    this.size = 0;
    /** @private Not sent on this connection. @type {PublishEntry[]} */
    this.queue = [];
    /** @private The queue begins here; what is before has left. */
    this.head = 0;
  }

  /** How many frames wait to be sent. */
  get queued() {
    return this.queue.length - this.head;
  }

  /** How many frames are not answered. */
  get pending() {
    return this.outstanding.size + this.queued;
  }

  /** All frames, the oldest first. */
  all() {
    return [...this.outstanding.values(), ...this.queue.slice(this.head)];
  }

  /** @param {PublishEntry} entry */
  push(entry) {
    this.size += entry.text.length;
    this.queue.push(entry);
  }

  /**
   * Moves the oldest queued frame to the outstanding ones.
   * @returns {PublishEntry | undefined}
   */
  next() {
    if (this.head === this.queue.length) return undefined;
    const entry = this.queue[this.head++];
    this.outstanding.set(entry.corr, entry);
    if (this.head === this.queue.length) {
      this.queue.length = this.head = 0;
    } else if (this.head > 1_024 && this.head * 2 > this.queue.length) {
      this.queue.splice(0, this.head);
      this.head = 0;
    }
    return entry;
  }

  /**
   * Marks an entry as done; false if it was done already.
   * @param {PublishEntry} entry
   */
  finish(entry) {
    if (entry.isDone) return false;
    entry.isDone = true;
    this.size -= entry.text.length;
    return true;
  }

  /**
   * Queues a refused frame again, at its old place.
   * @param {PublishEntry} entry
   */
  putBack(entry) {
    const rest = this.queue.slice(this.head);
    const at = rest.findIndex((other) => other.corr > entry.corr);
    rest.splice(at < 0 ? rest.length : at, 0, entry);
    this.queue = rest;
    this.head = 0;
  }

  /** Queues all outstanding frames again, before the queued ones. */
  putAllBack() {
    this.queue = this.all().filter((entry) => !entry.isDone);
    this.head = 0;
    this.outstanding.clear();
  }

  /**
   * Takes a frame out of the queue, if it is there.
   * @param {PublishEntry} entry
   */
  remove(entry) {
    const at = this.queue.indexOf(entry, this.head);
    if (at >= 0) this.queue.splice(at, 1);
  }

  /** Takes all frames out. */
  clear() {
    const entries = this.all();
    this.outstanding.clear();
    this.queue = [];
    this.head = 0;
    return entries;
  }
}
