/**
 * A list of groups: all of them, or those of a topic.
 * @module
 */

import { h, setText } from "../lib/dom.js";
import { brief, plural } from "../lib/format.js";
import { current, go, link } from "../lib/route.js";
import { session } from "../lib/session.js";
import { View } from "../lib/view.js";
import { makeRows } from "../parts/rows.js";
import { reasonChip } from "./overview.js";

const EVERY_MS = 3_000;
/** A list of more than a page is read again less often. */
const LONG_EVERY_MS = 20_000;
const PAGE = 1_000;
/** Lines that are read, at most. */
const GROUPS_MAX = 10_000;

export class GroupList extends View {
  /** @param {string | undefined} topic */
  constructor(topic) {
    super();
    /** @private */
    this.topic = topic;
    /** @private @type {any[]} */
    this.groups = [];
    /** @private */
    this.search = h("input", {
      type: "search",
      placeholder: "Find a group or topic",
      "aria-label": "Find a group or topic",
      value: current().query.get("find") ?? "",
    });
    this.search.addEventListener("input", () => {
      this.note({ find: this.search.value.trim() });
      this.show();
    });
    /** @private */
    this.summary = h("p.quiet", "Reading the groups…");
    /** @private */
    this.rows = makeRows({
      label: "Groups",
      columns: [
        {
          title: "Group",
          width: "minmax(0, 2fr)",
          cell: (g) => h("a", { href: link(["groups", g.group], { topic: g.subject }) }, g.group),
          sort: (g) => g.group,
        },
        { title: "Topic", width: "minmax(0, 2fr)", cell: (g) => g.topic, sort: (g) => g.topic, isWide: true },
        { title: "Lag", width: "80px", className: "number", cell: (g) => brief(g.lag), sort: (g) => g.lag },
        {
          title: "In flight",
          width: "80px",
          className: "number",
          cell: (g) => brief(g.in_flight),
          sort: (g) => g.in_flight,
          isWide: true,
        },
        {
          title: "Members",
          width: "80px",
          className: "number",
          cell: (g) => brief(g.members),
          sort: (g) => g.members,
          isWide: true,
        },
        { title: "State", width: "110px", cell: (g) => reasonChip(g.reason), sort: (g) => g.reason ?? "" },
      ],
      empty: "No groups. A group is created by its first subscriber.",
      onpick: (group) => go(["groups", group.group], { topic: group.subject }),
    });
  }

  build() {
    this.append(h("div.row.between", this.summary, this.search), this.rows);
    this.every(
      () => (this.groups.length > PAGE ? LONG_EVERY_MS : EVERY_MS),
      () => this.read(),
    );
  }

  /** @private */
  async read() {
    const found = [];
    let after;
    do {
      const query = { topic: this.topic, limit: PAGE, after };
      const page = await session.http.json(["groups"], { query, signal: this.signal });
      for (const group of page.groups) found.push(...lines(group));
      after = page.next;
    } while (after !== undefined && found.length < GROUPS_MAX);
    this.groups = found;
    /** @private */
    this.isCut = after !== undefined;
    this.show();
  }

  /** @private */
  show() {
    const text = this.search.value.trim();
    const shown = this.groups.filter((group) => group.group.includes(text) || group.topic.includes(text));
    const cut = this.isCut ? "; there are more: open a topic to see its groups" : "";
    const behind = shown.filter((group) => group.lag > 0).length;
    setText(this.summary, `${plural(shown.length, "group")}, ${behind} with unfinished events${cut}`);
    this.rows.items = shown;
  }
}
customElements.define("group-list", GroupList);

/**
 * A line for each topic of a group.
 * @param {any} group
 */
function lines(group) {
  const topics =
    group.topics.length > 0
      ? group.topics
      : [{ topic: group.topic, lag: 0, in_flight: 0, members: 0, reason: undefined }];
  return topics.map((/** @type {any} */ part) => ({
    ...part,
    group: group.group,
    subject: group.topic,
    reason: group.paused ? "paused" : part.reason,
  }));
}
