/**
 * The events of a topic: jump to a place, filter, follow, look into one.
 * @module
 */

import { fill, h } from "../lib/dom.js";
import { eventAt, eventById, page, pageBefore, sizeOf, withinSize } from "../lib/events.js";
import { clock, count, cut, plural, time } from "../lib/format.js";
import { EXAMPLES, fits, parseFilter, saveFilter, savedFilters } from "../lib/filter.js";
import { session } from "../lib/session.js";
import { View, textOf } from "../lib/view.js";
import { notice } from "../parts/notice.js";
import { makeRows } from "../parts/rows.js";
import { eventDetail } from "../parts/event_detail.js";
import { LiveTail } from "./live_tail.js";

const PAGE = 100;
/** Events that are looked at in one go for a filter. */
const SCAN_PAGE = 1_000;
const SCAN_MAX = 10_000;
/** Events that the page keeps while the user goes back, and while a tail runs. */
const ROWS_MAX = 5_000;
const TAIL_ROWS_MAX = 2_000;
/** Characters of payloads that the page keeps. */
const SIZE_MAX = 20_000_000;

/** @typedef {import("../lib/events.js").RawEvent} RawEvent */

export class MessagesView extends View {
  /**
   * @param {{topic: string, earliest: number, end: number}} info
   * @param {URLSearchParams} query
   */
  constructor(info, query) {
    super();
    this.info = info;
    /** @private */
    this.query = query;
    /** @type {RawEvent[]} Newest first. */
    this.events = [];
    /** @type {import("../lib/filter.js").Rule[]} */
    this.rules = [];
    /** @private The lowest offset that was looked at. */
    this.lowest = info.end;
    /** @private */
    this.isLoading = false;
    /** Counts searches, so that an older one stops. */
    this.turn = 0;
    this.side = h("aside.side", { "aria-label": "The chosen event" });
    this.status = h("p.quiet", { role: "status" }, " ");
    this.rows = makeRows({
      label: `Events of ${this.info.topic}, newest first`,
      columns: [
        { title: "Offset", width: "84px", className: "number", cell: (e) => count(e.offset) },
        { title: "Time", width: "minmax(100px, 150px)", cell: (e) => timeCell(e.ts) },
        { title: "Key", width: "minmax(0, 1fr)", cell: (e) => e.key ?? "", className: "mono", isWide: true },
        { title: "Payload", width: "minmax(0, 3fr)", cell: (e) => cut(e.raw, 240), className: "mono" },
      ],
      keyOf: (event) => event.offset,
      empty: "No events.",
      onpick: (event) => this.choose(event),
      onend: () => this.rules.length === 0 && this.older(),
    });
    this.further = h(
      "button.small",
      { type: "button", hidden: true, onclick: () => this.older() },
      "Look further back",
    );
    this.newer = h(
      "button.small",
      { type: "button", hidden: true, onclick: () => this.loadNewer().catch((error) => this.failed(error)) },
      "Load newer events",
    );
    /** @private */
    this.tail = new LiveTail(this);
  }

  build() {
    this.append(
      h("div.row", this.jumpForm(), this.tail.controls),
      this.filterForm(),
      h("div.row.between", this.status, h("div.row", this.newer, this.further)),
      h("div.split", this.rows, this.side),
    );
    this.begin();
  }

  /** Reads where the address says. @private */
  async begin() {
    const { query } = this;
    try {
      this.rules = parseFilter(query.get("filter") ?? "");
    } catch (error) {
      this.failed(error);
    }
    for (const name of ["offset", "ts", "id", "key"]) {
      const value = query.get(name);
      if (value !== null) return this.jump(name, value);
    }
    return this.latest();
  }

  /** Shows the latest events. */
  async latest() {
    this.restart(this.info.end);
    await this.older();
  }

  /**
   * Begins anew below an offset.
   * @param {number} below
   * @param {RawEvent[]} [events]
   */
  restart(below, events = []) {
    this.turn++;
    this.isLoading = false;
    this.events = events;
    this.lowest = below;
    this.show();
    this.rows.scrollToStart();
  }

