/**
 * The error of every refused or failed call.
 * @module
 */

/** Codes of failures that may pass by themselves: the same call can work later. */
const RETRYABLE = new Set([
  "auth_unavailable",
  "busy",
  "closed",
  "disconnected",
  "fenced",
  "outbox_full",
  "rate_limited",
  "storage_full",
  "timeout",
  "too_many_connections",
  "topic_deleted",
  "unknown_outcome",
  "unreachable",
]);

/** Codes of failures after which the call may have had its effect all the same. */
const UNKNOWN_OUTCOME = new Set(["disconnected", "internal", "storage_failed", "timeout", "unknown_outcome"]);

/**
 * The error of every call of this library: of a refusal of the server, with the server's `code`, or of a failure
 * that the client found itself. The message says what to do.
 */
export class PrometheanError extends Error {
  /** Whether the call may have had its effect. */
  #sideEffects;

  /**
   * @param {string} code A stable word for programs.
   * @param {string} message What is wrong and what to do.
   * @param {{retry_after_ms?: number, sideEffects?: boolean, cause?: unknown, [field: string]: unknown}} [details]
   *   Further fields, such as `violations` of a schema.
   */
  constructor(code, message, details = {}) {
    const { cause, retry_after_ms: retryAfterMs, sideEffects, ...rest } = details;
    super(message, cause === undefined ? undefined : { cause });
    this.name = "PrometheanError";
    /** A stable word for programs; `docs/protocol.md` has the server's words. */
    this.code = code;
    /** How long to wait before trying again, if the server said so. */
    this.retryAfterMs = retryAfterMs;
    /** Further fields of the answer. */
    this.details = rest;
    this.#sideEffects = sideEffects ?? UNKNOWN_OUTCOME.has(code);
  }

  /** The message, under the name that it has in `ERR` frames. */
  get msg() {
    return this.message;
  }

  /** Whether the same call may work later. */
  get isRetryable() {
    return RETRYABLE.has(this.code);
  }

  /** Whether the call surely changed nothing. If not, try again only with the same ids. */
  get hasNoSideEffects() {
    return !this.#sideEffects;
  }
}

/**
 * The error of an `ERR` frame.
 * @param {import("./types.js").ServerFrame} frame
 */
export function refusal(frame) {
  const { op, corr, code = "internal", msg = "the server gave no reason", ...more } = frame;
  return new PrometheanError(String(code), String(msg), more);
}

/**
 * Calls a function of the user. What it throws is thrown later, on its own, so that it stops no work of the client.
 * @template {any[]} A
 * @param {((...args: A) => unknown) | undefined} callback
 * @param {A} args
 */
export function inform(callback, ...args) {
  try {
    callback?.(...args);
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}

/**
 * The text of any thrown value.
 * @param {unknown} error
 */
export function reasonOf(error) {
  return error instanceof Error ? error.message : String(error);
}
