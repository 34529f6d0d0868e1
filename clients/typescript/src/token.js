/**
 * The token of a client and the time at which it must be renewed.
 * @module
 */

import { backoffMs } from "./backoff.js";

/** A token is renewed this long before its end, or after half of its life if that is later. */
const RENEW_BEFORE_MS = 90_000;
/** Refused tokens after which the old one is used until its end. */
const REFUSED_MAX = 2;
/** Timers take no more. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/**
 * Whether the server refused a token.
 * @param {any} error
 */
export const isTokenRefusal = (error) => error?.code === "bad_token" || error?.code === "unauthorized";

/**
 * Reads the token from an option.
 * @param {import("./types.js").Token | undefined} token
 * @returns {Promise<string | undefined>}
 */
export async function readToken(token) {
  return typeof token === "function" ? token() : token;
}

/**
 * Renews a token before it expires, if it comes from a function. A renewal that fails is tried again, more and more
 * rarely. After two refused tokens the next one is shown when the old token ends: the server would end the connection.
 */
export class Renewal {
  /**
   * @param {import("./types.js").Token | undefined} source
   * @param {() => Promise<void>} renew
   */
  constructor(source, renew) {
    /** @private */
    this.isPossible = typeof source === "function";
    /** @private */
    this.renew = renew;
    /** @private @type {any} */
    this.timer = undefined;
  }

  /**
   * Plans the renewal of a token that is in use now.
   * @param {string | undefined} token
   */
  plan(token) {
    this.stop();
    const after = this.isPossible ? renewAfterMs(token, Date.now()) : undefined;
    if (after !== undefined) this.timer = setTimeout(() => this.attempt(1, 0), after);
  }

  /**
   * @private
   * @param {number} tries
   * @param {number} refused Tokens that the server refused.
   */
  async attempt(tries, refused) {
    try {
      await this.renew();
    } catch (error) {
      const count = refused + Number(isTokenRefusal(error));
      if (count < REFUSED_MAX)
        this.timer = setTimeout(() => this.attempt(tries + 1, count), backoffMs(tries, 1_000, 60_000));
    }
  }

  stop() {
    clearTimeout(this.timer);
  }
}

/**
 * How long to wait before a token must be renewed, if the token is a JWT with an end.
 * @param {string | undefined} token
 * @param {number} nowMs
 * @returns {number | undefined}
 */
export function renewAfterMs(token, nowMs) {
  const body = token?.split(".")[1];
  if (!body) return undefined;
  try {
    const { exp } = JSON.parse(atob(body.replace(/-/g, "+").replace(/_/g, "/")));
    const leftMs = exp * 1000 - nowMs;
    if (!Number.isFinite(leftMs)) return undefined;
    return Math.min(TIMER_MS_MAX, Math.max(500, leftMs / 2, leftMs - RENEW_BEFORE_MS));
  } catch {
    // Not a JWT: the server knows when it ends.
    return undefined;
  }
}
