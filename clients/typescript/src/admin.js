/**
 * Looking at and changing topics, schemas, groups, dead letters and projectors, and the health of the server.
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

/**
 * A topic.
 * @typedef {object} TopicDescription
 * @property {string} topic Its name.
 * @property {number} earliest The first offset that is kept.
 * @property {number} end The offset that the next event will have.
 * @property {number} bytes Its size on the disk.
 * @property {number} [held] How many events retention keeps because projectors have still to read them.
 * @property {Record<string, any>} settings Its settings.
 */

/**
 * The progress of a group on a topic.
 * @typedef {object} TopicProgress
 * @property {string} topic The topic.
 * @property {number} floor Every event below this offset is finished.
 * @property {number} end The end of the topic.
 * @property {number} lag How many events are not finished.
 * @property {number} in_flight How many events members have.
 * @property {number} members How many members there are.
 * @property {string} reason `delivering`, or why not.
 */

/**
 * A group. Further fields are its options, its members and their partitions.
 * @typedef {object} GroupDescription
 * @property {string} group Its name.
 * @property {string} topic Its topic or pattern.
 * @property {boolean} paused Whether it is paused.
 * @property {(TopicProgress & Record<string, any>)[]} topics Its progress on its topics.
 */

/**
 * How far a group is behind.
 * @typedef {object} GroupLag
 * @property {number} lag In events.
 * @property {number | null} lag_ms In milliseconds, if that is known.
 * @property {number} floor Every event below this offset is finished.
 * @property {number} end The end of the topic.
 */

/**
 * How a schema compares with the registered versions.
 * @typedef {object} SchemaComparison
 * @property {string} verdict `compatible`, `incompatible` or `undecidable`.
 * @property {any[]} compared The versions it was compared with, and what was found.
 */

/**
 * A projector.
 * @typedef {object} ProjectorStatus
 * @property {string} name Its name.
 * @property {string} topic The topic that it reads.
 * @property {string} activity `running`, `retrying`, `halted` or `stuck`.
 * @property {number} position The offset of the next event that it reads.
 * @property {number} end The end of the topic.
 * @property {number} lag How many events it is behind.
 * @property {number} failures How often an event failed.
 * @property {string} [last_error] Why the last event failed.
 * @property {{running: boolean, position: number, equal?: boolean} & Record<string, any>} [rebuild] The last rebuild.
 */

