/**
 * State: the collections, and the projectors that write them.
 * @module
 */

import { fill, h } from "../lib/dom.js";
import { count, plural } from "../lib/format.js";
import { go, link } from "../lib/route.js";
import { session } from "../lib/session.js";
import { View } from "../lib/view.js";
import { ACTIVITIES } from "../lib/words.js";
import { ask } from "../parts/notice.js";
import { makeRows } from "../parts/rows.js";
import { makeFacts } from "../parts/tabs.js";
import { CollectionView } from "./collection.js";
import { DocumentView } from "./document.js";

const EVERY_MS = 3_000;
/** How often the progress of a rebuild is asked for. */
const REBUILD_MS = 500;

export class StateView extends View {
  build() {
    const collections = makeRows({
      label: "Collections",
      columns: [
        {
          title: "Collection",
          width: "minmax(0, 2fr)",
          cell: (c) => [h("a", { href: link(["state", c.name]) }, c.name), c.default && h("span.chip", "default")],
        },
        { title: "Documents", width: "76px", className: "number", cell: (c) => count(c.documents) },
        { title: "Written by", width: "minmax(0, 1fr)", cell: (c) => c.projector ?? "no projector", isWide: true },
        { title: "History", width: "80px", cell: (c) => (c.history ? "time slider" : "no") },
        {
          title: "Indexes",
          width: "minmax(0, 1fr)",
          cell: (c) => c.indexes.map((/** @type {any} */ index) => index.fields).join("; "),
          isWide: true,
        },
      ],
      empty: "No collections. Declare collections and projectors in the configuration of the server.",
      onpick: (collection) => go(["state", collection.name]),
    });
    /** @private */
    this.projectors = h("div.columns");
    this.append(h("div.top", h("h1", "State")), collections, h("h2", "Projectors"), this.projectors);
    let isRebuilding = false;
    const wait = () => (isRebuilding ? REBUILD_MS : EVERY_MS);
    /** @private */
    this.again = this.every(wait, async () => {
      const [{ collections: list }, status] = await Promise.all([
        session.http.json(["collections"], { signal: this.signal }),
        session.http.json(["projectors"], { signal: this.signal }),
      ]);
      collections.items = list;
      isRebuilding = status.projectors.some((/** @type {any} */ one) => one.rebuild?.running);
      keepFocus(this.projectors, () => this.showProjectors(status));
    });
  }

  /**
   * @private
   * @param {any} status
   */
  showProjectors({ projectors, compactors }) {
    fill(
      this.projectors,
      projectors.map((/** @type {any} */ one) => this.projector(one)),
      compactors.map(compactor),
    );
    if (projectors.length + compactors.length === 0)
      fill(this.projectors, h("p.hint", "The configuration declares no projectors."));
  }

  /**
   * @private
   * @param {any} one
   */
  projector(one) {
    const { kind, text } = ACTIVITIES[/** @type {"running"} */ (one.activity)] ?? { kind: "", text: "" };
    const { rebuild } = one;
    const done = one.end > 0 ? (100 * (rebuild?.running ? rebuild.position : one.position)) / one.end : 100;
    const bar = h("i");
    bar.style.width = `${Math.min(100, done)}%`;
    const button = (/** @type {string} */ name, /** @type {() => unknown} */ onclick) =>
      h("button.small", { type: "button", onclick }, name);
    return h(
      "section.card",
      h("div.row.between", h("h2", one.name), h("span.chip", { class: kind }, one.activity)),
      h("p.quiet", text),
      one.last_error && h("p.failure", one.last_error),
      one.changed &&
        h(
          "p.warning",
          "Its program was changed: earlier events were projected by the old one. Rebuild it to apply the new one to all.",
        ),
      h("div.meter", { role: "img", "aria-label": `${Math.floor(done)} % read` }, bar),
      makeFacts([
        ["Reads", h("a", { href: link(["topics", one.topic]) }, one.topic)],
        one.collections.length > 0 && [
          "Writes",
          one.collections.map((/** @type {string} */ name, /** @type {number} */ at) => [
            at > 0 && ", ",
            h("a", { href: link(["state", name]) }, name),
          ]),
        ],
        ["Lag", plural(one.lag, "event")],
        ["Position", `${count(one.position)} of ${count(one.end)}`],
        one.dead_letters > 0 && [
          "Dead letters",
          h("a", { href: link(["dead-letters"], { topic: one.topic, group: one.name }) }, count(one.dead_letters)),
        ],
        rebuild && ["Rebuild", rebuildText(rebuild, one.end)],
      ]),
      session.rights.isAdmin &&
        h(
          "div.row",
          one.activity === "halted" &&
            button("Resume…", () =>
              this.act(one, "resume", `${one.name} tries the event that halted it again, and goes on if that works.`),
            ),
          button("Rebuild…", () =>
            this.act(
              one,
              "rebuild",
              `The state is made again from ${plural(one.end, "event")} beside the present one, and takes its place when it has caught up. Readers see the present state until then; nothing is published.`,
            ),
          ),
        ),
    );
  }

