/**
 * Reading topics without a group: history, exports, and events as they come.
 * @module
 */

import { backoffMs, sleep } from "./backoff.js";
import { PrometheanError } from "./errors.js";
import { Http, search } from "./http.js";

/** The longest silence of a stream; the server sends a comment every 15 s. */
const SILENCE_MS = 45_000;

/**
 * @typedef {import("./types.js").BusEvent<any>} AnyEvent
 */

/** Reads topics. It creates no group, so it takes no event from others. */
export class Reader {
  /**
   * @param {ConstructorParameters<typeof Http>[0]} server A client, or the URL of the server.
   * @param {import("./http.js").HttpOptions} [options]
   */
  constructor(server, options) {
    /** @private */
    this.http = new Http(server, options);
  }

  /**
   * The events of a topic up to its present end, page by page, beginning with the first or where `from` says.
   * @template [T=any]
   * @param {string} topic
   * @param {import("./types.js").StartOptions & {limit?: number, normalize?: boolean, signal?: AbortSignal}} [options]
   *   `limit` is the size of a page.
   * @returns {AsyncGenerator<import("./types.js").BusEvent<T>, void, void>}
   */
  async *replay(topic, { signal, normalize, ...start } = {}) {
    /** @type {Record<string, unknown>} */
    let query = { from: "earliest", ...start };
    while (true) {
      const page = await this.http.json(["replay"], { query: { topic, normalize: flag(normalize), ...query }, signal });
      yield* page.events;
      if (page.next === undefined) return;
      query = { from: "offset", offset: page.next, limit: start.limit };
    }
  }

  /**
   * Exactly the events with `fromTs` <= `ts` <= `toTs`, each once, in the order of their offsets, as a stream. A lost
   * connection is continued.
   * @template [T=any]
   * @param {string} topic
   * @param {{fromTs?: number, toTs?: number, fromOffset?: number, normalize?: boolean, signal?: AbortSignal}} [options]
   * @returns {AsyncGenerator<import("./types.js").BusEvent<T>, void, void>}
   */
  async *export(topic, { signal, normalize, fromOffset, fromTs, toTs = Date.now() } = {}) {
    let tries = 0;
    while (true) {
      try {
        const query = { topic, fromTs, toTs, fromOffset, normalize: flag(normalize) };
        const response = await this.http.send(["export"], { query, signal });
        for await (const line of lines(response, signal)) {
          if (line === "") continue;
          const event = JSON.parse(line);
          yield event;
          fromOffset = event.offset + 1;
          tries = 0;
        }
        return;
      } catch (error) {
        await waitToContinue(error, ++tries, signal);
      }
    }
  }

  /**
   * The events of a topic as they come, without end, beginning with the next or where `from` says. A lost connection is
   * continued without a gap and without a repetition.
   * @template [T=any]
   * @param {string} topic
   * @param {import("./types.js").StartOptions & {normalize?: boolean, signal?: AbortSignal, onExpired?: (data: any) => void, onOpen?: () => void}} [options]
   *   `onExpired` is called when retention removed events before they were read, `onOpen` each time the server has
   *   accepted the stream.
   * @returns {AsyncGenerator<import("./types.js").BusEvent<T>, void, void>}
   */
  async *follow(topic, { signal, normalize, onExpired, onOpen, ...start } = {}) {
    /** @type {number | undefined} */
    let last;
    let tries = 0;
    /** @type {Record<string, unknown>} */
    let query = { ...start };
    if (start.from === undefined) {
      // A stream that is lost before its first event must not skip what comes meanwhile.
      query = { from: "offset", offset: await this.end(topic, signal) };
    }
    while (!signal?.aborted) {
      try {
        /** @type {Record<string, string>} */
        const headers = last === undefined ? {} : { "last-event-id": String(last) };
        const all = { normalize: flag(normalize), ...(last === undefined ? query : {}) };
        const response = await this.http.send(["stream", topic], { query: all, headers, signal });
        onOpen?.();
        for await (const { event, data } of messages(response, signal)) {
          tries = 0;
          if (event === "expired") {
            onExpired?.(JSON.parse(data));
          } else if (event === "message") {
            const one = JSON.parse(data);
            yield one;
            last = one.offset;
          }
        }
        throw new PrometheanError("disconnected", "the stream ended");
      } catch (error) {
        if (signal?.aborted) return;
        await waitToContinue(error, ++tries, signal);
      }
    }
  }

