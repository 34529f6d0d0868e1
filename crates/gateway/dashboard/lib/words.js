/**
 * The words of the server, explained.
 * @module
 */

import { plural } from "./format.js";

/** Why a group delivers nothing: how it is shown, what it means, what to do. */
const REASONS = {
  delivering: { kind: "good", text: "Events are being delivered." },
  caught_up: { kind: "good", text: "Every event is finished. New events are delivered as they come." },
  no_members: { kind: "warn", text: "The group has no member that could take the events. Start a consumer." },
  paused: { kind: "warn", text: "The group, or every member of it, is paused. Resume it to go on." },
  credit: {
    kind: "warn",
    text: "The members hold as many events as they may. They must ack, or allow more in flight.",
  },
  leased: { kind: "", text: "All remaining events are in flight. The members are working on them." },
  backoff: {
    kind: "warn",
    text: "All remaining events failed and wait for their next attempt. Find out why they fail.",
  },
  blocked_key: { kind: "warn", text: "All remaining events wait for an earlier event of their key." },
  rate: { kind: "", text: "The delivery rate of the member is reached." },
  halted: { kind: "bad", text: "The projector of the group waits for a person. See State for its last error." },
  retrying: {
    kind: "warn",
    text: "The projector or compactor of the group tries an event, or the store, again. See State for its last error.",
  },
  stuck: { kind: "bad", text: "The program of the group's projector does not end. Repair the program and restart." },
  window: { kind: "bad", text: "Too many finished ranges lie above the oldest unfinished event. Finish that event." },
};

/**
 * @param {string} reason
 * @returns {{kind: string, text: string}}
 */
export function reasonOf(reason) {
  return REASONS[/** @type {keyof typeof REASONS} */ (reason)] ?? { kind: "", text: "" };
}

/** What a projector does. */
export const ACTIVITIES = {
  running: { kind: "good", text: "It projects events, or waits for them." },
  retrying: { kind: "warn", text: "It tries an event, or the store, again." },
  halted: { kind: "bad", text: "It waits for a person: resume it, or rebuild it." },
  stuck: {
    kind: "bad",
    text: "Calls of its program took too long and have not ended. Repair the program and restart.",
  },
  stopped: { kind: "warn", text: "It is stopped." },
};

/** Where events are kept. */
export const STORES = {
  embedded: "Files in the data directory of this machine.",
  memory: "In memory: everything is gone when the server stops.",
};

/** What an ack promises. */
export const DURABILITIES = {
  fsync: "An answered publish survives a power cut: the answer follows the sync of the disk.",
  os: "An answered publish survives a crash of the server, not a power cut: the disk is synced every 50 ms.",
  majority: "An answered publish is on most members of the database.",
  w1: "An answered publish is on one member of the database.",
};

/**
 * What is wrong, in sentences, from `/health` and, for an admin, the store in `/ops`.
 * @param {any} health
 * @param {any} store
 * @returns {string[]}
 */
export function healthReasons(health, store) {
  const found = [];
  if (!health.writable)
    found.push(store?.refusing ? `The store takes no writes: ${store.refusing}` : "The store takes no writes.");
  if (health.slow) found.push(store?.degraded ? `The store is slow: ${store.degraded}` : "The store answers late.");
  if (health.damaged_ranges > 0) {
    const topics = [...new Set((store?.damage ?? []).map((/** @type {any} */ part) => part.topic))].join(", ");
    found.push(`${plural(health.damaged_ranges, "damaged range")} of stored events${topics && ` in ${topics}`}.`);
  }
  if (health.projectors_halted > 0)
    found.push(`${plural(health.projectors_halted, "projector")} halted, until a person resumes.`);
  if (health.rebuilds_incomplete > 0)
    found.push(
      `${plural(health.rebuilds_incomplete, "rebuild")} left out events that failed: redrive or drop the dead letters.`,
    );
  if (health.compactors_failing > 0)
    found.push(`${plural(health.compactors_failing, "compactor")} cannot write snapshots: see State.`);
  if (health.retention_waits > 0)
    found.push(`Retention of ${plural(health.retention_waits, "topic")} waits for projectors.`);
  if (health.topics_scarce) found.push("Nearly as many topics as the server may have: only admins may create more.");
  if (found.length === 0 && health.status !== "ok")
    found.push("The server names a reason that this page does not know. The log of the server says more.");
  return found;
}

/**
 * The topics that the system makes from others, and its own.
 * @param {string} topic
 */
export function isSystemTopic(topic) {
  return topic.startsWith("_") || /\.(dlq|snapshot|changed|v\d+)$/.test(topic);
}
