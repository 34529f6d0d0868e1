/**
 * The connection of a client: it opens, shows the token, notices when the server is gone, and opens again.
 * @module
 */

import { diagnose, unreachable } from "./address.js";
import { backoffMs, waitFor } from "./backoff.js";
import { PrometheanError, reasonOf, refusal } from "./errors.js";
import { decode, encode } from "./frames.js";
import { Keepalive } from "./keepalive.js";
import { Socket, socketClass } from "./socket.js";
import { Renewal, isTokenRefusal, readToken } from "./token.js";

/** A function may return refused tokens for so long, and so often, before the client gives up. */
const TOKEN_REFUSED_MS_MAX = 30_000;
const TOKEN_TRIES_MAX = 5;
/** The shortest wait after a refused token. */
const TOKEN_WAIT_MS = 1_000;
/** How often the reason is looked for while the server cannot be reached, in tries. */
const DIAGNOSE_EVERY = 10;
/** A connection that lived this long was a good one: the next wait is short again. */
const GOOD_AFTER_MS = 2_000;
/** Close codes of the server. */
const TOKEN_OVER = 4401;
const TOO_MANY = 4429;
const TOO_MANY_WAIT_MS = 3_000;
/** How long the server may take to answer a goodbye. */
const GOODBYE_MS = 1_000;

/**
 * @typedef {"idle" | "connecting" | "open" | "closed"} ConnectionState
 */

/**
 * What happens to the answer of a frame.
 * @typedef {object} Waiter
 * @property {(frame: import("./types.js").ServerFrame) => void} reply
 * @property {(error: PrometheanError) => void} lost The connection ended before the answer came.
 */

/**
 * What a connection tells its owner.
 * @typedef {object} ConnectionEvents
 * @property {() => void} up
 * @property {(error: PrometheanError, closeCode: number) => void} down
 * @property {(frame: import("./types.js").ServerFrame) => void} frame A frame that answers no waiter.
 * @property {(error: PrometheanError) => void} failed The client has given up for good.
 * @property {(error: Error) => void} error
 * @property {(state: ConnectionState, error?: Error) => void} state
 */

/**
 * @typedef {object} ConnectionOptions
 * @property {import("./types.js").Token} [token] The token, or a function that returns it.
 * @property {any} [WebSocket] The WebSocket class to use instead of the platform's.
 * @property {number} [openTimeoutMs] The longest time to open a connection (10000).
 * @property {number} [pingEveryMs] After this silence the client asks whether the server is there (10000).
 * @property {number} [pingTimeoutMs] If nothing comes for this long after that, the connection is given up (10000).
 * @property {number} [reconnectMinMs] The first wait before a new connection (100).
 * @property {number} [reconnectMaxMs] The longest such wait (10000).
 */

/** One connection at a time to one server, opened again whenever it is lost. */
export class Connection {
  /**
   * @param {{ws: string, http: string}} address
   * @param {ConnectionOptions} options
   * @param {ConnectionEvents} events
   */
  constructor(address, options, events) {
    this.address = address;
    this.options = { openTimeoutMs: 10_000, pingEveryMs: 10_000, pingTimeoutMs: 10_000, ...options };
    this.events = events;
    /** @type {ConnectionState} */
    this.state = "idle";
    /** Why the client gave up, or why the last connection failed. @type {PrometheanError | undefined} */
    this.failure = undefined;
    /** @private Why the server cannot be reached, as far as it was found out. @type {PrometheanError | undefined} */
    this.diagnosis = undefined;
    /** @private @type {Map<unknown, Waiter>} */
    this.waiters = new Map();
    /** @private @type {Set<{up: () => void, fail: (error: Error) => void}>} */
    this.watchers = new Set();
    /** @private @type {Socket | undefined} */
    this.socket = undefined;
    /** @private */
    this.corr = 0;
    /** @private Connections that failed in a row. */
    this.tries = 0;
    /** @private Refused tokens in a row, and when the first of them was refused. */
    this.tokensRefused = { count: 0, since: 0 };
    /** @private */
    this.openedAt = 0;
    /** @private @type {any} */
    this.retryTimer = undefined;
    // Servers without this op refuse it, which answers the question too.
    const ping = () => this.send(encode("PING", { corr: "ping" }), "ping", { reply() {}, lost() {} });
    /** @private */
    this.keepalive = new Keepalive(this.options, ping, (silentMs) =>
      this.socket?.abandon(`no answer for ${silentMs} ms`),
    );
    /** @private */
    this.renewal = new Renewal(options.token, async () => {
      try {
        await this.renewToken();
      } catch (error) {
        events.error(/** @type {Error} */ (error));
        throw error;
      }
    });
  }

  /** Begins to connect, if that has not begun. */
  start() {
    if (this.state === "idle") this.attempt();
  }