/** Topics, schemas, groups, dead letters and projectors of a server. Changes need the scope `manage`. */
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
   * @returns {AsyncGenerator<TopicDescription, void, void>}
   */
  topics(options) {
    return this.pages(["topics"], "topics", {}, options);
  }

  /**
   * One topic with its settings.
   * @param {string} topic
   * @param {CallOptions} [options]
   * @returns {Promise<TopicDescription>}
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
   * The topics that have schemas.
   * @param {{limit?: number} & CallOptions} [options] `limit` is the size of a page.
   * @returns {AsyncGenerator<{topic: string, latest: number, versions: number}, void, void>}
   */
  schemaTopics(options) {
    return this.pages(["schemas"], "topics", {}, options);
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
   * Compares a schema with the registered versions; writes nothing.
   * @param {string} topic
   * @param {object | boolean} schema
   * @param {CallOptions} [options]
   * @returns {Promise<SchemaComparison>}
   */
  checkSchema(topic, schema, { signal } = {}) {
    return this.http.json(["schemas", topic, "check"], { method: "POST", json: schema, signal });
  }

  /**
   * Deletes a version that no event was published with.
   * @param {string} topic
   * @param {number} version
   * @param {CallOptions} [options]
   */
  deleteSchema(topic, version, { signal } = {}) {
    return this.http.json(["schemas", topic, String(version)], { method: "DELETE", signal });
  }

  /**
   * Lifts all stored events and tells which fail; writes nothing.
   * @param {string} topic
   * @param {CallOptions} [options]
   * @returns {Promise<{events: number, lifted: number, same: number, failed: number, failures: any[]} & Record<string, any>>}
   */
  tryMigration(topic, { signal } = {}) {
    return this.http.json(["schemas", topic, "migrate"], { method: "POST", signal });
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
   * @returns {Promise<(GroupDescription & Record<string, any>)[]>}
   */
  async groups(topic, options) {
    const groups = [];
    for await (const group of this.pages(["groups"], "groups", { topic }, options)) groups.push(group);
    return groups;
  }

  /**
   * The cursors of the groups of a topic.
   * @param {string} topic
   * @param {{limit?: number} & CallOptions} [options] `limit` is the size of a page.
   * @returns {AsyncGenerator<{group: string} & TopicProgress & Record<string, any>, void, void>}
   */
  cursors(topic, options) {
    return this.pages(["cursors"], "cursors", { topic }, options);
  }

  /**
   * One group: its options, its progress, and why it delivers nothing.
   * @param {string} topic
   * @param {string} group
   * @param {CallOptions} [options]
   * @returns {Promise<GroupDescription & Record<string, any>>}
   */
  group(topic, group, { signal } = {}) {
    return this.http.json(["groups", group], { query: { topic }, signal });
  }

  /**
   * How far a group is behind.
   * @param {string} topic
   * @param {string} group
   * @param {CallOptions} [options]
   * @returns {Promise<GroupLag>}
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
   * Delivers dead letters again: to their group, or as new events of the topic. With `to: "topic"` and one letter,
   * `payload` is published instead of the payload of the event, and the letter is closed.
   * @param {string} topic
   * @param {string} group
   * @param {LetterChoice & {to?: "group" | "topic", payload?: unknown}} choice
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
   * Whether the server is well: `status` is `ok` or `degraded`.
   * @param {CallOptions} [options]
   * @returns {Promise<{status: "ok" | "degraded", writable: boolean} & Record<string, any>>}
   */
  health(options) {
    return this.http.json(["health"], options);
  }

  /**
   * Whether the server accepts work.
   * @param {CallOptions} [options]
   * @returns {Promise<boolean>}
   */
  async isReady({ signal } = {}) {
    const response = await this.http.send(["ready"], { signal, allow: [503] });
    return response.ok;
  }

  /**
   * One page of what goes on: groups with their members, projectors, faults. `after` is `next` of the page before.
   * @param {{limit?: number, after?: string} & CallOptions} [options]
   * @returns {Promise<{groups: (GroupDescription & Record<string, any>)[], projectors: ProjectorStatus[], next?: string} & Record<string, any>>}
   */
  ops({ limit, after, signal } = {}) {
    return this.http.json(["ops"], { query: { limit, after }, signal });
  }

  /**
   * The projectors and compactors.
   * @param {CallOptions} [options]
   * @returns {Promise<{projectors: ProjectorStatus[], compactors: Record<string, any>[]}>}
   */
  projectors(options) {
    return this.http.json(["projectors"], options);
  }

  /**
   * Rebuilds the state of a projector.
   * @param {string} projector
   * @param {{acceptLoss?: boolean} & CallOptions} [options] `acceptLoss`: also if events that it needs are gone.
   * @returns {Promise<ProjectorStatus>}
   */
  rebuildProjector(projector, { acceptLoss, signal } = {}) {
    const query = { accept_loss: acceptLoss ? 1 : undefined };
    return this.http.json(["projectors", projector, "rebuild"], { method: "POST", query, signal });
  }

  /**
   * Lets a halted projector continue.
   * @param {string} projector
   * @param {CallOptions} [options]
   * @returns {Promise<ProjectorStatus>}
   */
  resumeProjector(projector, { signal } = {}) {
    return this.http.json(["projectors", projector, "resume"], { method: "POST", signal });
  }

  /**
   * Asks any route for JSON: what this class has no call for.
   * @param {string[]} path Segments of the path.
   * @param {Record<string, unknown>} [query]
   * @param {CallOptions} [options]
   * @returns {Promise<any>}
   */
  get(path, query = {}, { signal } = {}) {
    return this.http.json(path, { query, signal });
  }

  /**
   * The name, the scopes and the end of the token.
   * @param {CallOptions} [options]
   * @returns {Promise<{name: string, kind: "listed" | "signed" | "open" | "other", scopes: string[], expires: number | null}>}
   */
  whoami(options) {
    return this.http.json(["whoami"], options);
  }

  /**
   * A text that stands for the token in one `GET` of a path within 60 seconds, as the parameter `ticket`: for links and
   * for `EventSource`, which cannot send a token. `Reader.streamUrl` makes the address of a stream.
   * @param {string} path For example `/stream/orders.placed`.
   * @param {CallOptions} [options]
   * @returns {Promise<{ticket: string, expires: number}>}
   */
  ticket(path, { signal } = {}) {
    return this.http.json(["tickets"], { method: "POST", json: { path }, signal });
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
