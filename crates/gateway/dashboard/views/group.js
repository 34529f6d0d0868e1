/**
 * One group: its progress, its members, why it delivers nothing, and what can be done.
 * @module
 */

import { fill, h } from "../lib/dom.js";
import { eventAt } from "../lib/events.js";
import { ago, count, cut, duration, plural, time } from "../lib/format.js";
import { go, link } from "../lib/route.js";
import { session } from "../lib/session.js";
import { View, textOf } from "../lib/view.js";
import { reasonOf } from "../lib/words.js";
import { ask } from "../parts/notice.js";
import { crumb, field, makeFacts } from "../parts/tabs.js";

const EVERY_MS = 2_000;

export class GroupView extends View {
  /** @param {import("../lib/route.js").Route} route */
  constructor(route) {
    super();
    /** @private */
    this.group = route.path[1];
    /** @private */
    this.topic = route.query.get("topic") ?? "";
  }

  build() {
    /** @private */
    this.actions = h("div.row");
    /** @private */
    this.body = h("div.stack", h("p.quiet", "Asking the server…"));
    this.append(
      crumb(link(["groups"]), "Groups"),
      h("div.top", h("h1", this.group), this.actions),
      h("p", "on ", topicLink(this.topic)),
      this.body,
    );
    /**
     * Whether the buttons are those of a paused group; undefined while there are none.
     * @private
     * @type {boolean | undefined}
     */
    this.isPaused = undefined;
    /** @private */
    this.again = this.every(EVERY_MS, () => this.read());
  }

  /** @private */
  async read() {
    const info = await session.admin.group(this.topic, this.group, { signal: this.signal });
    const isOne = info.topics.length === 1;
    const lag = isOne ? await session.admin.lag(info.topics[0].topic, this.group, { signal: this.signal }) : undefined;
    // The buttons stay the same elements, so that one that has the focus keeps it.
    if (this.isPaused !== info.paused) {
      this.isPaused = info.paused;
      fill(this.actions, this.buttons(info));
    }
    this.info = info;
    fill(
      this.body,
      info.topics.map((/** @type {any} */ part) => [
        this.progress(part, isOne ? lag : undefined),
        // Members of a group with partitions are in the table of partitions.
        !info.partitions && members(part),
      ]),
      partitions(info.partitions, info.topics),
      options(info),
    );
    if (info.paused)
      this.body.prepend(h("p.warning", "The group is paused: nothing is delivered until it is resumed."));
    if (info.topics.length === 0) this.body.prepend(h("p.hint", "No topic has events for this group yet."));
  }

  /**
   * @private
   * @param {any} part
   * @param {any} lag
   */
  progress(part, lag) {
    const reason = part.reason;
    const { kind, text } = reasonOf(reason);
    const done = part.end > 0 ? Math.min(100, (100 * part.floor) / part.end) : 100;
    const bar = h("i");
    bar.style.width = `${done}%`;
    const letters = link(["dead-letters"], { topic: part.topic, group: this.group });
    return h(
      "section.card",
      h("h2", part.topic),
      h("p", h("span.chip", { class: kind }, reason.replace("_", " ")), " ", text),
      part.failing &&
        h("p.failure", "The store failed the last commit or read of this group. The log of the server says why."),
      h("div.meter", { role: "img", "aria-label": `${Math.floor(done)} % finished` }, bar),
      makeFacts([
        ["Lag", plural(part.lag, "event") + (lag?.lag_ms ? `, ${duration(lag.lag_ms)} behind` : "")],
        ["Floor", `${count(part.floor)} of ${count(part.end)}: every event before it is finished`],
        ["In flight", count(part.in_flight)],
        ["Members", count(part.members)],
        part.expired > 0 && [
          "Expired",
          h("span.warn", `${plural(part.expired, "event")} removed by retention before the group got them`),
        ],
        lag?.cursor && [
          "Last finished",
          h(
            "a",
            { href: link(["topics", part.topic], { offset: lag.cursor.offset }) },
            `offset ${count(lag.cursor.offset)}, ${time(lag.cursor.ts)}`,
          ),
        ],
        ["Dead letters", h("a", { href: letters }, "Look at them")],
      ]),
      blockedKeys(part),
    );
  }