  /**
   * Waits until the connection is open. Rejects if the client gave up, or if a cause is found that waiting does not
   * cure.
   * @param {import("./types.js").WaitOptions} [limits]
   * @returns {Promise<void>}
   */
  whenOpen({ signal, timeoutMs = 15_000 } = {}) {
    this.start();
    if (this.state === "open") return Promise.resolve();
    if (this.state === "closed") return Promise.reject(this.overError());
    const late = () => this.failure ?? unreachable(this.address, `no answer within ${timeoutMs} ms`);
    return waitFor(
      (resolve, reject) => {
        const watcher = { up: resolve, fail: reject };
        this.watchers.add(watcher);
        return () => this.watchers.delete(watcher);
      },
      { signal, timeoutMs, late },
    );
  }

  /** The number that marks the next frame. */
  nextCorr() {
    return ++this.corr;
  }

  /**
   * Sends a frame whose answer goes to `waiter`. The connection must be open.
   * @param {string} text
   * @param {unknown} corr
   * @param {Waiter} waiter
   */
  send(text, corr, waiter) {
    this.waiters.set(corr, waiter);
    this.socket?.send(text);
  }

  /**
   * Sends a frame and waits for its answer. Rejects with the server's refusal, or if the connection ends.
   * @param {string} op
   * @param {Record<string, unknown>} fields
   * @param {import("./types.js").WaitOptions} [limits]
   * @returns {Promise<import("./types.js").ServerFrame>}
   */
  request(op, fields, { signal, timeoutMs = 30_000 } = {}) {
    if (this.state !== "open" && op !== "AUTH") {
      if (this.state === "closed") return Promise.reject(this.overError());
      const message = `${op} needs a connection, and there is none now; wait for \`connect()\` and try again`;
      return Promise.reject(new PrometheanError("disconnected", message, { sideEffects: false, cause: this.failure }));
    }
    const corr = this.nextCorr();
    const late = () =>
      new PrometheanError("timeout", `the server did not answer ${op} within ${timeoutMs} ms; try again`);
    return waitFor(
      (resolve, reject) => {
        this.send(encode(op, { ...fields, corr }), corr, {
          reply: (frame) => (frame.op === "ERR" ? reject(refusal(frame)) : resolve(frame)),
          lost: reject,
        });
      },
      { signal, timeoutMs, late },
    );
  }

  /** Shows a token on the open connection, for example one that allows more. */
  async renewToken() {
    const token = await readToken(this.options.token);
    if (this.state !== "open") return;
    await this.request("AUTH", { token });
    this.renewal.plan(token);
  }

  /**
   * Ends the connection for good.
   * @param {PrometheanError} [failure] Why, if this is not the owner's wish.
   */
  close(failure) {
    if (this.state === "closed") return;
    this.failure = failure;
    this.setState("closed", failure);
    clearTimeout(this.retryTimer);
    this.stopTimers();
    for (const watcher of [...this.watchers]) watcher.fail(this.overError());
    const { socket } = this;
    socket?.close();
    // A server that does not answer the goodbye must not keep the process alive.
    if (socket) this.retryTimer = setTimeout(() => socket.abandon("closed"), GOODBYE_MS);
    if (failure) this.events.failed(failure);
  }

  /** The error of a call on a client that is over. */
  overError() {
    return this.failure ?? new PrometheanError("client_closed", "the client is closed; create a new one");
  }

  /**
   * @private
   * @param {ConnectionState} state
   * @param {Error} [error]
   */
  setState(state, error) {
    if (this.state === state) return;
    this.state = state;
    this.events.state(state, error);
  }

  /** @private */
  async attempt() {
    this.setState("connecting");
    let token;
    let WebSocketClass;
    try {
      WebSocketClass = await socketClass(this.options.WebSocket);
    } catch (error) {
      return this.close(/** @type {PrometheanError} */ (error));
    }
    try {
      token = await readToken(this.options.token);
    } catch (cause) {
      const message = `the function for the token failed: ${reasonOf(cause)}; it is called again`;
      const failure = new PrometheanError("auth_unavailable", message, { cause });
      this.events.error(failure);
      return this.retry(failure, 0);
    }
    // The client may have been closed while the token was fetched.
    if (this.isOver()) return;
    try {
      this.open(WebSocketClass, token);
    } catch (cause) {
      this.close(
        new PrometheanError("bad_url", `a WebSocket to ${this.address.ws} cannot be made: ${cause}`, { cause }),
      );
    }
  }

  /** @private */
  isOver() {
    return this.state === "closed";
  }

