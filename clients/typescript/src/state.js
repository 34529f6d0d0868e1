/**
 * State: documents of collections, now and at an earlier time, and the state of a key.
 * @module
 */

import { PrometheanError } from "./errors.js";
import { Http } from "./http.js";

/**
 * A time: epoch ms, a `Date`, or a text such as `2027-01-31T12:00:00Z` or `5m ago`.
 * @typedef {number | string | Date} Moment
 */

/**
 * @typedef {{_key: string, _ts: number, _offset: number, _v?: number} & Record<string, any>} Document
 */

/**
 * A collection.
 * @typedef {object} CollectionDescription
 * @property {string} name Its name.
 * @property {boolean} default Whether it is the one that is read without a name.
 * @property {number} documents How many documents it has.
 * @property {boolean} history Whether earlier times can be read.
 * @property {Record<string, string>} fields The types of its declared fields.
 * @property {{fields: string, unique: boolean}[]} indexes Its indexes.
 * @property {string} [projector] The projector that writes it.
 */

/** Reads state. */
export class State {
  /**
   * @param {ConstructorParameters<typeof Http>[0]} server A client, or the URL of the server.
   * @param {import("./http.js").HttpOptions} [options]
   */
  constructor(server, options) {
    /** @private */
    this.http = new Http(server, options);
  }

  /**
   * The state of a key of a topic, now or at a time; `undefined` if it had none.
   * @template [T=any]
   * @param {string} topic
   * @param {string} key
   * @param {{at?: Moment, signal?: AbortSignal}} [options]
   * @returns {Promise<{key: string, state: T, ts: number, offset: number} | undefined>}
   */
  async ofKey(topic, key, { at, signal } = {}) {
    return orUndefined(this.http.json(["state", topic, key], { query: { at: moment(at) }, signal }));
  }

  /**
   * A document of a collection; `undefined` if there is none.
   * @param {string} key
   * @param {{collection?: string, signal?: AbortSignal}} [options] Without `collection`, of the default one.
   * @returns {Promise<Document | undefined>}
   */
  async document(key, { collection, signal } = {}) {
    return orUndefined(this.http.json([...within(collection), "snap", key], { signal }));
  }

  /**
   * A document, unless it still has this ETag.
   * @param {string} key
   * @param {string | undefined} etag The ETag of the document that the caller has.
   * @param {{collection?: string, signal?: AbortSignal}} [options]
   * @returns {Promise<{isChanged: false} | {isChanged: true, document: Document, etag: string}>}
   */
  async documentIfChanged(key, etag, { collection, signal } = {}) {
    /** @type {Record<string, string>} */
    const headers = etag === undefined ? {} : { "if-none-match": etag };
    const response = await this.http.send([...within(collection), "snap", key], { headers, signal, allow: [304] });
    if (response.status === 304) return { isChanged: false };
    return { isChanged: true, document: await response.json(), etag: response.headers.get("etag") ?? "" };
  }

  /**
   * The documents whose declared fields have these values, newest first, page by page.
   * @param {Record<string, string | number | boolean>} [where]
   * @param {{collection?: string, limit?: number, signal?: AbortSignal}} [options] `limit` is the size of a page.
   * @returns {AsyncGenerator<Document, void, void>}
   */
  async *list(where = {}, { collection, limit = 100, signal } = {}) {
    let offset = 0;
    while (true) {
      const page = await this.http.json([...within(collection), "list"], {
        query: { ...where, offset, limit },
        signal,
      });
      yield* page.items;
      // A page of large documents ends early, so only an empty page is the last.
      if (page.items.length === 0) return;
      offset += page.items.length;
    }
  }

  /**
   * The collections, with their fields, indexes and number of documents.
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<CollectionDescription[]>}
   */
  async collections({ signal } = {}) {
    return (await this.http.json(["collections"], { signal })).collections;
  }

  /**
   * The documents of a collection at a time, page by page. The collection needs `history = true`.
   * @param {string} collection
   * @param {Moment} at
   * @param {{limit?: number, signal?: AbortSignal}} [options]
   * @returns {AsyncGenerator<{key: string, document: Document, ts: number}, void, void>}
   */
  collectionAt(collection, at, options) {
    return this.pages("documents", ["collections", collection, "at"], { at: moment(at) }, options);
  }

  /**
   * The differences of a collection between two times, page by page.
   * @param {string} collection
   * @param {Moment} from
   * @param {Moment} [to]
   * @param {{limit?: number, signal?: AbortSignal}} [options]
   * @returns {AsyncGenerator<any, void, void>}
   */
  collectionDiff(collection, from, to, options) {
    return this.pages(
      "differences",
      ["collections", collection, "diff"],
      { from: moment(from), to: moment(to) },
      options,
    );
  }

  /**
   * @private
   * @param {string} list The field of the answer that has the page.
   * @param {string[]} path
   * @param {Record<string, unknown>} query
   * @param {{limit?: number, signal?: AbortSignal}} [options]
   * @returns {AsyncGenerator<any, void, void>}
   */
  async *pages(list, path, query, { limit, signal } = {}) {
    let after;
    do {
      const page = await this.http.json(path, { query: { ...query, after, limit }, signal });
      yield* page[list];
      after = page.next;
    } while (after !== undefined && after !== null);
  }
}

/** @param {string | undefined} collection */
function within(collection) {
  return collection === undefined ? [] : ["collections", collection];
}

/** @param {Moment | undefined} at */
function moment(at) {
  return at instanceof Date ? at.getTime() : at;
}

/**
 * @template T
 * @param {Promise<T>} answer
 * @returns {Promise<T | undefined>}
 */
async function orUndefined(answer) {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof PrometheanError && error.code === "not_found") return undefined;
    throw error;
  }
}
