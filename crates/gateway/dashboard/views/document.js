/**
 * One document: as it is, and its history.
 * @module
 */

import { fill, h } from "../lib/dom.js";
import { eventsOfKey } from "../lib/events.js";
import { ago, count, time } from "../lib/format.js";
import { link } from "../lib/route.js";
import { session } from "../lib/session.js";
import { View, hasCode, textOf } from "../lib/view.js";
import { jsonView } from "../parts/json.js";
import { crumb } from "../parts/tabs.js";
import { changeText } from "./collection.js";

/** Versions that are read at a time. */
const VERSIONS = 20;

export class DocumentView extends View {
  /** @param {import("../lib/route.js").Route} route */
  constructor(route) {
    super();
    /** @private */
    this.collection = route.path[1];
    /** @private */
    this.key = route.path[2];
  }

  async build() {
    const { collection, key } = this;
    const now = h("section.card", h("h2", "Now"));
    const past = h("section.card", h("h2", "History"));
    this.append(
      crumb(link(["state", collection]), collection),
      h("div.top", h("h1", key)),
      h("div.columns", now, past),
    );
    try {
      const response = await session.http.send(["collections", collection, "snap", key], {
        signal: this.signal,
        allow: [404],
      });
      const text = await response.text();
      const document = JSON.parse(text);
      if (response.status === 404) now.append(h("p.quiet", "There is no such document now."));
      else
        now.append(
          h(
            "p.quiet",
            `Written ${ago(document._ts)}, ${time(document._ts)}, by the event at offset ${count(document._offset)}.`,
          ),
          jsonView(text),
        );
      await this.history(past);
    } catch (error) {
      if (!this.signal.aborted) this.failed(error);
    }
  }

  /**
   * @private
   * @param {Element} place
   */
  async history(place) {
    const { collection, key } = this;
    const info = await session.http.json(["collections", collection], { signal: this.signal });
    if (!info.history) return void place.append(h("p.quiet", "This collection keeps no history."));
    const versions = eventsOfKey(`${collection}.changed`, key, this.signal);
    const list = h("ol.stack", { reversed: true });
    const more = h("button.small", { type: "button" }, "Earlier versions");
    /** @type {any} */
    let newer;
    /** @type {Element | undefined} */
    let line;
    const read = async () => {
      more.disabled = true;
      for (let n = 0; n < VERSIONS; n++) {
        const { done, value: event } = await versions.next();
        if (line && newer) fill(line, entry(newer, done ? undefined : event, collection));
        if (done || !event) {
          more.hidden = true;
          break;
        }
        line = h("li", entry(event, undefined, collection));
        list.append(line);
        newer = event;
      }
      more.disabled = false;
    };
    place.append(list, more);
    more.addEventListener("click", () => read().catch((error) => this.failed(error)));
    await read().catch((error) => {
      if (!hasCode(error, "forbidden")) throw error;
      place.append(h("p.quiet", textOf(error)));
    });
  }
}
customElements.define("document-view", DocumentView);

/**
 * @param {any} event
 * @param {any} before The version before it, if it is known.
 * @param {string} collection
 */
function entry(event, before, collection) {
  const document = event.payload ?? undefined;
  const what = document === undefined ? "removed" : before?.payload ? "changed" : "written";
  const text =
    before || document === undefined
      ? changeText({ kind: what, before: before?.payload ?? undefined, after: document })
      : changeText({ kind: "added", before: undefined, after: document });
  return [
    h(
      "a",
      { href: link(["state", collection], { at: event.ts }), title: "The whole table at this time" },
      time(event.ts),
    ),
    ` ${ago(event.ts)}, ${what}`,
    h("div", h("code", text)),
  ];
}