  /**
   * An address for `EventSource`, which cannot send a token: `new EventSource(await reader.streamUrl("orders.placed"))`.
   * It opens one connection, within 60 seconds; on an error, close the `EventSource` and ask for another address.
   * @param {string} topic
   * @param {import("./types.js").StartOptions & {normalize?: boolean, signal?: AbortSignal}} [options]
   * @returns {Promise<string>}
   */
  async streamUrl(topic, { signal, normalize, ...start } = {}) {
    const path = `/stream/${encodeURIComponent(topic)}`;
    const { ticket } = await this.http.json(["tickets"], { method: "POST", json: { path }, signal });
    return `${this.http.base}${path}${search({ ...start, normalize: flag(normalize), ticket })}`;
  }

  /**
   * The latest event of each key; `null` for a key without events.
   * @param {string} topic
   * @param {string[]} keys At most 100.
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<Record<string, AnyEvent | null>>}
   */
  async latestByKey(topic, keys, { signal } = {}) {
    return (await this.http.json(["latest-by-key"], { query: { topic, key: keys }, signal })).events;
  }

  /**
   * The offset that the next event of a topic will have.
   * @param {string} topic
   * @param {AbortSignal} [signal]
   * @returns {Promise<number>}
   */
  async end(topic, signal) {
    try {
      return (await this.http.json(["topics", topic], { signal })).end;
    } catch (error) {
      if (error instanceof PrometheanError && error.code === "unknown_topic") return 0;
      throw error;
    }
  }
}

/** @param {boolean | undefined} value */
function flag(value) {
  return value ? 1 : undefined;
}

/**
 * Waits before a reader continues, or rethrows what only the user can change.
 * @param {unknown} error
 * @param {number} tries
 * @param {AbortSignal | undefined} signal
 */
async function waitToContinue(error, tries, signal) {
  if (signal?.aborted) throw signal.reason;
  if (error instanceof SyntaxError) throw error;
  if (error instanceof PrometheanError && !error.isRetryable) throw error;
  await sleep((error instanceof PrometheanError && error.retryAfterMs) || backoffMs(tries), signal);
}

/**
 * The lines of an answer. A silence that is too long ends them with an error.
 * @param {Response} response
 * @param {AbortSignal | undefined} signal
 */
async function* lines(response, signal) {
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    while (true) {
      const { done, value } = await withTimeout(reader.read(), signal);
      if (done) break;
      const parts = (rest + value).split("\n");
      rest = parts.pop() ?? "";
      yield* parts;
    }
    if (rest) yield rest;
  } finally {
    // The reader may have failed already.
    await reader.cancel().catch(() => {});
  }
}

/**
 * The messages of an event stream.
 * @param {Response} response
 * @param {AbortSignal | undefined} signal
 */
async function* messages(response, signal) {
  let event = "message";
  let data = "";
  for await (const line of lines(response, signal)) {
    if (line === "") {
      if (data) yield { event, data };
      event = "message";
      data = "";
    } else if (line.startsWith("event:")) {
      event = line.slice(6).trim();
    } else if (line.startsWith("data:")) {
      data += line.slice(5).trimStart();
    }
  }
}

/**
 * @template T
 * @param {Promise<T>} promise
 * @param {AbortSignal | undefined} signal
 * @returns {Promise<T>}
 */
async function withTimeout(promise, signal) {
  /** @type {any} */
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(
      () => reject(new PrometheanError("disconnected", `the server was silent for ${SILENCE_MS} ms`)),
      SILENCE_MS,
    );
  });
  try {
    return await Promise.race([promise, /** @type {Promise<never>} */ (late)]);
  } catch (error) {
    throw signal?.aborted ? signal.reason : error;
  } finally {
    clearTimeout(timer);
  }
}
