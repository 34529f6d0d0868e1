/**
 * The session of the user: the token, what it allows, and the connection to the server.
 * @module
 */

import { Admin, Connection, Http, PrometheanError, Reader, State, addressOf } from "./client.js";
import { Rights } from "./scopes.js";

const KEPT = "promethean-token";
const NO_TOKEN = new Set(["unauthorized", "bad_token"]);

/** @typedef {{name?: string, scopes?: string[], expires?: number | string | null}} Who */

/**
 * One login. Events: `state` when the connection changes, `back` when a lost connection is there again (a view that
 * goes on by itself prevents the default, which is to make the view anew), `over` when the token is no longer valid.
 */
class Session extends EventTarget {
  /** @type {string | undefined} */
  #token = read();
  /** @type {Connection | undefined} */
  #connection;

  constructor() {
    super();
    this.address = addressOf(new URL("../..", import.meta.url).href);
    const options = { token: /** @type {any} */ (() => this.#token), fetch: this.#fetch.bind(this) };
    this.http = new Http(this.address.http, options);
    this.admin = new Admin(this.address.http, options);
    this.reader = new Reader(this.address.http, options);
    this.state = new State(this.address.http, options);
    /** @type {Who} */
    this.who = {};
    this.rights = new Rights([]);
    /** How the connection is: `open`, `lost`, or `none` before the login. @type {"none" | "open" | "lost"} */
    this.link = "none";
    /** Since when, epoch ms. */
    this.linkSince = Date.now();
    /** Why the session ended, for the login. */
    this.farewell = "";
  }

  get hasToken() {
    return this.#token !== undefined;
  }

  /**
   * Begins a session with a token, or without one. Rejects if the server refuses it.
   * @param {string | undefined} token
   * @param {boolean} isKept Whether the token stays in the session storage of this tab.
   */
  async login(token, isKept) {
    this.#token = token || undefined;
    keep(isKept ? this.#token : undefined);
    await this.resume();
  }

  /** Begins the session with the token that there is. */
  async resume() {
    try {
      this.who = await this.http.json(["whoami"]);
    } catch (error) {
      if (error instanceof PrometheanError && NO_TOKEN.has(error.code)) this.#forget();
      throw error;
    }
    this.rights = new Rights(this.who.scopes ?? []);
    this.farewell = "";
    this.#connect();
  }

  /**
   * Ends the session.
   * @param {string} [why]
   */
  logout(why = "") {
    this.farewell = why;
    this.#forget();
    this.#connection?.close();
    this.#connection = undefined;
    this.#setLink("none");
    this.dispatchEvent(new Event("over"));
  }

  #connect() {
    this.#connection?.close();
    /** @type {Connection} */
    const connection = new Connection(
      this.address,
      { ...(this.#token !== undefined && { token: this.#token }), reconnectMinMs: 200, reconnectMaxMs: 3000 },
      {
        up: () => connection === this.#connection && this.#setLink("open"),
        down: () => connection === this.#connection && this.#setLink("lost"),
        failed: () => connection === this.#connection && this.#isOver(),
        frame() {},
        error() {},
        state() {},
      },
    );
    this.#connection = connection;
    connection.start();
  }

  #isOver() {
    this.logout("The server no longer accepts the token: it expired or was revoked. Log in with another one.");
  }

  /** @param {"none" | "open" | "lost"} link */
  #setLink(link) {
    if (this.link === link) return;
    this.link = link;
    this.linkSince = Date.now();
    this.dispatchEvent(new Event("state"));
  }

  #forget() {
    this.#token = undefined;
    keep(undefined);
  }

  /**
   * Notices answers that say that the token is over.
   * @param {any} url
   * @param {any} init
   */
  async #fetch(url, init) {
    const response = await fetch(url, { ...init, cache: "no-store", credentials: "omit" });
    if (response.status === 401 && this.link !== "none") this.#isOver();
    return response;
  }
}

function read() {
  try {
    return sessionStorage.getItem(KEPT) ?? undefined;
  } catch {
    return undefined;
  }
}

/** @param {string | undefined} token */
function keep(token) {
  try {
    if (token === undefined) sessionStorage.removeItem(KEPT);
    else sessionStorage.setItem(KEPT, token);
  } catch {
    // A browser that keeps nothing: the token stays in memory.
  }
}

export const session = new Session();
