/**
 * All topics, with rates, sizes and retention.
 * @module
 */

import { h, setText } from "../lib/dom.js";
import { brief, bytes, count, plural, rate } from "../lib/format.js";
import { go, link } from "../lib/route.js";
import { sampler } from "../lib/sampler.js";
import { session } from "../lib/session.js";
import { View } from "../lib/view.js";
import { isSystemTopic } from "../lib/words.js";
import { makeRows } from "../parts/rows.js";
import { ask } from "../parts/notice.js";
import { field } from "../parts/tabs.js";
import { TopicView } from "./topic.js";

const SAMPLE_MS = 3_000;
/** The list itself is read again after so many samples. */
const LIST_EVERY = 5;

export class TopicsView extends View {
  /** @param {import("../lib/route.js").Route} route */
  constructor(route) {
    super();
    /** @private */
    this.search = h("input", {
      type: "search",
      placeholder: "Find a topic",
      "aria-label": "Find a topic",
      value: route.query.get("find") ?? "",
    });
    /** @private */
    this.system = h("input", { type: "checkbox", checked: route.query.get("system") === "1" });
    /** @private @type {any[]} */
    this.topics = [];
    /** @private */
    this.summary = h("p.quiet", "Reading the topics…");
    /** @private */
    this.rows = makeRows({
      label: "Topics",
      columns: [
        {
          title: "Topic",
          width: "minmax(0, 3fr)",
          cell: (t) => h("a", { href: link(["topics", t.topic]) }, t.topic),
          sort: (t) => t.topic,
        },
        {
          title: "Per second",
          width: "90px",
          className: "number",
          cell: (t) => rate(sampler.topicRates.get(t.topic)),
          sort: (t) => sampler.topicRates.get(t.topic) ?? 0,
        },
        {
          title: "Events",
          width: "90px",
          className: "number",
          cell: (t) => brief(t.end - t.earliest),
          sort: (t) => t.end - t.earliest,
        },
        {
          title: "Size",
          width: "80px",
          className: "number",
          cell: (t) => bytes(t.bytes),
          sort: (t) => t.bytes,
          isWide: true,
        },
        { title: "Retention", width: "minmax(0, 2fr)", cell: (t) => retentionText(t.settings), isWide: true },
        { title: "Durability", width: "90px", cell: (t) => t.settings.durability ?? "default", isWide: true },
      ],
      empty: "No topics. The first event that is published to a topic creates it.",
      onpick: (topic) => go(["topics", topic.topic]),
    });
  }

  build() {
    this.search.addEventListener("input", () => this.show());
    this.system.addEventListener("change", () => this.show());
    const create = h("button", { type: "button", onclick: () => this.create() }, "New topic");
    this.append(
      h(
        "div.top",
        h("h1", "Topics"),
        h(
          "div.row",
          this.search,
          h("label.check", this.system, "System topics"),
          session.rights.mayManageSomewhere && create,
        ),
      ),
      this.summary,
      this.rows,
    );
    let turn = 0;
    this.every(SAMPLE_MS, async () => {
      if (turn++ % LIST_EVERY === 0) await this.read();
      await sampler.sample(this.signal);
      this.show();
    });
  }

  /** @private */
  async read() {
    const topics = [];
    for await (const topic of session.admin.topics({ limit: 1000, signal: this.signal })) topics.push(topic);
    this.topics = topics;
    this.show();
  }

  /** @private */
  show() {
    const text = this.search.value.trim().toLowerCase();
    const isShown = (/** @type {any} */ t) =>
      t.topic.includes(text) && (this.system.checked || !isSystemTopic(t.topic));
    const shown = this.topics.filter(isShown);
    const hidden = this.topics.length - shown.length;
    const total = shown.reduce((sum, t) => sum + t.bytes, 0);
    setText(
      this.summary,
      `${plural(shown.length, "topic")}, ${bytes(total)}${hidden ? `; ${count(hidden)} not shown` : ""}`,
    );
    this.rows.items = shown;
    this.note({ find: text, system: this.system.checked ? 1 : undefined });
  }

  /** @private */
  async create() {
    const name = h("input", { type: "text", autocomplete: "off", spellcheck: "false", required: true });
    await ask({
      title: "New topic",
      body: [field("Name", name, "Words of a-z, 0-9, _ and -, joined by dots, such as orders.placed")],
      action: "Create",
      work: async () => {
        const topic = name.value.trim();
        await session.admin.setTopic(topic, {});
        go(["topics", topic, "settings"]);
        return `${topic} was created.`;
      },
    });
  }
}
customElements.define("topics-view", TopicsView);

/** @param {any} settings */
export function retentionText(settings) {
  const { age, bytes: size, count: most } = settings.retention ?? {};
  const parts = [age, size && bytes(size), most && `${brief(most)} events`].filter(Boolean);
  const kept = parts.length > 0 ? `at most ${parts.join(", ")}` : "keeps everything";
  return settings.compacted ? `latest of each key${parts.length ? `, ${kept}` : ""}` : kept;
}

/** @param {import("../lib/route.js").Route} route */
export function makeView(route) {
  return route.path.length > 1 ? new TopicView(route) : new TopicsView(route);
}