  /** Reads events before the first that is shown. */
  async older() {
    if (this.isLoading || this.lowest <= this.info.earliest || this.isFull) return;
    this.isLoading = true;
    const turn = this.turn;
    const { topic, earliest } = this.info;
    const wanted = this.events.length + PAGE;
    let scanned = 0;
    try {
      do {
        const limit = this.rules.length > 0 ? SCAN_PAGE : PAGE;
        const { events: older, lowest } = await pageBefore(topic, this.lowest, limit, earliest, this.signal);
        if (turn !== this.turn) return;
        scanned += older.length;
        this.lowest = lowest;
        this.events = this.events.concat(older.reverse().filter((event) => fits(this.rules, event)));
        this.show(`Looking through the events before offset ${count(this.lowest)}…`);
        if (this.rules.length === 0 && older.length > 0) break;
      } while (this.lowest > earliest && scanned < SCAN_MAX && this.events.length < wanted && !this.isFull);
    } catch (error) {
      if (!this.signal.aborted) this.failed(error);
    }
    if (turn !== this.turn) return;
    this.isLoading = false;
    this.show();
  }

  /** Whether the list has as many events as the page keeps. @private */
  get isFull() {
    return this.events.length >= ROWS_MAX || sizeOf(this.events) >= SIZE_MAX;
  }

  /** Reads events after the last that is shown. @private */
  async loadNewer() {
    const from = (this.events[0]?.offset ?? this.info.end - 1) + 1;
    const { events } = await page(this.info.topic, { from: "offset", offset: from }, 1000, this.signal);
    this.addNewer(events);
    const { end } = await session.admin.topic(this.info.topic, { signal: this.signal });
    this.info.end = end;
    this.show();
  }

  /** @param {RawEvent[]} events In the order of their offsets. */
  addNewer(events) {
    const fitting = events.filter((event) => fits(this.rules, event)).reverse();
    const all = fitting.concat(this.events);
    this.events = withinSize(all.slice(0, this.tail.isOn ? TAIL_ROWS_MAX : ROWS_MAX), SIZE_MAX);
    // The oldest were let go; they are read again when the user goes back to them.
    if (this.events.length < all.length && !this.tail.isOn)
      this.lowest = /** @type {RawEvent} */ (this.events.at(-1)).offset;
    this.info.end = Math.max(this.info.end, (events.at(-1)?.offset ?? -1) + 1);
    this.show();
  }

  /** @param {string} [progress] */
  show(progress) {
    const { events, info } = this;
    this.rows.empty = this.rules.length > 0 ? "No event that was looked at fits the filter." : "No events.";
    this.rows.items = events;
    const isMore = this.lowest > info.earliest;
    this.further.hidden = !(this.rules.length > 0 && isMore && !this.isLoading);
    this.newer.hidden = this.tail.isOn || (events[0]?.offset ?? info.end) >= info.end - 1 || this.rules.length > 0;
    const range =
      events.length > 0
        ? `, offsets ${count(/** @type {RawEvent} */ (events.at(-1)).offset)} to ${count(events[0].offset)}`
        : "";
    const full = this.isFull ? ". The list is full: jump to an offset to see earlier events" : "";
    const looked = this.rules.length > 0 ? `. Looked at everything from offset ${count(this.lowest)} on` : "";
    this.status.textContent =
      progress ??
      `${plural(events.length, "event")} shown${range}${looked}${full}. Times are in the zone of this browser.`;
  }

  /**
   * Shows an event beside the list.
   * @param {RawEvent} event
   */
  async choose(event) {
    this.rows.reveal(event.offset);
    this.address({ offset: event.offset });
    fill(this.side, eventDetail(event, this.info, this));
    // An event of the tail has lost digits of its numbers: the stored text has them.
    const stored = event.isParsed ? await eventAt(this.info.topic, event.offset, this.signal) : undefined;
    if (stored && stored.offset === event.offset) fill(this.side, eventDetail(stored, this.info, this));
  }

  /** @param {Record<string, string | number | undefined>} place */
  address(place) {
    this.note({ ...place, filter: this.query.get("filter") });
  }

  /**
   * Goes to an offset, a time, an id or the latest event of a key.
   * @param {string} kind
   * @param {string} text
   */
  async jump(kind, text) {
    this.failed(undefined);
    const { topic } = this.info;
    try {
      const found = await this.find(kind, text);
      if (!found) {
        notice(`${topic} has no such event.`, "bad");
        if (this.events.length === 0) await this.latest();
        return;
      }
      const { events } = await page(topic, { from: "offset", offset: found.offset }, PAGE / 2, this.signal);
      this.restart(found.offset, events.reverse());
      await this.older();
      this.choose(found);
    } catch (error) {
      if (!this.signal.aborted) this.failed(error);
    }
  }

