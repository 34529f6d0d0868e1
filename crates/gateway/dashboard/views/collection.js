/**
 * A collection as a table: as it is, as it was at any time, and what changed between two times.
 * @module
 */

import { fill, h } from "../lib/dom.js";
import { page } from "../lib/events.js";
import { Feed } from "../lib/feed.js";
import { ago, count, cut, plural, time } from "../lib/format.js";
import { go, link } from "../lib/route.js";
import { session } from "../lib/session.js";
import { View, hasCode, textOf } from "../lib/view.js";
import { makeRows } from "../parts/rows.js";
import { makeSlider } from "../parts/slider.js";
import { crumb } from "../parts/tabs.js";

const PAGE = 500;
const EVERY_MS = 3_000;
/** Columns of fields that are shown. */
const FIELDS_MAX = 6;

export class CollectionView extends View {
  /** @param {import("../lib/route.js").Route} route */
  constructor(route) {
    super();
    /** @private */
    this.name = route.path[1];
    /** @private */
    this.query = route.query;
    /** @private @type {string[]} */
    this.fields = [];
    /** @private Counts readings, so that an older one is dropped. */
    this.turn = 0;
    /** @private Ends the requests of a reading that is no longer wanted. */
    this.reading = new AbortController();
    this.signal.addEventListener("abort", () => this.reading.abort());
    /** @private What is shown. @type {Feed | undefined} */
    this.feed = undefined;
    const read = () => {
      /** @type {import("../parts/rows.js").Rows | null} */ (this.place.querySelector("p-rows"))?.scrollToStart();
      return this.read().catch((error) => this.failed(error));
    };
    /** @private */
    this.again = h("button.small", { type: "button", hidden: true, onclick: read }, "Read again");
    /** @private Rows that fit no filter bring no end of the list into view. */
    this.more = h("button.small", { type: "button", hidden: true, onclick: () => this.further?.() }, "Read more");
  }

  async build() {
    this.append(crumb(link(["state"]), "State"), h("div.top", h("h1", this.name)));
    try {
      /** @private */
      this.info = await session.http.json(["collections", this.name], { signal: this.signal });
    } catch (error) {
      return this.failed(error);
    }
    const { fields, history, projector } = this.info;
    this.fields = Object.keys(fields);
    /** @private */
    this.status = h("p.quiet", { role: "status" }, "Reading…");
    /** @private */
    this.where = this.filters();
    /** @private */
    this.place = h("div");
    this.append(
      h(
        "p.quiet",
        `${plural(this.info.documents, "document")}`,
        projector && [", written by ", h("a", { href: link(["state"]) }, projector)],
      ),
      history
        ? await this.sliders()
        : h(
            "p.hint",
            "This collection keeps no history. With ",
            h("code", "history = true"),
            " in its declaration the table can be shown as it was at any time.",
          ),
      this.where,
      h("div.row.between", this.status, h("div.row", this.again, this.more)),
      this.place,
    );
    this.every(EVERY_MS, async () => {
      // The past does not change; the present is read again, unless the user has gone on to further pages.
      const isRead = this.feed !== undefined && (this.feed.items.length > PAGE || this.feed.isReading);
      if (this.turn === 0 || (this.isNow && !isRead)) await this.read();
    });
  }

  /** @private */
  get isNow() {
    return this.until?.at === undefined && !this.isDiff;
  }

  /** @private */
  get isDiff() {
    return this.since !== undefined && !this.since.hidden;
  }

  /** @private */
  async sliders() {
    const first = await page(`${this.name}.changed`, { from: "earliest" }, 1, this.signal).catch((error) => {
      if (hasCode(error, "forbidden")) return undefined;
      throw error;
    });
    const from = first?.events[0]?.ts ?? Date.now() - 3_600_000;
    const number = (/** @type {string} */ name) => (this.query.has(name) ? Number(this.query.get(name)) : undefined);
    const changed = () => this.read().catch((error) => this.failed(error));
    /** @private */
    this.until = makeSlider({ label: "The table at", from, at: number("at"), onchoose: changed });
    /** @private */
    this.since = makeSlider({ label: "Compared with", from, at: number("since") ?? from, onchoose: changed });
    this.since.hidden = !this.query.has("since");
    const diff = h("input", { type: "checkbox", checked: !this.since.hidden });
    diff.addEventListener("change", () => {
      if (this.since) this.since.hidden = !diff.checked;
      changed();
    });
    return h(
      "section.card",
      { "aria-label": "Time" },
      this.until,
      h("label.check", diff, "Show the difference between two times"),
      this.since,
    );
  }