  /**
   * @private
   * @param {any} one
   * @param {"resume" | "rebuild"} verb
   * @param {string} text
   */
  async act(one, verb, text) {
    const loss = h("input", { type: "checkbox" });
    await ask({
      title: verb === "rebuild" ? `Rebuild ${one.name}?` : `Resume ${one.name}?`,
      body: [
        h("p", text),
        verb === "rebuild" && h("label.check", loss, "Accept that events that are no longer kept are missing"),
      ],
      action: verb === "rebuild" ? "Rebuild" : "Resume",
      work: async () => {
        const query = verb === "rebuild" && loss.checked ? { accept_loss: 1 } : {};
        await session.http.json(["projectors", one.name, verb], { method: "POST", query });
        return verb === "rebuild" ? "The rebuild has begun." : "Resumed.";
      },
    });
    this.again?.();
  }
}
customElements.define("state-view", StateView);

/**
 * Makes the content of an element anew. The button or link that had the focus gives it to its successor.
 * @param {Element} place
 * @param {() => void} make
 */
function keepFocus(place, make) {
  const nameOf = (/** @type {Element} */ element) =>
    `${element.closest("section")?.querySelector("h2")?.textContent}\n${element.tagName} ${element.textContent}`;
  const { activeElement } = document;
  const name = activeElement && place.contains(activeElement) ? nameOf(activeElement) : undefined;
  make();
  if (name === undefined) return;
  const successor = [...place.querySelectorAll("a, button")].find((element) => nameOf(element) === name);
  if (successor instanceof HTMLElement) successor.focus({ preventScroll: true });
}

/**
 * @param {any} rebuild
 * @param {number} end
 */
function rebuildText(rebuild, end) {
  if (rebuild.running) return `running, ${count(rebuild.position)} of ${count(end)}`;
  if (rebuild.error) return `failed: ${rebuild.error}`;
  const skipped = rebuild.skipped > 0 ? `, ${count(rebuild.skipped)} left out` : "";
  return rebuild.equal
    ? `done: equal to the state before${skipped}`
    : `done: the state is different from before${skipped}`;
}

/** @param {any} one */
function compactor(one) {
  return h(
    "section.card",
    h("div.row.between", h("h2", `Snapshots of ${one.topic}`), h("span.chip", "compactor")),
    one.last_error && h("p.failure", one.last_error),
    makeFacts([
      ["Writes", h("a", { href: link(["topics", one.snapshots]) }, one.snapshots)],
      ["Position", `${count(one.position)} of ${count(one.end)}`],
      ["Snapshots", count(one.published_total)],
      one.last_key_failure && ["Last failed key", one.last_key_failure],
    ]),
  );
}

/** @param {import("../lib/route.js").Route} route */
export function makeView(route) {
  if (route.path.length > 2) return new DocumentView(route);
  return route.path.length > 1 ? new CollectionView(route) : new StateView();
}
