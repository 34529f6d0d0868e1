/**
 * Events of a topic, read in pages and without a group.
 * @module
 */

import { members } from "./json_text.js";
import { session } from "./session.js";

/**
 * An event with the text of its payload, in which numbers keep all their digits.
 * @typedef {import("./client.js").BusEvent & {raw: string, isParsed?: boolean}} RawEvent
 */

/** @typedef {{events: RawEvent[], next: number | undefined}} Page */

/**
 * One page of `/replay`.
 * @param {string} topic
 * @param {Record<string, unknown>} from Where it begins, as `/replay` has it.
 * @param {number} limit
 * @param {AbortSignal} signal
 * @returns {Promise<Page>}
 */
export async function page(topic, from, limit, signal) {
  const response = await session.http.send(["replay"], { query: { topic, limit, ...from }, signal });
  const text = await response.text();
  const answer = JSON.parse(text);
  const list = members(text).find((member) => member.name === "events");
  const raw = list ? members(list.value).map((item) => payloadText(item.value)) : [];
  const events = answer.events.map((/** @type {any} */ event, /** @type {number} */ index) => ({
    ...event,
    raw: raw[index] ?? JSON.stringify(event.payload),
  }));
  return { events, next: answer.next };
}

/**
 * The text of the payload in the text of an event.
 * @param {string} event
 */
export function payloadText(event) {
  return members(event).find((member) => member.name === "payload")?.value ?? "null";
}

/** Steps that one reading backwards may take. */
const READS_MAX = 40;
/** Pages of one step. The server ends a page at 8 MiB. */
const RANGE_PAGES = 4;
/** A reading backwards ends with this much text, or with the page that exceeds it. */
const BEFORE_BYTES = 4_000_000;

/**
 * All events between two offsets, newest last: from `lowest` up to the offset that was asked for, none left out. There
 * are about `limit` of them; fewer if they are large or if there are no more. Holes that retention and compaction leave
 * are stepped over.
 * @param {string} topic
 * @param {number} before
 * @param {number} limit
 * @param {number} earliest
 * @param {AbortSignal} signal
 * @returns {Promise<{events: RawEvent[], lowest: number}>}
 */
export async function pageBefore(topic, before, limit, earliest, signal) {
  /** @type {RawEvent[]} */
  let found = [];
  let lowest = before;
  let size = 0;
  let step = limit;
  for (let reads = 0; reads < READS_MAX; reads++) {
    if (lowest <= earliest || found.length >= limit || size >= BEFORE_BYTES) break;
    const from = Math.max(earliest, lowest - step);
    const { events: older, next } = await range(topic, from, lowest, limit, signal);
    if (next < lowest) {
      // The reading ended before it came to the events that are known: begin nearer to them, so that none is left out.
      step = Math.max(1, Math.min(Math.floor((lowest - from) / 2), Math.floor((next - from) * 0.75)));
      continue;
    }
    found = older.concat(found);
    size += sizeOf(older);
    lowest = from;
    if (older.length < limit / 4) step *= 8;
  }
  return { events: found, lowest: Math.max(lowest, Math.min(earliest, before)) };
}

/**
 * The events from an offset up to another, as far as a few pages have them. All events before `next` are there.
 * @param {string} topic
 * @param {number} from
 * @param {number} to
 * @param {number} limit Of one page.
 * @param {AbortSignal} signal
 * @returns {Promise<{events: RawEvent[], next: number}>}
 */
async function range(topic, from, to, limit, signal) {
  /** @type {RawEvent[]} */
  const found = [];
  let next = from;
  for (let pages = 0; pages < RANGE_PAGES && next < to; pages++) {
    const part = await page(topic, { from: "offset", offset: next }, Math.min(limit, to - next), signal);
    found.push(...part.events.filter((event) => event.offset < to));
    next = part.next ?? to;
    // More pages than that would be needed, as far as the first one tells.
    if (to - from > (next - from) * RANGE_PAGES) break;
  }
  return { events: found, next };
}

