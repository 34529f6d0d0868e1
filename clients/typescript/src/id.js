/**
 * Ids of events.
 * @module
 */

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));
const POOL_BYTES = 4096;
const ID_BYTES = 10;

const pool = new Uint8Array(POOL_BYTES);
let used = POOL_BYTES;
let lastMs = 0;
let head = "";

/**
 * Mints an id: a UUID of version 7, which begins with the time.
 * @returns {string}
 */
export function newId() {
  if (used + ID_BYTES > POOL_BYTES) {
    crypto.getRandomValues(pool);
    used = 0;
  }
  const now = Date.now();
  if (now !== lastMs) {
    lastMs = now;
    const time = now.toString(16).padStart(12, "0");
    head = `${time.slice(0, 8)}-${time.slice(8)}-`;
  }
  const at = used;
  used += ID_BYTES;
  return (
    head +
    HEX[0x70 | (pool[at] & 0x0f)] +
    HEX[pool[at + 1]] +
    "-" +
    HEX[0x80 | (pool[at + 2] & 0x3f)] +
    HEX[pool[at + 3]] +
    "-" +
    HEX[pool[at + 4]] +
    HEX[pool[at + 5]] +
    HEX[pool[at + 6]] +
    HEX[pool[at + 7]] +
    HEX[pool[at + 8]] +
    HEX[pool[at + 9]]
  );
}
