/**
 * The address of a server, and why a server cannot be reached.
 * @module
 */

import { PrometheanError, reasonOf } from "./errors.js";

/** How long the question for the reason may take. */
const PROBE_MS = 5_000;

/**
 * The address of the WebSocket and of HTTP, from a URL with any of the four schemes.
 * @param {string | URL} url
 * @returns {{ws: string, http: string}}
 */
export function addressOf(url) {
  const text = String(url);
  let parsed;
  try {
    parsed = new URL(text);
  } catch (cause) {
    throw wrong(text, cause);
  }
  const secure = { "ws:": false, "http:": false, "wss:": true, "https:": true }[parsed.protocol];
  if (secure === undefined || !parsed.host) throw wrong(text);
  if (parsed.username || parsed.password || parsed.search || parsed.hash) {
    throw new PrometheanError(
      "bad_url",
      `the URL ${text} has more than scheme, host and path; give the token as an option`,
    );
  }
  const path = parsed.pathname.replace(/\/(ws)?$/, "");
  const rest = `${secure ? "s" : ""}://${parsed.host}${path}`;
  return { ws: `ws${rest}/`, http: `http${rest}` };
}

/**
 * @param {string} text
 * @param {unknown} [cause]
 */
function wrong(text, cause) {
  const message = `\`${text}\` is not the URL of a server; write, for example, ws://127.0.0.1:8090`;
  return new PrometheanError("bad_url", message, { cause });
}

/**
 * Finds out why a WebSocket could not be opened. Browsers hide the reason, so the server is asked over HTTP.
 * @param {{ws: string, http: string}} address
 * @param {any} cause What the socket reported.
 * @returns {Promise<PrometheanError>}
 */
export async function diagnose(address, cause) {
  const page = globalThis.document && globalThis.location?.origin;
  try {
    const signal = AbortSignal.timeout(PROBE_MS);
    const answer = await fetch(
      `${address.http}/health`,
      page ? { mode: "no-cors", cache: "no-store", signal } : { signal },
    );
    if (page) {
      const message =
        `the server at ${address.http} answers but refused the WebSocket of this page; the likely cause is ` +
        `the page's origin ${page}: add "${page}" to \`allowed_origins\` in the server's configuration`;
      return new PrometheanError("forbidden_origin", message, { cause });
    }
    const health = await answer.json().catch(() => undefined);
    if (health?.status === undefined) {
      const message = `${address.http} answers, but is not a Promethean server; correct the URL`;
      return new PrometheanError("wrong_url", message, { cause });
    }
  } catch (error) {
    cause = error instanceof Error && error.cause ? error.cause : (cause ?? error);
  }
  return unreachable(address, cause);
}

/**
 * @param {{ws: string}} address
 * @param {any} cause
 */
export function unreachable(address, cause) {
  const why = cause?.code ?? (reasonOf(cause?.message ?? cause) || "no connection");
  const message = `cannot reach ${address.ws}: ${why}; check that the server runs there and that the URL is right`;
  return new PrometheanError("unreachable", message, { cause });
}
