/**
 * The dead letters of one group: browse, group by reason, look into one, mend it, deliver again, drop.
 * @module
 */

import { fill, h, setText } from "../lib/dom.js";
import { ago, count, cut, plural } from "../lib/format.js";
import { LETTERS_MAX, SIZE_MAX, allLetters, letterFits, lettersPage, reasonKind, sizeOf } from "../lib/letters.js";
import { link } from "../lib/route.js";
import { session } from "../lib/session.js";
import { View, textOf } from "../lib/view.js";
import { ask, notice } from "../parts/notice.js";
import { makeRows } from "../parts/rows.js";
import { crumb, field } from "../parts/tabs.js";
import { letterDetail } from "./letter.js";

const PAGE = 500;
/** Letters that one request may name. */
const NAMED_MAX = 1_000;

/** @typedef {import("../lib/letters.js").Letter} Letter */

export class WorkbenchView extends View {
  /**
   * @param {string} topic
   * @param {string} group
   * @param {URLSearchParams} query
   */
  constructor(topic, group, query) {
    super();
    this.topic = topic;
    this.group = group;
    /** @private */
    this.query = query;
    /** @private @type {Letter[]} */
    this.letters = [];
    /** @private @type {number | undefined} */
    this.next = undefined;
    /** @private Whether all letters were read. */
    this.isAll = false;
    /** @private Whether the last page could not be read. */
    this.hasFailed = false;
    /** @private Characters of the payloads that were read. */
    this.size = 0;
    /** @private The page that is being read. @type {Promise<void> | undefined} */
    this.reading = undefined;
    /** @private The kind of reason that is shown; all if empty. */
    this.kind = query.get("reason") ?? "";
    /** @private @type {Set<number>} */
    this.chosen = new Set();
    this.mayManage = session.rights.mayManage(this.topic) && session.rights.mayManage(`${this.topic}.dlq`);
    this.side = h("aside.side", { "aria-label": "The chosen letter" });
    /** @private */
    this.summary = h("p.quiet", { role: "status" }, "Reading the letters…");
    /** @private */
    this.kinds = h("select", { "aria-label": "Reason" });
    this.kinds.addEventListener("change", () => {
      this.kind = this.kinds.value;
      this.address();
      this.show();
    });
    /** @private */
    this.further = h(
      "div.row",
      { hidden: true },
      h("button", { type: "button", onclick: () => this.read() }, "Read more"),
      h("button", { type: "button", onclick: () => this.readAll() }, "Read all"),
    );
    /** @private */
    this.actions = h("div.row");
    const box = (/** @type {Letter} */ letter) => {
      const input = h("input", {
        type: "checkbox",
        checked: this.chosen.has(letter.offset),
        "aria-label": `Choose offset ${letter.offset}`,
      });
      input.addEventListener("change", () => {
        if (input.checked) this.chosen.add(letter.offset);
        else this.chosen.delete(letter.offset);
        this.showActions();
      });
      return input;
    };
    this.rows = makeRows({
      label: `Dead letters of ${this.group}`,
      columns: [
        { title: "", width: "20px", cell: (l) => (this.mayManage ? box(l) : "") },
        { title: "Offset", width: "76px", className: "number", cell: (l) => count(l.offset) },
        { title: "Failed", width: "100px", cell: (l) => ago(l.last_ts), isWide: true },
        { title: "Attempts", width: "66px", className: "number", cell: (l) => count(l.attempts), isWide: true },
        {
          title: "Reason",
          width: "minmax(0, 2fr)",
          cell: (l) => [l.redriving && h("span.chip.warn", "on its way "), cut(l.reason, 200)],
        },
        { title: "Key", width: "minmax(0, 1fr)", className: "mono", cell: (l) => l.event?.key ?? "", isWide: true },
        {
          title: "Payload",
          width: "minmax(0, 2fr)",
          className: "mono",
          cell: (l) => cut(l.event?.raw ?? "gone from the topic", 160),
          isWide: true,
        },
      ],
      keyOf: (letter) => letter.offset,
      empty: "No open letters.",
      onpick: (letter) => this.choose(letter),
      // The letters of a rare reason would never fill the list.
      onend: () => this.kind === "" && !this.hasFailed && this.read(),
    });
  }

