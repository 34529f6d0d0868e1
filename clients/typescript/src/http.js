/**
 * Requests over HTTP, with the token and the errors of the client.
 * @module
 */

import { addressOf } from "./address.js";
import { PrometheanError, reasonOf } from "./errors.js";
import { readToken } from "./token.js";

/**
 * @typedef {object} HttpOptions
 * @property {import("./types.js").Token} [token] The token, or a function that returns it.
 * @property {typeof fetch} [fetch] The function to use instead of the platform's.
 */

/**
 * @typedef {object} RequestOptions
 * @property {string} [method]
 * @property {Record<string, unknown>} [query] Parameters; `undefined` is left out, a list is repeated.
 * @property {unknown} [json] The body, as JSON.
 * @property {string} [text] The body, as text.
 * @property {Record<string, string>} [headers]
 * @property {AbortSignal | undefined} [signal]
 * @property {number[]} [allow] Statuses that are not errors, beside 200 to 299.
 */

/** Requests to one server. */
export class Http {
  /**
   * @param {{address: {http: string}, token?: import("./types.js").Token | undefined} | string | URL} server A client,
   *   or the URL of the server.
   * @param {HttpOptions} [options]
   */
  constructor(server, options = {}) {
    const isClient = typeof server === "object" && "address" in server;
    /** The address of the server. */
    this.base = isClient ? server.address.http : addressOf(server).http;
    /** @private */
    this.token = options.token ?? (isClient ? server.token : undefined);
    /** @private */
    this.fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
  }

  /**
   * Sends a request. Rejects with the server's refusal.
   * @param {string[]} path Segments of the path.
   * @param {RequestOptions} [options]
   * @returns {Promise<Response>}
   */
  async send(path, { method = "GET", query = {}, json, text, headers = {}, signal, allow = [] } = {}) {
    const token = await readToken(this.token);
    /** @type {Record<string, string>} */
    const all = { ...headers };
    if (token !== undefined) all.authorization = `Bearer ${token}`;
    if (json !== undefined) all["content-type"] = "application/json";
    const body = json === undefined ? text : JSON.stringify(json);
    const url = `${this.base}/${path.map(encodeURIComponent).join("/")}${search(query)}`;
    let response;
    try {
      response = await this.fetch(url, {
        method,
        headers: all,
        ...(body !== undefined && { body }),
        ...(signal && { signal }),
      });
    } catch (cause) {
      if (signal?.aborted) throw signal.reason;
      throw noAnswer(this.base, method, cause);
    }
    if (response.ok || allow.includes(response.status)) return response;
    const answer = await response.json().catch(() => ({}));
    const { error = "internal", message = `the server answered ${response.status}`, ...more } = answer;
    throw new PrometheanError(error, message, { status: response.status, ...more });
  }

  /**
   * Sends a request and reads its answer as JSON.
   * @param {string[]} path
   * @param {RequestOptions} [options]
   * @returns {Promise<any>}
   */
  async json(path, options) {
    const response = await this.send(path, options);
    return response.json();
  }
}

/**
 * Parameters as the end of an address.
 * @internal
 * @param {Record<string, unknown>} query
 */
export function search(query) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined) continue;
    for (const one of Array.isArray(value) ? value : [value]) params.append(name, String(one));
  }
  const text = params.toString();
  return text && `?${text}`;
}

/**
 * @param {string} base
 * @param {string} method
 * @param {any} cause
 */
function noAnswer(base, method, cause) {
  const page = globalThis.document && globalThis.location?.origin;
  const why = cause?.cause?.code ?? reasonOf(cause?.cause ?? cause);
  const hint =
    page && !base.startsWith(page)
      ? `the browser hides why; check that the server runs, and that its \`allowed_origins\` have "${page}"`
      : "check that the server runs there and that the URL is right";
  // A request that only reads changes nothing, whether it arrived or not.
  return new PrometheanError("unreachable", `no answer from ${base}: ${why}; ${hint}`, {
    cause,
    sideEffects: method !== "GET" && method !== "HEAD",
  });
}