  /**
   * @private
   * @param {any} info
   */
  buttons(info) {
    const { rights } = session;
    if (!rights.mayManage(this.topic)) return h("p.quiet", "Your token may look at this group, not change it.");
    const button = (/** @type {string} */ text, /** @type {() => unknown} */ onclick, name = "") =>
      h(`button${name}`, { type: "button", onclick }, text);
    return [
      info.paused
        ? button("Resume…", () => this.setPaused(false), ".primary")
        : button("Pause…", () => this.setPaused(true)),
      button("Seek…", () => this.seek()),
      button("Delete…", () => this.askToDelete()),
    ];
  }

  /** @private */
  get totals() {
    const parts = this.info?.topics ?? [];
    const sum = (/** @type {string} */ name) =>
      parts.reduce((/** @type {number} */ all, /** @type {any} */ part) => all + part[name], 0);
    return {
      lag: sum("lag"),
      inFlight: sum("in_flight"),
      members: Math.max(0, ...parts.map((/** @type {any} */ part) => part.members)),
    };
  }

  /**
   * @private
   * @param {boolean} isPaused
   */
  async setPaused(isPaused) {
    const { lag, inFlight, members } = this.totals;
    const body = isPaused
      ? `Nothing is delivered to ${plural(members, "member")} until the group is resumed, even after a restart. ${plural(inFlight, "event")} in flight can still be acked; ${plural(lag, "event")} and all new ones wait.`
      : `Delivery to ${plural(members, "member")} goes on, beginning with the oldest of ${plural(lag, "unfinished event")}.`;
    await ask({
      title: isPaused ? `Pause ${this.group}?` : `Resume ${this.group}?`,
      body: [h("p", body)],
      action: isPaused ? "Pause" : "Resume",
      work: async () => {
        if (isPaused) await session.admin.pause(this.topic, this.group);
        else await session.admin.resume(this.topic, this.group);
        return isPaused ? "Paused." : "Resumed.";
      },
    });
    this.again?.();
  }

  /** @private */
  async askToDelete() {
    const { lag, members } = this.totals;
    await ask({
      title: `Delete ${this.group}?`,
      body: [
        h(
          "p",
          `This forgets how far the group is: ${plural(lag, "unfinished event")} are no longer waiting for it. Its failed attempts, open dead letters and marks of handled events go too. It cannot be undone.`,
        ),
        members > 0 &&
          h(
            "p.warning",
            `The group has ${plural(members, "member")}. The server deletes only groups without members: stop them first.`,
          ),
      ],
      action: "Delete",
      isDanger: true,
      typed: this.group,
      work: async () => {
        await session.admin.deleteGroup(this.topic, this.group);
        go(["groups"]);
        return `${this.group} was deleted.`;
      },
    });
  }

