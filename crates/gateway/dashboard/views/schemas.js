/**
 * Schemas: which topics have one, which have none, and the versions of one topic.
 * @module
 */

import { h } from "../lib/dom.js";
import { count, plural } from "../lib/format.js";
import { go, link } from "../lib/route.js";
import { session } from "../lib/session.js";
import { View } from "../lib/view.js";
import { isSystemTopic } from "../lib/words.js";
import { makeRows } from "../parts/rows.js";
import { SchemaView } from "./schema.js";

export class SchemasView extends View {
  build() {
    const summary = h("p.quiet", "Reading the schemas…");
    const search = h("input", { type: "search", placeholder: "Find a topic", "aria-label": "Find a topic" });
    /** @type {any[]} */
    let all = [];
    const rows = makeRows({
      label: "Topics and their schemas",
      columns: [
        {
          title: "Topic",
          width: "minmax(0, 2fr)",
          cell: (t) => h("a", { href: link(["schemas", t.topic]) }, t.topic),
          sort: (t) => t.topic,
        },
        {
          title: "Versions",
          width: "90px",
          className: "number",
          cell: (t) => (t.versions ? count(t.versions) : "none"),
          sort: (t) => t.versions,
        },
        { title: "Payloads", width: "minmax(0, 1fr)", cell: (t) => rule(t), sort: (t) => rule(t), isWide: true },
        { title: "A new version must be", width: "minmax(0, 1fr)", cell: (t) => t.compat, isWide: true },
      ],
      empty: "No topics.",
      onpick: (topic) => go(["schemas", topic.topic]),
    });
    const show = () => {
      const shown = all.filter((t) => t.topic.includes(search.value.trim()));
      const none = shown.filter((t) => !t.versions).length;
      summary.textContent = `${plural(shown.length - none, "topic")} with a schema, ${count(none)} without`;
      rows.items = shown;
    };
    search.addEventListener("input", show);
    this.append(h("div.top", h("h1", "Schemas"), search), summary, rows);
    this.every(30_000, async () => {
      const versions = await readVersions(this.signal);
      const topics = [];
      for await (const { topic, settings } of session.admin.topics({ limit: 1000, signal: this.signal })) {
        if (!isSystemTopic(topic))
          topics.push({ topic, versions: versions.get(topic) ?? 0, check: settings.schema, compat: settings.compat });
      }
      // A schema may be there before the first event.
      const known = new Set(topics.map(({ topic }) => topic));
      for (const [topic, many] of versions) {
        if (!known.has(topic)) topics.push({ topic, versions: many, check: "optional", compat: "" });
      }
      all = topics;
      show();
    });
  }
}
customElements.define("schemas-view", SchemasView);

/** @param {any} topic */
function rule({ versions, check }) {
  if (check === "off") return "not checked";
  if (versions) return "must fit";
  return check === "required" ? "refused: a schema is required" : "everything is accepted";
}

/** @param {AbortSignal} signal */
async function readVersions(signal) {
  const found = new Map();
  let after;
  do {
    const page = await session.http.json(["schemas"], { query: { after, limit: 1000 }, signal });
    for (const one of page.topics) found.set(one.topic, one.versions);
    after = page.next;
  } while (after !== undefined);
  return found;
}

/** @param {import("../lib/route.js").Route} route */
export function makeView(route) {
  return route.path.length > 1 ? new SchemaView(route) : new SchemasView();
}
