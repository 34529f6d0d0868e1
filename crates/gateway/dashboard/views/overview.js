/**
 * The overview: what goes on, how healthy it is, and what changed since the user looked.
 * @module
 */

import { fill, h, setText } from "../lib/dom.js";
import { brief, bytes, count, rate } from "../lib/format.js";
import { go, link } from "../lib/route.js";
import { sampler } from "../lib/sampler.js";
import { session } from "../lib/session.js";
import { changes, remember } from "../lib/since.js";
import { settings } from "../lib/settings.js";
import { View } from "../lib/view.js";
import { DURABILITIES, STORES, healthReasons, reasonOf } from "../lib/words.js";
import "../parts/chart.js";
import { makeRows } from "../parts/rows.js";

const SAMPLE_MS = 2_000;
/** Where a page of metrics is large, it is asked for less often. */
const LARGE_BYTES = 400_000;
const LARGE_SKIPS = 4;
const LAG_ROWS = 8;

export class OverviewView extends View {
  constructor() {
    super();
    const isAdmin = session.rights.isAdmin;
    /** @private @type {Record<string, HTMLElement>} */
    this.numbers = {};
    /** @private */
    this.notes = /** @type {Record<string, HTMLElement>} */ ({});
    /** @private */
    this.health = h("div.stack", h("p.quiet", "Asking the server…"));
    /** @private */
    this.changed = h("div");
    /** @private */
    this.storage = h("div.stack");
    /** @private What does not change while the server runs. @type {string[][]} */
    this.fixed = [];
    /** @private */
    this.chart = /** @type {import("../parts/chart.js").Chart} */ (document.createElement("p-chart"));
    const lines = [
      { name: "Published", color: "--one", key: "one" },
      { name: "Delivered", color: "--two", key: "two" },
      { name: "Acked", color: "--three", key: "three" },
    ].slice(0, isAdmin ? 3 : 1);
    this.chart.lines = lines;
    /** @private */
    this.legend = lines.map(({ name, key }) => h(`span.${key}`, h("i"), `${name} `, h("b", "–"), " /s"));
    /** @private */
    this.lagging = makeRows({
      label: "Groups with the largest lag",
      columns: [
        { title: "Group", width: "minmax(0, 1fr)", cell: (g) => h("a", { href: groupLink(g) }, g.group) },
        { title: "Topic", width: "minmax(0, 1fr)", cell: (g) => g.topic, isWide: true },
        { title: "Lag", width: "70px", className: "number", cell: (g) => brief(g.lag) },
        { title: "In flight", width: "70px", className: "number", cell: (g) => brief(g.inFlight), isWide: true },
        { title: "State", width: "100px", cell: (g) => reasonChip(g.reason) },
      ],
      empty: "No group has unfinished events.",
      onpick: (group) => go(["groups", group.group], { topic: group.topic }),
    });
  }

  build() {
    const isAdmin = session.rights.isAdmin;
    this.append(
      h("div.top", h("h1", "Overview")),
      this.changed,
      h(
        "dl.tiles",
        this.tile("Published", "published", "per second"),
        isAdmin && this.tile("Delivered", "delivered", "per second"),
        isAdmin && this.tile("Acked", "acked", "per second"),
        isAdmin && this.tile("In flight", "inFlight", "leased"),
        isAdmin && this.tile("Dead letters", "deadLetters", "open"),
        isAdmin && this.tile("Connections", "connections", "open now"),
        this.tile("Topics", "topics", " "),
      ),
      h(
        "section.card",
        { "aria-label": "Rates" },
        h("div.row.between", h("h2", "Events per second"), h("div.legend", this.legend)),
        this.chart,
      ),
      h(
        "div.columns",
        h("section.card", h("h2", "Health"), this.health),
        h("section.card", h("h2", "Storage"), this.storage),
      ),
      h("section.stack", h("h2", "Lag by group"), this.lagging),
    );
    let turn = 0;
    this.every(SAMPLE_MS, async () => {
      const isLarge = sampler.size > LARGE_BYTES;
      if (isLarge && turn++ % LARGE_SKIPS !== 0) return;
      await sampler.sample(this.signal);
      this.showRates();
    });
    this.every(2 * SAMPLE_MS, () => this.readState());
    this.every(60_000, () => this.readStorage());
  }

  /**
   * @private
   * @param {string} title
   * @param {string} name
   * @param {string} note
   */
  tile(title, name, note) {
    this.numbers[name] = h("span", "–");
    this.notes[name] = h("small", note);
    return h("div.tile", h("dt", title), h("dd", this.numbers[name], this.notes[name]));
  }

  /** @private */
  showRates() {
    const last = sampler.points.at(-1);
    const [published, delivered, acked] = last?.values ?? [];
    const sum = (/** @type {"inFlight" | "deadLetters"} */ field) =>
      sampler.groups.reduce((all, group) => all + group[field], 0);
    this.put("published", rate(published));
    this.put("delivered", rate(delivered));
    this.put("acked", rate(acked));
    this.put("inFlight", brief(sum("inFlight")));
    this.put("deadLetters", brief(sum("deadLetters")));
    this.put("connections", count(sampler.gauges.connections ?? 0));
    this.put("topics", brief(sampler.gauges.topics ?? 0));
    this.legend.forEach((entry, index) =>
      setText(/** @type {Element} */ (entry.querySelector("b")), rate(last?.values[index])),
    );
    this.showStorage();
    this.chart.points = sampler.points;
    this.chart.draw();
  }