  /** @private */
  filters() {
    const inputs = this.fields.map((name) =>
      h("input", {
        type: "text",
        name,
        "aria-label": `${name} is`,
        placeholder: this.info.fields[name],
        value: this.query.get(`f.${name}`) ?? "",
        autocomplete: "off",
      }),
    );
    /** @private */
    this.inputs = inputs;
    const submit = (/** @type {Event} */ event) => {
      event.preventDefault();
      this.read().catch((error) => this.failed(error));
    };
    if (inputs.length === 0) return h("span");
    return h(
      "details",
      { open: inputs.some((input) => input.value !== "") },
      h("summary", "Filters: fields with given values"),
      h(
        "form.stack",
        { onsubmit: submit },
        h(
          "div.fields",
          inputs.map((input) => h("div.field", h("label", input.name), input)),
        ),
        h("div.row", h("button", { type: "submit" }, "Filter")),
      ),
    );
  }

  /** @private */
  wanted() {
    return Object.fromEntries(
      (this.inputs ?? []).filter((input) => input.value !== "").map((input) => [input.name, input.value]),
    );
  }

  /** @private */
  async read() {
    const turn = ++this.turn;
    this.reading.abort();
    this.reading = new AbortController();
    this.again.hidden = true;
    const where = this.wanted();
    const at = this.until?.at;
    this.note({
      at,
      since: this.isDiff ? this.since?.at : undefined,
      ...Object.fromEntries(Object.entries(where).map(([name, value]) => [`f.${name}`, value])),
    });
    this.failed(undefined);
    try {
      if (this.isDiff) await this.showDifference(turn, where);
      else if (at !== undefined) await this.showPast(turn, at, where);
      else await this.showNow(turn, where);
    } catch (error) {
      if (turn !== this.turn || this.signal.aborted) return;
      this.feed = undefined;
      const earliest = /** @type {any} */ (error).details?.earliest;
      this.failed(
        hasCode(error, "history_gone") && earliest
          ? new Error(`History is kept from ${time(earliest)} on. ${textOf(error)}`)
          : error,
      );
    }
  }

  /**
   * @private
   * @param {number} turn
   * @param {Record<string, string>} where
   */
  async showNow(turn, where) {
    const list = session.state.list(where, { collection: this.name, limit: PAGE, signal: this.reading.signal });
    const feed = new Feed(list, (document) => document);
    await this.show(turn, feed, () => {
      // What was read beyond the first page is not read again by itself.
      const isStill = feed.items.length > PAGE;
      this.again.hidden = !isStill;
      const when = isStill ? `As of ${time(feed.since)}` : "Now";
      this.table(feed.items, `${when}: ${feed.text("document")}, newest first.`);
    });
  }

  /**
   * @private
   * @param {number} turn
   * @param {number} at
   * @param {Record<string, string>} where
   */
  async showPast(turn, at, where) {
    this.status.textContent = `Reading the table of ${time(at)}…`;
    const list = session.state.collectionAt(this.name, at, { limit: PAGE, signal: this.reading.signal });
    const feed = new Feed(list, ({ document }) => (matches(document, where) ? document : undefined));
    await this.show(turn, feed, () =>
      this.table(feed.items, `${time(at)}, ${ago(at)}: ${feed.text("document")}, by key.`),
    );
  }

  /**
   * Shows what a feed has, and reads on when the user comes to the end of it.
   * @private
   * @param {number} turn
   * @param {Feed} feed
   * @param {() => void} draw
   */
  async show(turn, feed, draw) {
    await feed.read();
    if (turn !== this.turn) return;
    this.feed = feed;
    /** @private */
    this.further = async () => {
      if (!feed.isMore || feed.isReading || turn !== this.turn) return;
      await feed.read().catch((error) => turn === this.turn && this.failed(error));
      if (turn === this.turn) redraw();
    };
    const redraw = () => {
      this.more.hidden = !feed.isMore;
      draw();
    };
    redraw();
  }

  /**
   * @private
   * @param {number} turn
   * @param {Record<string, string>} where
   */
  async showDifference(turn, where) {
    const [from, to] = [this.since?.at ?? Date.now(), this.until?.at ?? Date.now()];
    const [first, last] = [Math.min(from, to), Math.max(from, to)];
    this.status.textContent = "Comparing…";
    const list = session.state.collectionDiff(this.name, first, last, { limit: PAGE, signal: this.reading.signal });
    const feed = new Feed(list, (one) => {
      const found = difference(one);
      return matches(found.before, where) || matches(found.after, where) ? found : undefined;
    });
    await this.show(turn, feed, () => {
      const number = (/** @type {string} */ kind) => count(feed.items.filter((one) => one.kind === kind).length);
      const so = feed.isOver ? "" : ` so far; ${feed.rest}`;
      this.status.textContent = `From ${time(first)} to ${time(last)}: ${number("added")} added, ${number("changed")} changed, ${number("removed")} removed${so}.`;
      this.differences(feed.items);
    });
  }

