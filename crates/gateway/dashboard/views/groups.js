/**
 * All groups, with their progress and why they deliver nothing.
 * @module
 */

import { h } from "../lib/dom.js";
import { View } from "../lib/view.js";
import { GroupList } from "./group_list.js";
import { GroupView } from "./group.js";

export class GroupsView extends View {
  build() {
    this.append(h("div.top", h("h1", "Groups")), new GroupList(undefined));
  }
}
customElements.define("groups-view", GroupsView);

/** @param {import("../lib/route.js").Route} route */
export function makeView(route) {
  return route.path.length > 1 ? new GroupView(route) : new GroupsView();
}