  build() {
    this.append(
      crumb(link(["dead-letters"]), "Dead letters"),
      h("div.top", h("h1", `Dead letters of ${this.group}`), this.actions),
      h(
        "p",
        "on ",
        h("a", { href: link(["topics", this.topic]) }, this.topic),
        ", group ",
        h("a", { href: link(["groups", this.group], { topic: this.topic }) }, this.group),
      ),
      h(
        "div.row",
        this.kinds,
        h("button", { type: "button", onclick: () => this.reload() }, "Read again"),
        this.further,
      ),
      this.summary,
      h("div.split", this.rows, this.side),
    );
    this.reload();
  }

  /** Reads the letters from the first on. */
  async reload() {
    await this.reading;
    this.letters = [];
    this.next = undefined;
    this.isAll = false;
    this.size = 0;
    this.chosen.clear();
    await this.read();
    const offset = Number(this.query.get("offset") ?? "NaN");
    const letter = this.letters.find((one) => one.offset === offset);
    if (letter) this.choose(letter);
    else fill(this.side);
  }

  /** Whether the page keeps no more letters. @private */
  get isFull() {
    return this.letters.length >= LETTERS_MAX || this.size >= SIZE_MAX;
  }

  /** Reads the next page, or waits for the one that is being read. @private */
  read() {
    if (this.isAll || this.isFull) return Promise.resolve();
    this.reading ??= this.readPage().finally(() => (this.reading = undefined));
    return this.reading;
  }

  /** @private */
  async readPage() {
    this.hasFailed = false;
    try {
      const page = await lettersPage(this.topic, this.group, this.next, PAGE, this.signal);
      this.letters = this.letters.concat(page.letters);
      this.size += sizeOf(page.letters);
      this.next = page.next;
      this.isAll = page.next === undefined;
      this.failed(undefined);
    } catch (error) {
      if (!this.signal.aborted) this.failed(error);
      this.hasFailed = true;
    }
    this.show();
  }

  /** Reads on, as far as the page keeps letters. @private */
  async readAll() {
    do await this.read();
    while (!this.isAll && !this.isFull && !this.hasFailed && !this.signal.aborted);
  }

  /** @private */
  get shown() {
    return this.kind === "" ? this.letters : this.letters.filter((letter) => reasonKind(letter.reason) === this.kind);
  }

  /** @private */
  show() {
    /** @type {Map<string, number>} */
    const kinds = new Map();
    for (const letter of this.letters) {
      const kind = reasonKind(letter.reason);
      kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
    }
    const sorted = [...kinds].sort((a, b) => b[1] - a[1]);
    fill(
      this.kinds,
      h("option", { value: "" }, `All reasons (${count(this.letters.length)})`),
      sorted.map(([kind, many]) => h("option", { value: kind }, `${cut(kind, 90)} (${count(many)})`)),
    );
    this.kinds.value = kinds.has(this.kind) ? this.kind : "";
    if (!kinds.has(this.kind)) this.kind = "";
    this.further.hidden = this.isAll || this.isFull;
    const more = this.isAll ? "" : ", there are more";
    const full = this.isFull && !this.isAll ? " The list is full: redrive or drop letters to see others." : "";
    this.summary.textContent = `${plural(this.letters.length, "letter")} read${more}; ${plural(kinds.size, "reason")}.${full}`;
    this.rows.items = this.shown;
    this.showActions();
  }

  /** @private */
  showActions() {
    if (!this.mayManage)
      return void fill(this.actions, h("p.quiet", "Your token may look at the letters, not change them."));
    const button = (/** @type {string} */ text, /** @type {() => unknown} */ onclick) =>
      h("button", { type: "button", onclick }, text);
    const many = this.chosen.size;
    const isSome = many > 0 || this.kind !== "";
    const what =
      many > 0 ? `${count(many)} chosen` : this.kind !== "" ? `${count(this.shown.length)} of this reason` : "all";
    const offsets = () => (isSome ? this.named() : undefined);
    fill(
      this.actions,
      button(`Redrive ${what}…`, () => this.redrive(offsets())),
      button("Redrive by filter…", () => this.byFilter("redrive")),
      button(`Drop ${what}…`, () => this.drop(offsets())),
      button("Drop by filter…", () => this.byFilter("drop")),
    );
  }