  /**
   * @private
   * @param {string} name
   * @param {string} text
   */
  put(name, text) {
    if (this.numbers[name]) setText(this.numbers[name], text);
  }

  /** @private */
  async readState() {
    const { signal } = this;
    const [health, ops] = await Promise.all([
      session.http.json(["health"], { signal }),
      session.http.json(["ops"], { query: { limit: 500 }, signal }),
    ]);
    const reasons = healthReasons(health, ops.store);
    fill(
      this.health,
      h(
        "p",
        h("span.dot", { class: health.status === "ok" ? "good" : "bad" }),
        h("b", health.status === "ok" ? "Healthy" : "Degraded"),
      ),
      reasons.length === 0 &&
        h("p.quiet", "The store takes writes, nothing is damaged, no projector waits for a person."),
      reasons.length > 0 &&
        h(
          "ul",
          reasons.map((reason) => h("li", reason)),
        ),
      (ops.unfinished_deletions ?? []).map((/** @type {any} */ one) =>
        h("p.warn", `The deletion of group ${one.group} is not finished: ${one.reason}`),
      ),
    );
    this.showLag(ops.groups);
    // Before the first sample the dead letters are not known.
    if (!this.isCompared && sampler.isFilled) await this.compare(health.status);
  }

  /**
   * @private
   * @param {any[]} groups
   */
  showLag(groups) {
    /** @type {Map<string, string>} */
    const reasons = new Map();
    const seen = [];
    for (const group of groups) {
      for (const part of group.topics) {
        reasons.set(`${group.group}\n${part.topic}`, part.reason);
        seen.push({ group: group.group, topic: part.topic, lag: part.lag, inFlight: part.in_flight });
      }
    }
    // Metrics know all groups; without them the first page must do.
    const all = sampler.groups.length > 0 ? sampler.groups : seen;
    const worst = all.filter((group) => group.lag > 0).sort((a, b) => b.lag - a.lag);
    this.lagging.items = worst
      .slice(0, LAG_ROWS)
      .map((group) => ({ ...group, reason: reasons.get(`${group.group}\n${group.topic}`) }));
  }

  /**
   * Compares with what the user saw last, once, and remembers what is seen now.
   * @private
   * @param {string} status
   */
  async compare(status) {
    const topics = new Map();
    for await (const topic of session.admin.topics({ limit: 1000, signal: this.signal }))
      topics.set(topic.topic, topic.end);
    const open = sampler.groups.reduce((all, group) => all + group.deadLetters, 0);
    const letters = session.rights.isAdmin ? open : undefined;
    this.isCompared = true;
    const found = changes(topics, letters, status);
    remember(topics, letters, status);
    if (!found) return;
    const close = h("button.small", { type: "button", onclick: () => fill(this.changed) }, "Got it");
    const text =
      found.changes.length > 0
        ? h(
            "ul",
            found.changes.map((text) => h("li", text)),
          )
        : h("p.quiet", "Nothing changed.");
    fill(
      this.changed,
      h("section.card", h("div.row.between", h("h2", `Since you looked, ${found.when}`), close), text),
    );
  }

  /** Reads what does not change while the server runs. @private */
  async readStorage() {
    const facts = [];
    const config = session.rights.isAdmin ? await settings(this.signal) : undefined;
    const store = config?.get("store");
    const durability = config?.get("durability");
    if (store) facts.push(["Store", STORES[/** @type {"memory"} */ (store)] ?? String(store)]);
    if (durability) facts.push(["Durability", DURABILITIES[/** @type {"fsync"} */ (durability)] ?? String(durability)]);
    const index = await session.http.json([], { signal: this.signal });
    facts.push(["Server", `${index.name} ${index.version}`]);
    this.fixed = facts;
    this.showStorage();
  }

  /** @private */
  showStorage() {
    const within = (/** @type {string} */ bound) => (bound.startsWith(">") ? `> ${bound.slice(1)}` : `≤ ${bound}`);
    const latency = ({ half, most } = sampler.commit) =>
      half && most ? `half ${within(half)} ms, 99 % ${within(most)} ms, last minute` : "none in the last minute";
    const { log_bytes: kept = 0, disk_free_bytes: free } = sampler.gauges;
    const live = session.rights.isAdmin
      ? [
          ["Kept", bytes(kept)],
          // A store in memory has no disk and no syncs.
          ...(free === undefined ? [] : [["Disk left", bytes(free)]]),
          ["Commits", latency(sampler.commit)],
          ...(sampler.sync ? [["Syncs", latency(sampler.sync)]] : []),
        ]
      : [["Store", "Only an admin sees the store."]];
    const text = (/** @type {any[]} */ fact) => [h("dt", fact[0]), h("dd", fact[1])];
    fill(this.storage, h("dl.facts", [...this.fixed, ...live].map(text)));
  }
}
customElements.define("overview-view", OverviewView);

/** @param {{group: string, topic: string}} group */
function groupLink({ group, topic }) {
  return link(["groups", group], { topic });
}

/** @param {string | undefined} reason */
export function reasonChip(reason) {
  if (reason === undefined) return "";
  const { kind, text } = reasonOf(reason);
  return h("span.chip", { class: kind, title: text }, reason.replace("_", " "));
}

export function makeView() {
  return new OverviewView();
}