  /**
   * @private
   * @param {any[]} found
   */
  differences(found) {
    const rows = this.rows("difference", () =>
      makeRows({
        label: "Differences",
        columns: [
          {
            title: "",
            width: "80px",
            cell: (d) =>
              h(
                "span.chip",
                { class: { added: "good", removed: "bad" }[/** @type {"added"} */ (d.kind)] ?? "warn" },
                d.kind,
              ),
          },
          {
            title: "Key",
            width: "minmax(0, 1fr)",
            className: "mono",
            cell: (d) => h("a", { href: link(["state", this.name, d.key]) }, d.key),
          },
          { title: "What changed", width: "minmax(0, 3fr)", className: "mono", cell: (d) => changeText(d) },
        ],
        empty: "Nothing changed between the two times.",
        onend: () => this.further?.(),
        onpick: (one) => go(["state", this.name, one.key]),
      }),
    );
    rows.items = found;
  }

  /**
   * @private
   * @param {any[]} documents
   * @param {string} text
   */
  table(documents, text) {
    this.status.textContent = text;
    const shown = (
      this.fields?.length ? this.fields : Object.keys(documents[0] ?? {}).filter((name) => !name.startsWith("_"))
    ).slice(0, FIELDS_MAX);
    const rows = this.rows(`table ${shown.join()}`, () =>
      makeRows({
        label: `Documents of ${this.name}`,
        columns: [
          {
            title: "Key",
            width: "minmax(0, 2fr)",
            className: "mono",
            cell: (d) => h("a", { href: link(["state", this.name, d._key]) }, d._key),
            sort: (d) => d._key,
          },
          ...shown.map((name, index) => ({
            title: name,
            width: "minmax(0, 1fr)",
            isWide: index > 1,
            cell: (/** @type {any} */ d) => cell(d[name]),
            sort: (/** @type {any} */ d) => d[name] ?? "",
          })),
          {
            title: "Written",
            width: "110px",
            cell: (d) => h("span", { title: time(d._ts) }, ago(d._ts)),
            sort: (d) => d._ts,
            isWide: true,
          },
        ],
        empty: "No documents.",
        onend: () => this.further?.(),
        onpick: (one) => go(["state", this.name, one._key]),
      }),
    );
    rows.items = documents;
  }

  /**
   * The table that is there, if it is of the same kind, so that its place and focus stay.
   * @private
   * @param {string} kind
   * @param {() => import("../parts/rows.js").Rows} make
   */
  rows(kind, make) {
    const there = /** @type {import("../parts/rows.js").Rows | null} */ (this.place.querySelector("p-rows"));
    if (there && this.kind === kind) return there;
    this.kind = kind;
    const rows = make();
    fill(this.place, rows);
    return rows;
  }
}
customElements.define("collection-view", CollectionView);

/**
 * A difference of the server, as the table shows it.
 * @param {any} one
 * @returns {{kind: string, key: string, before: any, after: any}}
 */
function difference(one) {
  const [kind, body] = Object.entries(one)[0];
  const whole = body.document ?? body;
  if (kind === "added") return { kind, key: body.key, before: undefined, after: body.after ?? whole };
  if (kind === "removed") return { kind, key: body.key, before: body.before ?? whole, after: undefined };
  return { kind, key: body.key, before: body.before, after: body.after };
}

/** @param {any} value */
function cell(value) {
  if (value === undefined) return "";
  return cut(typeof value === "string" ? value : JSON.stringify(value), 120);
}

/**
 * @param {any} document
 * @param {Record<string, string>} where
 */
function matches(document, where) {
  return (
    document !== undefined &&
    Object.entries(where).every(([name, value]) => document[name] !== undefined && cell(document[name]) === value)
  );
}

/**
 * @param {{kind: string, before: any, after: any}} difference
 */
export function changeText({ before, after }) {
  const names = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])].filter(
    (name) => !name.startsWith("_"),
  );
  const changed = names.filter((name) => JSON.stringify(before?.[name]) !== JSON.stringify(after?.[name]));
  const text = (/** @type {any} */ value) => (value === undefined ? "nothing" : JSON.stringify(value));
  if (before === undefined) return cut(changed.map((name) => `${name}: ${text(after[name])}`).join(", "), 300);
  if (after === undefined) return cut(changed.map((name) => `${name}: ${text(before[name])}`).join(", "), 300);
  return cut(changed.map((name) => `${name}: ${text(before[name])} → ${text(after[name])}`).join(", "), 300);
}
