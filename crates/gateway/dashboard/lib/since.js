/**
 * What changed since the user looked last. This browser remembers names and counts, never payloads.
 * @module
 */

import { ago, count, plural } from "./format.js";
import { session } from "./session.js";

const KEY = "promethean-seen";
/** Each token has its own memory: another one may not see the same topics. */
const keyOf = () => `${KEY} ${session.who.name ?? ""}`;
/** Topics that are remembered, at most. */
const TOPICS_MAX = 2_000;
/** A shorter absence is none. */
const AWAY_MS = 60_000;

/**
 * What is remembered. Only an admin sees the number of all dead letters.
 * @typedef {{at: number, topics: Record<string, number>, deadLetters?: number, status: string}} Seen
 */

/** What was seen when the dashboard was opened. @type {{key: string, seen: Seen | undefined} | undefined} */
let last;
session.addEventListener("over", () => {
  last = undefined;
  try {
    localStorage.removeItem(keyOf());
  } catch {
    // A browser that keeps nothing.
  }
});

/** @returns {Seen | undefined} */
function lastSeen() {
  const key = keyOf();
  if (last?.key !== key) last = { key, seen: read() };
  return last.seen;
}

/** @returns {Seen | undefined} */
function read() {
  try {
    return JSON.parse(localStorage.getItem(keyOf()) ?? "null") ?? undefined;
  } catch {
    return undefined;
  }
}

/**
 * Remembers what is seen now.
 * @param {Map<string, number>} topics The ends of the topics.
 * @param {number | undefined} deadLetters
 * @param {string} status
 */
export function remember(topics, deadLetters, status) {
  const kept = Object.fromEntries([...topics].slice(0, TOPICS_MAX));
  try {
    localStorage.setItem(keyOf(), JSON.stringify({ at: Date.now(), topics: kept, deadLetters, status }));
  } catch {
    // A browser that keeps nothing: nothing is compared the next time.
  }
}

/**
 * Sentences on what changed since the dashboard was open last; `undefined` if that was just now, or never.
 * @param {Map<string, number>} topics
 * @param {number | undefined} deadLetters
 * @param {string} status
 * @returns {{when: string, changes: string[]} | undefined}
 */
export function changes(topics, deadLetters, status) {
  const seen = lastSeen();
  if (!seen || Date.now() - seen.at < AWAY_MS) return undefined;
  const found = [];
  const known = Object.keys(seen.topics);
  const born = [...topics.keys()].filter((topic) => !Object.hasOwn(seen.topics, topic));
  const gone = known.filter((topic) => !topics.has(topic));
  const grown = [...topics].map(([topic, end]) => ({ topic, by: end - (seen.topics[topic] ?? 0) }));
  const events = grown.reduce((sum, { by }) => sum + Math.max(0, by), 0);
  const busiest = grown.sort((a, b) => b.by - a.by)[0];
  if (events > 0)
    found.push(`${plural(events, "event")} published, most of them to ${busiest.topic} (${count(busiest.by)})`);
  if (known.length < TOPICS_MAX && born.length > 0) found.push(`${plural(born.length, "new topic")}: ${names(born)}`);
  if (gone.length > 0) found.push(`${plural(gone.length, "topic")} deleted: ${names(gone)}`);
  const letters = deadLetters === undefined || seen.deadLetters === undefined ? 0 : deadLetters - seen.deadLetters;
  if (letters > 0) found.push(`${plural(letters, "more dead letter")}`);
  if (letters < 0) found.push(`${plural(-letters, "dead letter")} fewer`);
  if (status !== seen.status) found.push(`health went from ${seen.status} to ${status}`);
  return { when: ago(seen.at), changes: found };
}

/** @param {string[]} list */
function names(list) {
  return list.length > 5 ? `${list.slice(0, 5).join(", ")} …` : list.join(", ");
}
