/**
 * Dead letters: reading them, grouping them by reason, and choosing some.
 * @module
 */

import { members } from "./json_text.js";
import { payloadText } from "./events.js";
import { session } from "./session.js";
import { hasCode } from "./view.js";

/**
 * @typedef {object} Letter
 * @property {number} offset
 * @property {import("./events.js").RawEvent | null} event
 * @property {string} reason
 * @property {string} [by] The member that gave the reason.
 * @property {number} attempts
 * @property {number} first_ts
 * @property {number} last_ts
 * @property {number} redrives
 * @property {boolean} redriving
 * @property {boolean} in_topic
 */

/**
 * One page of letters, each with the text of its payload.
 * @param {string} topic
 * @param {string} group
 * @param {number | undefined} after
 * @param {number} limit
 * @param {AbortSignal} signal
 * @returns {Promise<{letters: Letter[], next: number | undefined}>}
 */
export async function lettersPage(topic, group, after, limit, signal) {
  const response = await session.http.send(["dlq"], { query: { topic, group, after, limit }, signal });
  const text = await response.text();
  const answer = JSON.parse(text);
  const list = members(text).find((member) => member.name === "letters");
  const texts = list ? members(list.value) : [];
  answer.letters.forEach((/** @type {any} */ letter, /** @type {number} */ index) => {
    const event = texts[index] && members(texts[index].value).find((member) => member.name === "event");
    if (letter.event) letter.event.raw = event ? payloadText(event.value) : JSON.stringify(letter.event.payload);
  });
  return { letters: answer.letters, next: answer.next ?? undefined };
}

/** Letters that the page keeps, and the characters of their payloads. */
export const LETTERS_MAX = 20_000;
export const SIZE_MAX = 20_000_000;

/** @param {Letter[]} letters */
export function sizeOf(letters) {
  return letters.reduce((sum, letter) => sum + (letter.event?.raw.length ?? 0), 0);
}

/**
 * All letters that there are now, as far as the page keeps letters.
 * @param {string} topic
 * @param {string} group
 * @param {AbortSignal} signal
 * @param {(read: number) => void} tell Called after each page.
 * @returns {Promise<{letters: Letter[], isAll: boolean}>}
 */
export async function allLetters(topic, group, signal, tell) {
  /** @type {Letter[]} */
  const letters = [];
  let size = 0;
  let next;
  do {
    const page = await lettersPage(topic, group, next, 1000, signal);
    letters.push(...page.letters);
    size += sizeOf(page.letters);
    next = page.next;
    tell(letters.length);
  } while (next !== undefined && letters.length < LETTERS_MAX && size < SIZE_MAX);
  return { letters, isAll: next === undefined };
}

/**
 * A reason without the parts that differ from letter to letter: numbers, ids and quoted texts.
 * @param {string} reason
 */
export function reasonKind(reason) {
  return reason
    .replace(/[0-9a-f]{8}-[0-9a-f-]{27}/gi, "…")
    .replace(/"[^"]*"|'[^']*'|`[^`]*`/g, "…")
    .replace(/\d+/g, "…")
    .slice(0, 160);
}

/** Groups that are asked one by one, at most. */
const ASKED_MAX = 500;

/**
 * Groups that have open letters.
 * @param {AbortSignal} signal
 * @param {(found: {topic: string, group: string, open: number | undefined}) => void} tell Called for each. A number of
 *   `undefined` is more than one.
 * @returns {Promise<boolean>} Whether all groups were looked at.
 */
export async function groupsWithLetters(signal, tell) {
  if (session.rights.isAdmin) {
    const { parseMetrics } = await import("./metrics_text.js");
    const text = await (await session.http.send(["metrics"], { signal })).text();
    for (const { labels, value } of parseMetrics(text).get("dead_letters_open")?.samples ?? []) {
      if (value > 0) tell({ topic: labels.topic, group: labels.group, open: value });
    }
    return true;
  }
  // Without metrics each group is asked.
  let after;
  let asked = 0;
  do {
    const page = await session.http.json(["groups"], { query: { after, limit: 1000 }, signal });
    for (const group of page.groups) {
      for (const { topic } of group.topics) {
        if (asked++ >= ASKED_MAX) return false;
        try {
          // One letter is enough to know that there are some, and letters are large.
          const { letters, next } = await lettersPage(topic, group.group, undefined, 1, signal);
          if (letters.length > 0)
            tell({ topic, group: group.group, open: next === undefined ? letters.length : undefined });
        } catch (error) {
          if (!hasCode(error, "forbidden", "unknown_group", "unknown_topic")) throw error;
        }
      }
    }
    after = page.next;
  } while (after !== undefined);
  return true;
}

/**
 * Whether the event of a letter fits a filter of the server: `{key, keyPrefix, tags, headers}`, all of them.
 * @param {any} filter
 * @param {Letter} letter
 */
export function letterFits(filter, { event }) {
  if (!event) return false;
  const oneOf = (/** @type {any} */ wanted, /** @type {(text: string) => boolean} */ holds) =>
    [wanted].flat().some(holds);
  const key = event.key;
  if (filter.key !== undefined && !(key !== undefined && oneOf(filter.key, (text) => text === key))) return false;
  if (filter.keyPrefix !== undefined && !(key !== undefined && oneOf(filter.keyPrefix, (text) => key.startsWith(text))))
    return false;
  if (filter.tags !== undefined && !oneOf(filter.tags, (text) => (event.tags ?? []).includes(text))) return false;
  return Object.entries(filter.headers ?? {}).every(([name, wanted]) =>
    oneOf(wanted, (text) => event.headers?.[name] === text),
  );
}