  /**
   * @private
   * @param {any} WebSocketClass
   * @param {string | undefined} token
   */
  open(WebSocketClass, token) {
    const { openTimeoutMs } = this.options;
    /** @type {PrometheanError | undefined} */
    let refused;
    let isHeard = false;
    const timer = setTimeout(() => socket.abandon(`no answer within ${openTimeoutMs} ms`), openTimeoutMs);
    const socket = new Socket(WebSocketClass, this.address.ws, {
      open: () => {
        isHeard = true;
        this.request("AUTH", { token }, { timeoutMs: openTimeoutMs }).then(
          () => {
            clearTimeout(timer);
            this.opened(token);
          },
          (error) => {
            if (error.code === "disconnected") return;
            refused = error;
            socket.abandon(error.message);
          },
        );
      },
      message: (text) => this.receive(text),
      close: (code, reason, cause) => {
        clearTimeout(timer);
        this.ended(code, reason, { cause, refused, isHeard });
      },
    });
    this.socket = socket;
  }

  /**
   * @private
   * @param {string | undefined} token
   */
  opened(token) {
    if (this.isOver()) return;
    this.openedAt = performance.now();
    this.tokensRefused.count = 0;
    this.failure = this.diagnosis = undefined;
    this.renewal.plan(token);
    this.keepalive.start();
    this.setState("open");
    this.events.up();
    for (const watcher of [...this.watchers]) watcher.up();
  }

  /**
   * @private
   * @param {string} text
   */
  receive(text) {
    this.keepalive.heardAt = performance.now();
    let frame;
    try {
      frame = decode(text);
    } catch (error) {
      return this.events.error(/** @type {Error} */ (error));
    }
    const waiter = frame.corr === undefined ? undefined : this.waiters.get(frame.corr);
    if (!waiter) return this.events.frame(frame);
    this.waiters.delete(frame.corr);
    waiter.reply(frame);
  }

  /**
   * @private
   * @param {number} code
   * @param {string} reason
   * @param {{cause: any, refused: PrometheanError | undefined, isHeard: boolean}} how
   */
  ended(code, reason, { cause, refused, isHeard }) {
    this.socket = undefined;
    clearTimeout(this.retryTimer);
    this.stopTimers();
    const wasOpen = this.openedAt > 0;
    if (wasOpen && performance.now() - this.openedAt > GOOD_AFTER_MS) this.tries = 0;
    this.openedAt = 0;
    const why = reason || cause?.message || `code ${code}`;
    const lost = new PrometheanError("disconnected", `the connection to ${this.address.ws} ended: ${why}`, {
      cause,
      closeCode: code,
    });
    // From here on nothing is sent, also not by what is called below.
    if (!this.isOver()) this.setState("connecting", lost);
    const waiters = [...this.waiters.values()];
    this.waiters.clear();
    for (const waiter of waiters) waiter.lost(lost);
    if (wasOpen) this.events.down(lost, code);
    if (this.isOver()) return;
    const failure = refused ?? (isHeard ? lost : (this.diagnosis ?? unreachable(this.address, reason || cause)));
    this.retry(failure, code);
    if (!isHeard && this.tries % DIAGNOSE_EVERY === 1) this.findCause(cause);
  }

  /**
   * Tries again later, unless only the user can help.
   * @private
   * @param {PrometheanError} failure
   * @param {number} code
   */
  retry(failure, code) {
    this.tries++;
    this.failure = failure;
    const isRefused = isTokenRefusal(failure);
    if (isRefused && this.isTokenHopeless()) return this.close(failure);
    const isTooMuch = code === TOO_MANY || ["rate_limited", "too_many_connections"].includes(failure.code);
    const shortest = isRefused ? TOKEN_WAIT_MS : 0;
    const atLeast = isTooMuch ? (failure.retryAfterMs ?? TOO_MANY_WAIT_MS) : shortest;
    // A token that is over is replaced at once.
    const isFirst = code === TOKEN_OVER && this.tries === 1;
    const wait = isFirst ? 0 : backoffMs(this.tries - 1, this.options.reconnectMinMs, this.options.reconnectMaxMs);
    clearTimeout(this.retryTimer);
    this.retryTimer = setTimeout(() => !this.isOver() && this.attempt(), Math.max(wait, atLeast));
  }

  /** Counts a refused token; true if only the user can help. @private */
  isTokenHopeless() {
    const refused = this.tokensRefused;
    const now = performance.now();
    if (refused.count++ === 0) refused.since = now;
    if (typeof this.options.token !== "function") return true;
    return refused.count >= TOKEN_TRIES_MAX && now - refused.since >= TOKEN_REFUSED_MS_MAX;
  }

  /**
   * @private
   * @param {any} cause
   */
  async findCause(cause) {
    const failure = await diagnose(this.address, cause);
    if (this.state !== "connecting") return;
    this.failure = this.diagnosis = failure;
    this.events.error(failure);
    if (failure.isRetryable) return;
    for (const watcher of [...this.watchers]) watcher.fail(failure);
  }

  /** @private */
  stopTimers() {
    this.keepalive.stop();
    this.renewal.stop();
  }
}
