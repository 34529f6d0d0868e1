/**
 * Dead letters: which groups have some, and the workbench of one group.
 * @module
 */

import { fill, h } from "../lib/dom.js";
import { brief, plural } from "../lib/format.js";
import { go, link } from "../lib/route.js";
import { groupsWithLetters } from "../lib/letters.js";
import { session } from "../lib/session.js";
import { View } from "../lib/view.js";
import { makeRows } from "../parts/rows.js";
import { WorkbenchView } from "./workbench.js";

export class DeadLettersView extends View {
  build() {
    const summary = h("p.quiet", { role: "status" }, "Looking for dead letters…");
    /** @type {any[]} */
    let found = [];
    const rows = makeRows({
      label: "Groups with dead letters",
      columns: [
        {
          title: "Group",
          width: "minmax(0, 1fr)",
          cell: (g) => h("a", { href: link(["dead-letters"], { topic: g.topic, group: g.group }) }, g.group),
          sort: (g) => g.group,
        },
        { title: "Topic", width: "minmax(0, 1fr)", cell: (g) => g.topic, sort: (g) => g.topic },
        {
          title: "Open",
          width: "90px",
          className: "number",
          cell: (g) => (g.open === undefined ? "several" : brief(g.open)),
          sort: (g) => g.open ?? 2,
        },
      ],
      empty: "No dead letters. An event becomes one when its last attempt fails.",
      onpick: (group) => go(["dead-letters"], { topic: group.topic, group: group.group }),
    });
    this.append(h("div.top", h("h1", "Dead letters")), summary, rows);
    // Without metrics each group is asked, which is much for the server.
    this.every(session.rights.isAdmin ? 10_000 : 60_000, async () => {
      const next = /** @type {any[]} */ ([]);
      const isAll = await groupsWithLetters(this.signal, (one) => {
        next.push(one);
        if (found.length === 0) rows.items = next;
      });
      found = next;
      rows.items = found;
      const open = found.reduce((sum, one) => sum + (one.open ?? 2), 0);
      const atLeast = found.some((one) => one.open === undefined) ? "at least " : "";
      const some = `${atLeast}${plural(open, "open letter")} in ${plural(found.length, "group")}`;
      const rest = isAll ? "" : " Only the first groups were asked; open a group to see its letters.";
      fill(summary, `${found.length === 0 ? "Nothing waits for you." : some}${rest}`);
    });
  }
}
customElements.define("dead-letters-view", DeadLettersView);

/** @param {import("../lib/route.js").Route} route */
export function makeView(route) {
  const [topic, group] = [route.query.get("topic"), route.query.get("group")];
  return topic && group ? new WorkbenchView(topic, group, route.query) : new DeadLettersView();
}