  /** The offsets that are chosen. @private */
  named() {
    return this.chosen.size > 0 ? [...this.chosen] : this.shown.map((letter) => letter.offset);
  }

  /** @param {Letter} letter */
  choose(letter) {
    this.rows.chosen = letter.offset;
    this.query.set("offset", String(letter.offset));
    this.address();
    fill(this.side, letterDetail(letter, this));
  }

  /** @private */
  address() {
    this.note({ topic: this.topic, group: this.group, reason: this.kind, offset: this.query.get("offset") });
  }

  /**
   * Asks, then delivers letters again.
   * @param {number[] | undefined} offsets All letters if left out.
   */
  async redrive(offsets) {
    const to = targets();
    const isDone = await this.askFor(offsets, {
      title: "Redrive dead letters?",
      sentence: (many) => `This delivers ${many} again. They stay open until their events are delivered.`,
      more: field("To", to),
      action: "Redrive",
      work: () => this.send("redrive", choices(offsets), { to: to.value }),
    });
    if (isDone) await this.reload();
  }

  /** @param {number[] | undefined} offsets All letters if left out. */
  async drop(offsets) {
    const isDone = await this.askFor(offsets, {
      title: "Drop dead letters?",
      sentence: (many) =>
        `This closes ${many}: the group will not get these events again. The topic ${this.topic}.dlq keeps them as history.`,
      action: "Drop",
      isDanger: true,
      work: () => this.send("drop", choices(offsets), {}),
    });
    if (isDone) await this.reload();
  }

  /**
   * Asks with a count. Where all letters are meant, they are counted first.
   * @private
   * @param {number[] | undefined} offsets
   * @param {{title: string, sentence: (many: string) => string, more?: any, action: string, isDanger?: boolean, work: () => Promise<string>}} question
   */
  async askFor(offsets, { sentence, more, ...question }) {
    const text = h("p", { role: "status" });
    if (offsets) {
      setText(text, sentence(plural(offsets.length, "letter")));
      return ask({ ...question, body: [text, more] });
    }
    const closing = new AbortController();
    const counting = (/** @type {number} */ read) => setText(text, `Counting the letters: ${count(read)} so far…`);
    counting(0);
    const ready = allLetters(this.topic, this.group, closing.signal, counting).then((all) =>
      setText(text, sentence(`all ${numberOf(all)}`)),
    );
    const isDone = await ask({ ...question, body: [text, more], ready });
    closing.abort();
    return isDone;
  }

  /**
   * Sends choices of letters, one after another.
   * @private
   * @param {"redrive" | "drop"} verb
   * @param {object[]} chosen
   * @param {object} more
   * @returns {Promise<string>}
   */
  async send(verb, chosen, more) {
    const sum = { redriven: 0, dropped: 0, gone: 0, already_redriving: 0 };
    for (const [part, choice] of chosen.entries()) {
      let report;
      try {
        report = await session.http.json(["dlq", verb], {
          method: "POST",
          query: { topic: this.topic, group: this.group },
          json: { ...choice, ...more },
        });
      } catch (error) {
        if (part === 0) throw error;
        throw new Error(`${textOf(error)} Before that: ${told(sum)} The other letters are as they were.`);
      }
      for (const name of /** @type {(keyof typeof sum)[]} */ (Object.keys(sum))) sum[name] += report[name] ?? 0;
    }
    return told(sum);
  }