  /**
   * @private
   * @param {string} kind
   * @param {string} text
   * @returns {Promise<RawEvent | undefined>}
   */
  async find(kind, text) {
    const { topic } = this.info;
    if (kind === "id") return eventById(topic, text, this.info, this.signal);
    if (kind === "key") {
      const latest = (await session.reader.latestByKey(topic, [text], { signal: this.signal }))[text];
      return latest ? eventAt(topic, latest.offset, this.signal) : undefined;
    }
    if (kind === "ts") {
      const ts = /^\d+$/.test(text) ? Number(text) : Date.parse(text);
      if (Number.isNaN(ts)) throw new Error(`\`${text}\` is not a time; write 2026-11-16 20:05 or epoch milliseconds`);
      return (await page(topic, { from: "ts", ts }, 1, this.signal)).events.at(0);
    }
    if (!/^\d+$/.test(text)) throw new Error(`\`${text}\` is not an offset; write a whole number`);
    const offset = Math.min(Number(text), Math.max(0, this.info.end - 1));
    return eventAt(topic, offset, this.signal);
  }

  /** @private */
  jumpForm() {
    const kind = h(
      "select",
      { "aria-label": "Kind of place" },
      [
        ["offset", "Offset"],
        ["ts", "Time"],
        ["id", "Id"],
        ["key", "Key"],
      ].map(([value, text]) => h("option", { value }, text)),
    );
    const value = h("input", {
      type: "text",
      "aria-label": "Place",
      placeholder: "42",
      autocomplete: "off",
      spellcheck: "false",
    });
    const examples = { offset: "42", ts: time(Date.now()).slice(0, 16), id: "an event's id", key: "a key" };
    kind.addEventListener("change", () => (value.placeholder = examples[/** @type {"id"} */ (kind.value)]));
    const submit = (/** @type {Event} */ event) => {
      event.preventDefault();
      this.tail.stop();
      if (value.value.trim() !== "") this.jump(kind.value, value.value.trim());
    };
    const latest = async () => {
      this.tail.stop();
      this.info.end = (await session.admin.topic(this.info.topic, { signal: this.signal })).end;
      this.address({});
      await this.latest();
    };
    return h(
      "form.row",
      { onsubmit: submit, "aria-label": "Jump" },
      kind,
      value,
      h("button", { type: "submit" }, "Go"),
      h("button", { type: "button", onclick: latest }, "Latest"),
    );
  }

  /** @private */
  filterForm() {
    const text = h("input", {
      type: "search",
      id: "filter",
      class: "mono",
      placeholder: "key=customer-1 payload.status=paid",
      autocomplete: "off",
      spellcheck: "false",
      value: this.query.get("filter") ?? "",
      "aria-label": "Filter",
    });
    const choices = h("datalist", { id: "filters" });
    text.setAttribute("list", "filters");
    const offer = () =>
      fill(
        choices,
        savedFilters().map((saved) => h("option", { value: saved }, "saved")),
        EXAMPLES.map((example) => h("option", { value: example.text }, example.means)),
      );
    offer();
    const apply = (/** @type {string} */ filter) => {
      try {
        this.rules = parseFilter(filter);
      } catch (error) {
        return notice(textOf(error), "bad");
      }
      this.failed(undefined);
      if (filter) this.query.set("filter", filter);
      else this.query.delete("filter");
      this.address({});
      this.restart(this.info.end);
      this.older();
    };
    const submit = (/** @type {Event} */ event) => {
      event.preventDefault();
      apply(text.value.trim());
    };
    const save = () => {
      const filter = text.value.trim();
      if (!filter) return;
      const isKept = !savedFilters().includes(filter);
      saveFilter(filter, isKept);
      offer();
      notice(isKept ? "Saved in this browser." : "Forgotten.");
    };
    const help = h(
      "details",
      h("summary.quiet", "Examples"),
      h(
        "ul",
        EXAMPLES.map((example) =>
          h(
            "li",
            h(
              "button.plain",
              { type: "button", onclick: () => ((text.value = example.text), text.focus()) },
              h("code", example.text),
            ),
            ` ${example.means}`,
          ),
        ),
      ),
    );
    return h(
      "form.row",
      { onsubmit: submit, role: "search" },
      text,
      choices,
      h("button", { type: "submit" }, "Filter"),
      h("button", { type: "button", onclick: () => ((text.value = ""), apply("")) }, "Clear"),
      h("button", { type: "button", onclick: save }, "Save or forget"),
      help,
    );
  }
}
customElements.define("messages-view", MessagesView);

/** @param {number} ts */
function timeCell(ts) {
  const isToday = time(ts).slice(0, 10) === time(Date.now()).slice(0, 10);
  return h("span", { title: time(ts) }, isToday ? clock(ts) : time(ts).slice(0, 19));
}
