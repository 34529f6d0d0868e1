/**
 * Looking at and changing topics, schemas, groups and dead letters.
 * @module
 */

import { Http } from "./http.js";

/**
 * Which dead letters are meant.
 * @typedef {{all: true} | {ids: string[]} | {offsets: number[]} | {filter: object}} LetterChoice
 */

/**
 * @typedef {object} DeadLetter
 * @property {import("./types.js").BusEvent} event The event that was given up.
 * @property {string} reason Why its last attempt failed.
 * @property {number} attempts How often it was delivered.
 */

/**
 * @typedef {{signal?: AbortSignal}} CallOptions
 */

/** Topics, schemas, groups and dead letters of a server. Changes need the scope `manage`. */
export class Admin {
  /**
   * @param {ConstructorParameters<typeof Http>[0]} server A client, or the URL of the server.
   * @param {import("./http.js").HttpOptions} [options]
   */
  constructor(server, options) {
    /** @private */
    this.http = new Http(server, options);
  }

  /**
   * All topics that the token may see.
   * @param {{limit?: number} & CallOptions} [options] `limit` is the size of a page.
   * @returns {AsyncGenerator<any, void, void>}
   */
  topics(options) {
    return this.pages(["topics"], "topics", {}, options);
  }

  /**
   * One topic with its settings.
   * @param {string} topic
   * @param {CallOptions} [options]
   */
  topic(topic, options) {
    return this.http.json(["topics", topic], options);
  }

  /**
   * Creates a topic, or replaces all its settings.
   * @param {string} topic
   * @param {object} settings
   * @param {CallOptions} [options]
   */
  setTopic(topic, settings, options) {
    return this.http.json(["topics", topic], { method: "PUT", json: settings, ...options });
  }

  /**
   * Deletes a topic with its events and groups.
   * @param {string} topic
   * @param {CallOptions} [options]
   */
  deleteTopic(topic, options) {
    return this.http.json(["topics", topic], { method: "DELETE", ...options });
  }

  /**
   * The versions of the schema of a topic.
   * @param {string} topic
   * @param {CallOptions} [options]
   */
  schemas(topic, options) {
    return this.http.json(["schemas", topic], options);
  }

  /**
   * One version of the schema of a topic.
   * @param {string} topic
   * @param {number | "latest"} [version]
   * @param {CallOptions} [options]
   */
  schema(topic, version = "latest", options) {
    return this.http.json(["schemas", topic, String(version)], options);
  }

  /**
   * Registers a schema as the next version.
   * @param {string} topic
   * @param {object | boolean} schema
   * @param {{version?: number, force?: boolean, dryRun?: boolean} & CallOptions} [options]
   */
  registerSchema(topic, schema, { version, force, dryRun, signal } = {}) {
    const query = { version, force: force ? 1 : undefined, dry_run: dryRun ? 1 : undefined };
    return this.http.json(["schemas", topic], { method: "POST", json: schema, query, signal });
  }

  /**
   * Checks a payload against the latest version of the schema, or against `version`.
   * @param {string} topic
   * @param {unknown} payload
   * @param {{version?: number} & CallOptions} [options]
   */
  validate(topic, payload, { version, signal } = {}) {
    return this.http.json(["schemas", topic, "validate"], {
      method: "POST",
      json: payload,
      query: { version },
      signal,
    });
  }

  /**
   * All groups, or the groups of a topic.
   * @param {string} [topic]
   * @param {CallOptions} [options]
   * @returns {Promise<any[]>}
   */
  async groups(topic, { signal } = {}) {
    return (await this.http.json(["groups"], { query: { topic }, signal })).groups;
  }

  /**
   * One group: its options, its progress, and why it delivers nothing.
   * @param {string} topic
   * @param {string} group
   * @param {CallOptions} [options]
   */
  group(topic, group, { signal } = {}) {
    return this.http.json(["groups", group], { query: { topic }, signal });
  }

  /**
   * How far a group is behind.
   * @param {string} topic
   * @param {string} group
   * @param {CallOptions} [options]
   */
  lag(topic, group, { signal } = {}) {
    return this.http.json(["lag"], { query: { topic, group }, signal });
  }

  /**
   * Moves a group; with `dryRun`, only tells what would be replayed and skipped.
   * @param {string} topic
   * @param {string} group
   * @param {import("./types.js").StartOptions & {dryRun?: boolean}} to
   * @param {CallOptions} [options]
   */
  seek(topic, group, { from, ...to }, { signal } = {}) {
    return this.http.json(["groups", group, "seek"], {
      method: "POST",
      query: { topic },
      json: { to: from, ...to },
      signal,
    });
  }

  /**
   * Pauses a group until it is resumed, even after a restart of the server.
   * @param {string} topic
   * @param {string} group
   * @param {CallOptions} [options]
   */
  pause(topic, group, { signal } = {}) {
    return this.http.json(["groups", group, "pause"], { method: "POST", query: { topic }, signal });
  }

  /**
   * Ends the pause of a group.
   * @param {string} topic
   * @param {string} group
   * @param {CallOptions} [options]
   */
  resume(topic, group, { signal } = {}) {
    return this.http.json(["groups", group, "resume"], { method: "POST", query: { topic }, signal });
  }

  /**
   * Deletes a group without members.
   * @param {string} topic
   * @param {string} group
   * @param {CallOptions} [options]
   */
  deleteGroup(topic, group, { signal } = {}) {
    return this.http.json(["groups", group], { method: "DELETE", query: { topic }, signal });
  }

  /**
   * The open dead letters of a group, page by page.
   * @param {string} topic
   * @param {string} group
   * @param {{limit?: number} & CallOptions} [options]
   * @returns {AsyncGenerator<DeadLetter & Record<string, any>, void, void>}
   */
  deadLetters(topic, group, options) {
    return this.pages(["dlq"], "letters", { topic, group }, options);
  }

  /**
   * Delivers dead letters again: to their group, or as new events of the topic.
   * @param {string} topic
   * @param {string} group
   * @param {LetterChoice & {to?: "group" | "topic"}} choice
   * @param {CallOptions} [options]
   */
  redrive(topic, group, choice, { signal } = {}) {
    return this.http.json(["dlq", "redrive"], { method: "POST", query: { topic, group }, json: choice, signal });
  }

  /**
   * Closes dead letters.
   * @param {string} topic
   * @param {string} group
   * @param {LetterChoice} choice
   * @param {CallOptions} [options]
   */
  drop(topic, group, choice, { signal } = {}) {
    return this.http.json(["dlq", "drop"], { method: "POST", query: { topic, group }, json: choice, signal });
  }

  /**
   * @private
   * @param {string[]} path
   * @param {string} list The field of the answer that has the page.
   * @param {Record<string, unknown>} query
   * @param {{limit?: number} & CallOptions} [options]
   * @returns {AsyncGenerator<any, void, void>}
   */
  async *pages(path, list, query, { limit, signal } = {}) {
    let after;
    while (true) {
      const page = await this.http.json(path, { query: { ...query, after, limit }, signal });
      yield* page[list];
      if (page.next === undefined || page.next === null) return;
      after = page.next;
    }
  }
}
