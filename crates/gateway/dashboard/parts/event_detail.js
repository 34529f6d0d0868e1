/**
 * One event in full: its fields, its payload, and ways on from it.
 * @module
 */

import { eventText, publishCode, publishCommand, publishRequest, readCommand, readRequest } from "../lib/copies.js";
import { fill, h } from "../lib/dom.js";
import { eventById, eventsOfKey } from "../lib/events.js";
import { ago, count, cut, time } from "../lib/format.js";
import { go, link } from "../lib/route.js";
import { session } from "../lib/session.js";
import { textOf } from "../lib/view.js";
import { jsonView } from "./json.js";
import { copy, notice } from "./notice.js";
import { makeFacts } from "./tabs.js";

/** Events of a key that are shown at a time. */
const KEY_EVENTS = 20;

/** @typedef {import("../lib/events.js").RawEvent} RawEvent */

/**
 * @param {RawEvent} event
 * @param {{topic: string, earliest: number, end: number}} info
 * @param {{signal: AbortSignal}} view
 */
export function eventDetail(event, info, view) {
  const version = event.headers?.["x-schema-version"];
  const more = h("div.stack");
  const close = (/** @type {Event} */ click) => fill(/** @type {any} */ (click.target).closest("aside"));
  return h(
    "article.card",
    h(
      "div.row.between",
      h("h2", `Offset ${count(event.offset)}`),
      h("button.small", { type: "button", onclick: close }, "Close"),
    ),
    makeFacts([
      ["Time", `${time(event.ts)} (${ago(event.ts)})`],
      ["Id", h("code", event.id)],
      event.key !== undefined && ["Key", [h("code", event.key), " ", keyButton(event, info, view, more)]],
      event.partition !== undefined && ["Partition", String(event.partition)],
      event.tags !== undefined && event.tags.length > 0 && ["Tags", event.tags.map((tag) => h("span.chip", tag))],
      event.sid !== undefined && ["Session", event.sid],
      version !== undefined && [
        "Schema",
        h("a", { href: link(["schemas", info.topic], { version }) }, `version ${version}`),
      ],
      event.caused_by !== undefined &&
        event.caused_by.length > 0 && ["Caused by", event.caused_by.map((id) => causeButton(id, info, view))],
    ]),
    headerTable(event.headers),
    event.payload === null
      ? h("p.hint", "The payload is null: a tombstone, which says that the key is gone.")
      : jsonView(event.raw),
    copyButtons(event, info.topic),
    more,
  );
}

/** @param {Record<string, string> | undefined} headers */
export function headerTable(headers) {
  const entries = Object.entries(headers ?? {});
  if (entries.length === 0) return undefined;
  return h(
    "table.plain",
    h("thead", h("tr", h("th", { scope: "col" }, "Header"), h("th", { scope: "col" }, "Value"))),
    h(
      "tbody",
      entries.map(([name, value]) => h("tr", h("td", h("code", name)), h("td", h("code", value)))),
    ),
  );
}

/**
 * @param {RawEvent} event
 * @param {{topic: string}} info
 * @param {{signal: AbortSignal}} view
 * @param {Element} place
 */
function keyButton(event, info, view, place) {
  const events = eventsOfKey(info.topic, /** @type {string} */ (event.key), view.signal);
  const list = h("ul");
  const further = h("button.small", { type: "button" }, "Earlier events");
  const read = async () => {
    further.disabled = true;
    let isMore = true;
    for (let n = 0; n < KEY_EVENTS; n++) {
      const { done, value } = await events.next();
      if (done || !value) {
        isMore = false;
        break;
      }
      const href = link(["topics", info.topic], { offset: value.offset });
      list.append(
        h(
          "li",
          h("a", { href }, `offset ${count(value.offset)}`),
          ` ${time(value.ts)} `,
          h("code", cut(value.raw, 60)),
        ),
      );
    }
    further.disabled = false;
    further.hidden = !isMore;
  };
  further.addEventListener("click", () => read().catch((error) => notice(textOf(error), "bad")));
  const press = () => {
    fill(place, h("h3", "Events of the same key, newest first"), list, further);
    if (list.childElementCount === 0) further.click();
  };
  return h("button.small", { type: "button", onclick: press }, "Same key");
}

/**
 * A cause is known by its id alone, so the topics are asked in turn, the topic of the event first.
 * @param {string} id
 * @param {{topic: string}} info
 * @param {{signal: AbortSignal}} view
 */
function causeButton(id, info, view) {
  const find = async () => {
    const own = await session.admin.topic(info.topic, { signal: view.signal });
    const others = [own];
    for await (const topic of session.admin.topics({ limit: 1000, signal: view.signal })) {
      if (topic.topic !== info.topic && session.rights.mayRead(topic.topic)) others.push(topic);
    }
    for (const topic of others) {
      const event = await eventById(topic.topic, id, topic, view.signal);
      if (event) return go(["topics", topic.topic], { offset: event.offset });
    }
    notice("No topic that you may read has this event.", "bad");
  };
  const press = () => find().catch((error) => notice(textOf(error), "bad"));
  return h("button.plain", { type: "button", onclick: press, title: "Find this event" }, h("code", id));
}

/**
 * @param {RawEvent} event
 * @param {string} topic
 */
function copyButtons(event, topic) {
  const button = (/** @type {string} */ name, /** @type {() => string} */ text) =>
    h("button.small", { type: "button", onclick: () => copy(text(), name) }, name);
  return h(
    "div.row",
    h("span.quiet", "Copy"),
    button("payload", () => event.raw),
    button("event", () => eventText(event)),
    button("curl to read", () => readRequest(event, topic)),
    button("curl to publish", () => publishRequest(event, topic)),
    button("CLI to read", () => readCommand(event, topic)),
    button("CLI to publish", () => publishCommand(event, topic)),
    button("JavaScript", () => publishCode(event, topic)),
  );
}