  /**
   * Asks for a filter, counts the letters that fit, then delivers or drops them.
   * @private
   * @param {"redrive" | "drop"} verb
   */
  async byFilter(verb) {
    const input = (placeholder = "") =>
      h("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder });
    const [key, prefix, tag, header] = [input(), input(), input(), input("x-region: eu")];
    const to = targets();
    const preview = h("p", { role: "status" });
    const filter = () => {
      const [name, ...rest] = header.value.split(":");
      return {
        ...(key.value && { key: key.value }),
        ...(prefix.value && { keyPrefix: prefix.value }),
        ...(tag.value && { tags: tag.value }),
        ...(rest.length > 0 && { headers: { [name.trim()]: rest.join(":").trim() } }),
      };
    };
    /** @type {Awaited<ReturnType<typeof allLetters>> | undefined} */
    let all;
    const reading = (/** @type {number} */ read) => setText(preview, `Reading the letters: ${count(read)} so far…`);
    const look = () => {
      if (!all) return;
      const now = filter();
      if (Object.keys(now).length === 0) return setText(preview, `Fill a field to choose some of ${numberOf(all)}.`);
      const fit = all.letters.filter((letter) => letterFits(now, letter)).length;
      const more = all.isAll ? "" : " Letters beyond these are chosen too if they fit.";
      setText(preview, `${count(fit)}${all.isAll ? "" : "+"} of ${numberOf(all)} fit.${more}`);
    };
    for (const one of [key, prefix, tag, header]) one.addEventListener("input", look);
    reading(0);
    const closing = new AbortController();
    const ready = allLetters(this.topic, this.group, closing.signal, reading).then((found) => {
      all = found;
      look();
    });
    const isRedrive = verb === "redrive";
    const isDone = await ask({
      title: isRedrive ? "Redrive by filter" : "Drop by filter",
      body: [
        h(
          "div.fields",
          field("Key", key),
          field("Key begins with", prefix),
          field("Tag", tag),
          field("Header", header),
        ),
        isRedrive && field("To", to),
        preview,
      ],
      action: isRedrive ? "Redrive" : "Drop",
      isDanger: !isRedrive,
      ready,
      work: async () => {
        const now = filter();
        if (Object.keys(now).length === 0) throw new Error(`fill at least one field, or ${verb} all letters`);
        return this.send(verb, [{ filter: now }], isRedrive ? { to: to.value } : {});
      },
    });
    closing.abort();
    if (isDone) await this.reload();
  }

  /**
   * Publishes the event of a letter with another payload, which closes the letter.
   * @param {Letter} letter
   * @param {string} payload JSON text; its numbers keep all their digits.
   */
  async redriveEdited(letter, payload) {
    const isDone = await ask({
      title: "Publish the mended event?",
      body: [
        h(
          "p",
          `A new event with this payload is published to ${this.topic}, caused by the old one, and the letter at offset ${count(letter.offset)} is closed. All groups of the topic get the new event.`,
        ),
      ],
      action: "Publish and close",
      work: async () => {
        const text = `{"offsets":[${letter.offset}],"to":"topic","payload":${payload}}`;
        const query = { topic: this.topic, group: this.group };
        const report = await session.http.json(["dlq", "redrive"], {
          method: "POST",
          query,
          text,
          headers: { "content-type": "application/json" },
        });
        return told(report);
      },
    });
    if (isDone) await this.reload().catch((error) => notice(textOf(error), "bad"));
  }
}
customElements.define("workbench-view", WorkbenchView);

/**
 * How many letters there are. A number with a plus is as far as they were read.
 * @param {{letters: Letter[], isAll: boolean}} all
 */
function numberOf({ letters, isAll }) {
  const noun = letters.length === 1 && isAll ? "letter" : "letters";
  const onTheirWay = letters.filter((letter) => letter.redriving).length;
  const busy = onTheirWay > 0 ? ` (${count(onTheirWay)} on the way already)` : "";
  return `${count(letters.length)}${isAll ? "" : "+"} ${noun}${busy}`;
}

/** Where letters are delivered again. */
function targets() {
  return h(
    "select",
    h("option", { value: "group" }, "the group: delivered again, with all attempts"),
    h("option", { value: "topic" }, "the topic: published again as new events, for all groups"),
  );
}

/**
 * Letters by their offsets, as the server takes them in several requests.
 * @param {number[] | undefined} offsets All letters if left out.
 */
function choices(offsets) {
  if (!offsets) return [{ all: true }];
  const parts = [];
  for (let at = 0; at < offsets.length; at += NAMED_MAX) parts.push({ offsets: offsets.slice(at, at + NAMED_MAX) });
  return parts;
}

/** @param {any} report */
function told(report) {
  const parts = [];
  if (report.redriven > 0) parts.push(`${plural(report.redriven, "letter")} redriven`);
  if (report.dropped > 0) parts.push(`${plural(report.dropped, "letter")} dropped`);
  if (report.already_redriving > 0) parts.push(`${count(report.already_redriving)} on their way already`);
  if (report.gone > 0) parts.push(`${count(report.gone)} stay open because retention removed their events`);
  return parts.length > 0 ? `${parts.join(", ")}.` : "No letter was chosen.";
}
