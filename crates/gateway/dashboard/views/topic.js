/**
 * One topic: its events, publishing, its groups, its settings.
 * @module
 */

import { fill, h } from "../lib/dom.js";
import { bytes, count, plural } from "../lib/format.js";
import { go, link } from "../lib/route.js";
import { session } from "../lib/session.js";
import { View, hasCode } from "../lib/view.js";
import { crumb, makeTabs } from "../parts/tabs.js";

export class TopicView extends View {
  /** @param {import("../lib/route.js").Route} route */
  constructor(route) {
    super();
    /** @private */
    this.route = route;
  }

  async build() {
    const [, topic, part = "messages"] = this.route.path;
    const { rights } = session;
    const tabs = [
      { name: "messages", title: "Messages", may: rights.mayRead(topic) },
      { name: "publish", title: "Publish", may: rights.mayPublish(topic) },
      { name: "groups", title: "Groups", may: true },
      { name: "settings", title: "Settings", may: true },
    ].filter(({ may }) => may);
    const facts = h("p.quiet", " ");
    const body = h("div.stack");
    this.append(
      crumb(link(["topics"]), "Topics"),
      h("div.top", h("h1", topic), facts),
      makeTabs(
        [
          ...tabs.map(({ name, title }) => ({
            title,
            href: link(name === "messages" ? ["topics", topic] : ["topics", topic, name]),
            isCurrent: name === part,
          })),
          { title: "Schema", href: link(["schemas", topic]), isCurrent: false },
        ],
        "Parts of the topic",
      ),
      body,
    );
    let info;
    try {
      info = await session.admin.topic(topic, { signal: this.signal });
      const held = info.held ? `, ${count(info.held)} kept for projectors` : "";
      const many = info.end - info.earliest;
      const range = many > 0 ? `, offsets ${count(info.earliest)} to ${count(info.end - 1)}` : "";
      facts.textContent = `${plural(many, "event")}, ${bytes(info.bytes)}${range}${held}`;
    } catch (error) {
      if (!hasCode(error, "unknown_topic")) return this.failed(error);
      facts.textContent = "This topic does not exist yet. The first event creates it.";
      info = { topic, earliest: 0, end: 0, bytes: 0, settings: {} };
    }
    if (part === "messages" && !rights.mayRead(topic)) return go(["topics", topic, tabs[0].name]);
    fill(body, await makePart(part, info, this.route));
  }
}
customElements.define("topic-view", TopicView);

/**
 * @param {string} part
 * @param {any} info
 * @param {import("../lib/route.js").Route} route
 */
async function makePart(part, info, route) {
  if (part === "publish") return new (await import("./publish.js")).PublishView(info);
  if (part === "settings") return new (await import("./topic_settings.js")).TopicSettingsView(info);
  if (part === "groups") return new (await import("./group_list.js")).GroupList(info.topic);
  return new (await import("./messages.js")).MessagesView(info, route.query);
}
