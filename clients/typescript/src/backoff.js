/**
 * Waiting times between tries.
 * @module
 */

/**
 * The wait before the next try: it doubles with each try up to `maxMs`, and its upper half is random, so that many
 * clients do not come back at the same moment.
 * @param {number} tries Tries that have failed, from 1.
 * @param {number} [minMs]
 * @param {number} [maxMs]
 */
export function backoffMs(tries, minMs = 100, maxMs = 10_000) {
  const most = Math.min(maxMs, minMs * 2 ** Math.min(tries, 30));
  return most / 2 + (Math.random() * most) / 2;
}

/**
 * Waits. An abort ends the wait with the signal's reason.
 * @param {number} ms
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
export function sleep(ms, signal) {
  return waitFor(
    (resolve) => {
      const timer = setTimeout(resolve, ms);
      return () => clearTimeout(timer);
    },
    { signal },
  );
}

/**
 * A promise that `begin` settles, that an abort rejects, and that a timeout rejects.
 * @template [T=void]
 * @param {(resolve: (value: T) => void, reject: (error: unknown) => void) => (() => void) | void} begin
 *   Starts the work and returns what undoes it.
 * @param {{signal?: AbortSignal | undefined, timeoutMs?: number | undefined, late?: () => Error}} limits
 * @returns {Promise<T>}
 */
export function waitFor(begin, { signal, timeoutMs, late }) {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    /** @type {(() => void) | void} */
    let undo;
    let isOver = false;
    const end = () => {
      isOver = true;
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
      undo?.();
    };
    const fail = (/** @type {unknown} */ error) => {
      end();
      reject(error);
    };
    const abort = () => fail(signal?.reason);
    signal?.addEventListener("abort", abort);
    if (timeoutMs !== undefined && late) timer = setTimeout(() => fail(late()), timeoutMs);
    undo = begin((value) => {
      end();
      resolve(value);
    }, fail);
    if (isOver) undo?.();
  });
}
