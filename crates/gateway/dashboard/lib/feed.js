/**
 * A long list that is read in parts, as the user goes on.
 * @module
 */

import { count, plural } from "./format.js";

/** Items that one part adds, at most, and items that are looked at for it. */
const PART = 500;
const LOOKED_AT_MAX = 5_000;
/** Items that are kept, and their characters. */
const ITEMS_MAX = 20_000;
const SIZE_MAX = 20_000_000;

/** The part of a list that was read. */
export class Feed {
  /**
   * @param {AsyncGenerator<any, void, void>} list
   * @param {(item: any) => any} take What is kept of an item; nothing if it is `undefined`.
   */
  constructor(list, take) {
    /** @private */
    this.list = list;
    /** @private */
    this.take = take;
    /** @type {any[]} */
    this.items = [];
    /** When reading began, epoch ms. */
    this.since = Date.now();
    /** Whether there are no more items. */
    this.isOver = false;
    this.isReading = false;
    /** @private A list that failed once does not go on. */
    this.hasFailed = false;
    /** @private */
    this.lookedAt = 0;
    /** @private */
    this.size = 0;
  }

  /** Whether reading on would add something. */
  get isMore() {
    return !this.isOver && !this.hasFailed && !this.isFull;
  }

  /** @private */
  get isFull() {
    return this.items.length >= ITEMS_MAX || this.size >= SIZE_MAX;
  }

  /** Reads the next part. */
  async read() {
    if (!this.isMore || this.isReading) return;
    this.isReading = true;
    const [wanted, end] = [this.items.length + PART, this.lookedAt + LOOKED_AT_MAX];
    try {
      while (this.items.length < wanted && this.lookedAt < end && !this.isFull) {
        const { done, value } = await this.list.next();
        if (done) {
          this.isOver = true;
          break;
        }
        this.lookedAt++;
        const item = this.take(value);
        if (item === undefined) continue;
        this.items.push(item);
        this.size += JSON.stringify(item).length;
      }
    } catch (error) {
      this.hasFailed = true;
      throw error;
    } finally {
      this.isReading = false;
    }
  }

  /** How to see what was not read. */
  get rest() {
    if (this.hasFailed) return "the others could not be read";
    if (this.isFull) return "the list is full: filter to see others";
    return `${count(this.lookedAt)} looked at, there are more`;
  }

  /**
   * How many items there are.
   * @param {string} noun
   */
  text(noun) {
    return this.isOver ? plural(this.items.length, noun) : `${plural(this.items.length, noun)} so far; ${this.rest}`;
  }
}