  /** Moves the group, after a dry run that says what would happen. @private */
  async seek() {
    const parts = (this.info?.topics ?? []).map((/** @type {any} */ part) => part.topic);
    const topic = h(
      "select",
      parts.map((/** @type {string} */ name) => h("option", { value: name }, name)),
    );
    const kind = h(
      "select",
      [
        ["earliest", "The first event there is"],
        ["latest", "The end: only new events"],
        ["offset", "An offset"],
        ["ts", "A time"],
        ["afterId", "After an event, by its id"],
      ].map(([value, text]) => h("option", { value }, text)),
    );
    const value = h("input", {
      type: "text",
      autocomplete: "off",
      spellcheck: "false",
      hidden: true,
      "aria-label": "Place",
    });
    const report = h("p", { role: "status" }, "Choose a place to see what would happen.");
    const target = () => readTarget(kind.value, value.value.trim());
    /** What the preview told last, and where the group then goes. @type {{topic: string, to: number} | undefined} */
    let previewed;
    let previews = 0;
    const preview = async () => {
      const turn = ++previews;
      previewed = undefined;
      try {
        const name = topic.value;
        const dry = await session.admin.seek(name, this.group, { ...target(), dryRun: true });
        // Answers may come in another order than the questions were asked.
        if (turn !== previews) return;
        previewed = { topic: name, to: dry.to };
        fill(report, sentence(dry));
      } catch (error) {
        if (turn === previews) fill(report, h("span.warn", textOf(error)));
      }
    };
    kind.addEventListener("change", () => {
      value.hidden = ["earliest", "latest"].includes(kind.value);
      value.placeholder =
        { offset: "42", ts: time(Date.now()).slice(0, 16), afterId: "an event's id" }[
          /** @type {"ts"} */ (kind.value)
        ] ?? "";
      preview();
    });
    value.addEventListener("change", preview);
    topic.addEventListener("change", preview);
    preview();
    await ask({
      title: `Move ${this.group}`,
      body: [parts.length > 1 && field("Topic", topic), field("To", kind), value, report],
      action: "Move the group",
      isDanger: true,
      work: async () => {
        if (!previewed) throw new Error("choose a place that exists first");
        const place = /** @type {const} */ ({ from: "offset", offset: previewed.to });
        const done = await session.admin.seek(previewed.topic, this.group, place);
        return `Moved to offset ${count(done.to)}.`;
      },
    });
    this.again?.();
  }
}
customElements.define("group-view", GroupView);

/**
 * @param {string} kind
 * @param {string} text
 * @returns {any}
 */
function readTarget(kind, text) {
  if (kind === "earliest" || kind === "latest") return { from: kind };
  if (text === "") throw new Error("write the place to move to");
  if (kind === "afterId") return { from: kind, afterId: text };
  const number = kind === "ts" && !/^\d+$/.test(text) ? Date.parse(text) : Number(text);
  if (!Number.isSafeInteger(number)) throw new Error(`\`${text}\` is not ${kind === "ts" ? "a time" : "an offset"}`);
  return { from: kind, [kind]: number };
}

/** @param {any} dry */
function sentence(dry) {
  const parts = [];
  if (dry.replayed > 0) parts.push(`${plural(dry.replayed, "offset")} would be delivered again`);
  if (dry.skipped > 0) parts.push(`${plural(dry.skipped, "offset")} would never be delivered`);
  const what = parts.length > 0 ? parts.join(", and ") : "nothing would be delivered again or passed over";
  return `From offset ${count(dry.from)} to ${count(dry.to)}: ${what}.`;
}

/** Keys of events that block others, by topic and offset. Each is asked for once. @type {Map<string, Promise<string | undefined>>} */
const keyNames = new Map();
const KEY_NAMES_MAX = 1_000;

/**
 * Shows a key where the server tells its hash only: the event has the key.
 * @param {string} topic
 * @param {number} offset
 * @param {Element} place
 */
function nameKey(topic, offset, place) {
  const at = `${topic} ${offset}`;
  let name = keyNames.get(at);
  if (!name) {
    if (keyNames.size >= KEY_NAMES_MAX) keyNames.clear();
    name = eventAt(topic, offset, AbortSignal.timeout(5_000)).then(
      (event) => (event && event.offset === offset ? event.key : undefined),
      () => undefined,
    );
    keyNames.set(at, name);
  }
  name.then((key) => key !== undefined && (place.textContent = cut(key, 80)));
}

/**
 * A link to a topic. A pattern has no view of its own.
 * @param {string} subject
 */
export function topicLink(subject) {
  return subject.includes("*") ? h("code", subject) : h("a", { href: link(["topics", subject]) }, subject);
}