/**
 * The characters of the payloads of events.
 * @param {RawEvent[]} events
 */
export function sizeOf(events) {
  return events.reduce((sum, event) => sum + event.raw.length, 0);
}

/**
 * The newest events of a list whose payloads have no more characters than this, and at least one.
 * @param {RawEvent[]} events Newest first.
 * @param {number} most
 */
export function withinSize(events, most) {
  let size = 0;
  const last = events.findIndex((event, index) => (size += event.raw.length) > most && index > 0);
  return last < 0 ? events : events.slice(0, last);
}

/**
 * The event at an offset, or the first one after it.
 * @param {string} topic
 * @param {number} offset
 * @param {AbortSignal} signal
 */
export async function eventAt(topic, offset, signal) {
  return (await page(topic, { from: "offset", offset }, 1, signal)).events.at(0);
}

/**
 * The event with an id; `undefined` if the topic does not have it.
 * @param {string} topic
 * @param {string} id
 * @param {{earliest: number, end: number}} bounds
 * @param {AbortSignal} signal
 */
export async function eventById(topic, id, { earliest, end }, signal) {
  let after;
  try {
    after = await page(topic, { from: "afterId", afterId: id }, 1, signal);
  } catch (error) {
    if (/** @type {any} */ (error).code === "unknown_event") return undefined;
    throw error;
  }
  const { events } = await pageBefore(topic, after.events.at(0)?.offset ?? end, 10, earliest, signal);
  return events.find((event) => event.id === id);
}

/** Events that are looked through for an earlier event of a key where the server knows none. */
const KEY_SCAN = 2_000;
/** Pages that are looked through for events with the same time. */
const SAME_TIME_PAGES = 10;

/**
 * The events of one key, newest first, by asking for the state of the key before each of them. The cost depends on the
 * number of events that are taken, not on the size of the topic. The server tells no state before a tombstone, so there
 * the last events are looked through.
 * @param {string} topic
 * @param {string} key
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<RawEvent, void, void>}
 */
export async function* eventsOfKey(topic, key, signal) {
  const latest = (await session.reader.latestByKey(topic, [key], { signal }))[key];
  if (!latest) return;
  let event = await eventAt(topic, latest.offset, signal);
  while (event && event.key === key) {
    yield event;
    const twins = await eventsOfSameTime(topic, event, signal);
    yield* twins;
    event = await eventOfKeyBefore(topic, twins.at(-1) ?? event, signal);
  }
}

/**
 * Earlier events of the same key that have the same time, newest first.
 * @param {string} topic
 * @param {RawEvent} event
 * @param {AbortSignal} signal
 * @returns {Promise<RawEvent[]>}
 */
async function eventsOfSameTime(topic, { offset, key, ts }, signal) {
  const found = [];
  const first = (await page(topic, { from: "ts", ts }, 1, signal)).events.at(0);
  let from = first?.offset ?? offset;
  for (let pages = 0; from < offset && pages < SAME_TIME_PAGES; pages++) {
    const { events, next } = await page(topic, { from: "offset", offset: from }, Math.min(1000, offset - from), signal);
    found.push(...events.filter((event) => event.key === key && event.ts === ts && event.offset < offset));
    from = next ?? offset;
  }
  return found.reverse();
}

/**
 * @param {string} topic
 * @param {RawEvent} event
 * @param {AbortSignal} signal
 * @returns {Promise<RawEvent | undefined>}
 */
async function eventOfKeyBefore(topic, { offset, key, ts }, signal) {
  const name = /** @type {string} */ (key);
  try {
    const state = await session.state.ofKey(topic, name, { at: ts - 1, signal });
    // An event may have an earlier time than the events before it.
    if (state && state.offset < offset) return await eventAt(topic, state.offset, signal);
  } catch (error) {
    const { code } = /** @type {any} */ (error);
    if (code === "history_gone") return undefined;
    if (code !== "not_found") throw error;
  }
  const { events } = await pageBefore(topic, offset, KEY_SCAN, 0, signal);
  return events.findLast((event) => event.key === name);
}
