/**
 * Rates of the server, from counters that are read at intervals. What was read stays while other views are shown.
 * @module
 */

import { buckets, hasSamples, parseMetrics, quantile, total } from "./metrics_text.js";
import { session } from "./session.js";

/** How much of the past is kept. */
const KEPT_MS = 15 * 60_000;
/** The time over which latencies are looked at. */
const LATENCY_MS = 60_000;

/** @typedef {{topic: string, group: string, lag: number, inFlight: number, deadLetters: number}} GroupNumbers */

/** Counters and what follows from them. */
class Sampler {
  /** @type {{at: number, values: (number | undefined)[]}[]} Published, delivered, acked per second. */
  points = [];
  /** @type {Map<string, number>} Published per second, by topic. */
  topicRates = new Map();
  /** @type {GroupNumbers[]} */
  groups = [];
  /** @type {Record<string, number>} */
  gauges = {};
  /** @type {{half: string | undefined, most: string | undefined}} Bounds of commits of the last minute, in ms. */
  commit = { half: undefined, most: undefined };
  /** The same of syncs of the disk; `undefined` if the server does not tell. @type {Sampler["commit"] | undefined} */
  sync = undefined;
  /** Whether there was a sample. */
  isFilled = false;
  /** Size of the last page of metrics. */
  size = 0;
  /** @private @type {{at: number, counts: number[], topics: Map<string, number>} | undefined} */
  before;
  /** @private @type {{at: number, commits: Map<string, number>, syncs: Map<string, number>}[]} */
  latencies = [];

  /** @param {AbortSignal} signal */
  async sample(signal) {
    if (session.rights.isAdmin) await this.readMetrics(signal);
    else await this.readTopics(signal);
    this.isFilled = true;
  }

  /**
   * @private
   * @param {AbortSignal} signal
   */
  async readMetrics(signal) {
    const response = await session.http.send(["metrics"], { signal });
    const text = await response.text();
    this.size = text.length;
    const families = parseMetrics(text);
    const names = ["events_published_total", "events_delivered_total", "events_acked_total"];
    const topics = new Map();
    for (const { labels, value } of families.get(names[0])?.samples ?? []) topics.set(labels.topic, value);
    this.note(
      names.map((name) => total(families, name)),
      topics,
    );
    this.groups = groupNumbers(families);
    for (const name of ["connections", "topics", "log_bytes", "projectors_halted", "retention_held_events"]) {
      this.gauges[name] = total(families, name);
    }
    if (hasSamples(families, "disk_free_bytes")) this.gauges.disk_free_bytes = total(families, "disk_free_bytes");
    else delete this.gauges.disk_free_bytes;
    this.noteLatencies(families);
  }

  /**
   * @private
   * @param {Map<string, import("./metrics_text.js").Family>} families
   */
  noteLatencies(families) {
    const at = Date.now();
    const last = { at, commits: buckets(families, "commit_latency_ms"), syncs: buckets(families, "sync_latency_ms") };
    this.latencies.push(last);
    while (this.latencies.length > 1 && this.latencies[0].at < at - LATENCY_MS) this.latencies.shift();
    const first = this.latencies[0];
    const bounds = (/** @type {"commits" | "syncs"} */ kind) => ({
      half: quantile(first[kind], last[kind], 0.5),
      most: quantile(first[kind], last[kind], 0.99),
    });
    this.commit = bounds("commits");
    this.sync = hasSamples(families, "sync_latency_ms") ? bounds("syncs") : undefined;
  }

  /**
   * A token that is no admin's sees the ends of its topics.
   * @private
   * @param {AbortSignal} signal
   */
  async readTopics(signal) {
    const topics = new Map();
    let count = 0;
    for await (const topic of session.admin.topics({ limit: 1000, signal })) {
      topics.set(topic.topic, topic.end);
      count += topic.end;
    }
    this.note([count], topics);
    this.gauges.topics = topics.size;
  }

  /**
   * @private
   * @param {number[]} counts
   * @param {Map<string, number>} topics
   */
  note(counts, topics) {
    const at = Date.now();
    const { before } = this;
    this.before = { at, counts, topics };
    if (!before || before.counts.length !== counts.length) return;
    const seconds = (at - before.at) / 1000;
    if (seconds < 0.2) return;
    // Counters that went back belong to a server that was started again.
    const rates = counts.map((count, index) =>
      count < before.counts[index] ? undefined : (count - before.counts[index]) / seconds,
    );
    this.points.push({ at, values: rates });
    while (this.points[0].at < at - KEPT_MS) this.points.shift();
    this.topicRates = new Map(
      [...topics].map(([topic, count]) => [topic, Math.max(0, (count - (before.topics.get(topic) ?? 0)) / seconds)]),
    );
  }

  /** Forgets everything, for another token. */
  clear() {
    this.points = [];
    this.topicRates = new Map();
    this.groups = [];
    this.gauges = {};
    this.before = undefined;
    this.latencies = [];
    this.commit = { half: undefined, most: undefined };
    this.sync = undefined;
    this.isFilled = false;
  }
}

/**
 * @param {Map<string, import("./metrics_text.js").Family>} families
 * @returns {GroupNumbers[]}
 */
function groupNumbers(families) {
  /** @type {Map<string, GroupNumbers>} */
  const groups = new Map();
  const add = (/** @type {string} */ family, /** @type {"lag" | "inFlight" | "deadLetters"} */ field) => {
    for (const { labels, value } of families.get(family)?.samples ?? []) {
      const key = `${labels.group}\n${labels.topic}`;
      let found = groups.get(key);
      if (!found) {
        found = { topic: labels.topic, group: labels.group, lag: 0, inFlight: 0, deadLetters: 0 };
        groups.set(key, found);
      }
      found[field] = value;
    }
  };
  add("events_lag", "lag");
  add("events_inflight", "inFlight");
  add("dead_letters_open", "deadLetters");
  return [...groups.values()];
}

export const sampler = new Sampler();
session.addEventListener("over", () => sampler.clear());