/** @param {any} part */
function blockedKeys(part) {
  const keys = part.blocked_keys ?? [];
  if (keys.length === 0) return undefined;
  const hasMembers = keys.some((/** @type {any} */ key) => typeof key.member === "string");
  const line = (/** @type {any} */ key) => {
    const place = h("a", { href: link(["topics", part.topic], { offset: key.offset }) }, `offset ${count(key.offset)}`);
    const name = h("code", key.key ?? key.key_hash);
    if (key.key === undefined) nameKey(part.topic, key.offset, name);
    return h(
      "tr",
      h("td", name),
      h("td", place),
      hasMembers && h("td", key.member ?? ""),
      h("td", plural(key.waiting, "event")),
    );
  };
  return h(
    "div.scroll",
    h("h3", "Blocked keys"),
    h(
      "table.plain",
      h(
        "thead",
        h(
          "tr",
          ["Key", "Blocked by", hasMembers && "Member", "Waiting"].map(
            (text) => text && h("th", { scope: "col" }, text),
          ),
        ),
      ),
      h("tbody", keys.map(line)),
    ),
  );
}

/**
 * The members of a group on a topic. The server names the first hundred.
 * @param {any} part
 */
function members(part) {
  const list = part.member_list ?? [];
  if (list.length === 0) return undefined;
  const rest = part.members - list.length;
  return h(
    "section.card",
    h("h2", part.members === 1 ? "Member" : `Members (${count(part.members)})`),
    memberTable(
      ["Member", "In flight"],
      list.map((/** @type {any} */ one) => [h("code", one.member), plural(one.in_flight, "event")]),
    ),
    rest > 0 && h("p.quiet", `${plural(rest, "other member")} ${rest === 1 ? "is" : "are"} not listed.`),
  );
}

/**
 * @param {string[]} titles
 * @param {any[][]} lines
 */
function memberTable(titles, lines) {
  return h(
    "div.scroll",
    // A wide table is scrolled with the keyboard too.
    { tabindex: "0", role: "group", "aria-label": "Members" },
    h(
      "table.plain",
      h(
        "thead",
        h(
          "tr",
          titles.map((text) => h("th", { scope: "col" }, text)),
        ),
      ),
      h(
        "tbody",
        lines.map((cells) =>
          h(
            "tr",
            cells.map((cell) => h("td", cell)),
          ),
        ),
      ),
    ),
  );
}

/**
 * @param {any} view
 * @param {any[]} topics
 */
function partitions(view, topics) {
  if (!view) return undefined;
  /** @type {Map<string, number>} */
  const inFlight = new Map();
  for (const one of topics.flatMap((part) => part.member_list ?? []))
    inFlight.set(one.member, (inFlight.get(one.member) ?? 0) + one.in_flight);
  const line = (/** @type {any} */ member) => [
    h("code", member.member),
    `${member.partitions.length}: ${ranges(member.partitions)}`,
    inFlight.has(member.member) ? plural(inFlight.get(member.member) ?? 0, "event") : "",
    ago(member.since),
    member.liveness,
  ];
  return h(
    "section.card",
    h("h2", `Members and partitions (${count(view.partitions)})`),
    h("p.quiet", `Epoch ${count(view.epoch)}; the last change was ${ago(view.since)}.`),
    memberTable(["Member", "Partitions", "In flight", "Joined", "Alive by"], view.members.map(line)),
  );
}

/**
 * Numbers as ranges: 0–3, 7.
 * @param {number[]} numbers
 */
function ranges(numbers) {
  const found = [];
  for (let at = 0; at < numbers.length; at++) {
    const first = numbers[at];
    while (numbers[at + 1] === numbers[at] + 1) at++;
    found.push(first === numbers[at] ? `${first}` : `${first}–${numbers[at]}`);
  }
  return cut(found.join(", "), 200);
}

/** @param {any} info */
function options(info) {
  const { from, order, partitions: n, maxAttempts, filter } = info.options;
  return h(
    "section.card",
    h("h2", "Options"),
    makeFacts([
      ["Created", `${time(info.created)} (${ago(info.created)})`],
      ["Began with", typeof from === "string" ? from : JSON.stringify(from)],
      [
        "Order",
        order === "key"
          ? "by key: an event waits for earlier events of its key"
          : "none: events are handled in parallel",
      ],
      n !== undefined && n !== null && ["Partitions", count(n)],
      ["Attempts", `${count(maxAttempts)}, then the event becomes a dead letter`],
      filter && ["Filter", h("code", JSON.stringify(filter))],
    ]),
  );
}
