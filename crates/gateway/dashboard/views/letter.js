/**
 * One dead letter: the event, why it failed, whether it fits the schema, and mending it.
 * @module
 */

import { fill, h } from "../lib/dom.js";
import { ago, count, time } from "../lib/format.js";
import { indented, problemOf } from "../lib/json_text.js";
import { link } from "../lib/route.js";
import { session } from "../lib/session.js";
import { hasCode, textOf } from "../lib/view.js";
import { headerTable } from "../parts/event_detail.js";
import { jsonView } from "../parts/json.js";
import { makeFacts } from "../parts/tabs.js";
import { refusal } from "./publish.js";

/**
 * @param {import("../lib/letters.js").Letter} letter
 * @param {import("./workbench.js").WorkbenchView} view
 */
export function letterDetail(letter, view) {
  const { event } = letter;
  const { topic } = view;
  const check = h("div", { role: "status" });
  const place = h("div.stack");
  const raw = event?.raw ?? "null";
  if (event) show(topic, raw, check);
  const button = (/** @type {string} */ text, /** @type {() => unknown} */ onclick) =>
    h("button.small", { type: "button", onclick }, text);
  const mayEdit = view.mayManage && session.rights.mayPublish(topic);
  return h(
    "article.card",
    h("h2", `Letter at offset ${count(letter.offset)}`),
    h("p.failure", letter.reason),
    makeFacts([
      letter.by !== undefined && ["Said by", letter.by],
      ["Attempts", count(letter.attempts)],
      ["First failed", `${time(letter.first_ts)} (${ago(letter.first_ts)})`],
      ["Last failed", `${time(letter.last_ts)} (${ago(letter.last_ts)})`],
      letter.redrives > 0 && ["Redriven before", `${count(letter.redrives)} times`],
      event && ["Id", h("code", event.id)],
      event?.key !== undefined && ["Key", h("code", event.key)],
      [
        "Event",
        letter.in_topic
          ? h("a", { href: link(["topics", topic], { offset: letter.offset }) }, "in its topic")
          : "no longer in its topic",
      ],
    ]),
    headerTable(event?.headers),
    event && jsonView(raw),
    check,
    view.mayManage &&
      h(
        "div.row",
        button("Redrive…", () => view.redrive([letter.offset])),
        mayEdit && event && button("Mend and redrive…", () => fill(place, editor(letter, raw, view))),
        button("Drop…", () => view.drop([letter.offset])),
      ),
    place,
  );
}

/**
 * Says whether a payload fits the latest schema of the topic.
 * @param {string} topic
 * @param {string} text
 * @param {Element} place
 */
async function show(topic, text, place) {
  try {
    const { version } = await session.http.json(["schemas", topic, "validate"], {
      method: "POST",
      text,
      headers: { "content-type": "application/json" },
    });
    fill(place, version ? h("p.fine", `The payload fits version ${version} of the schema.`) : undefined);
  } catch (error) {
    if (hasCode(error, "unreachable")) return;
    fill(place, hasCode(error, "schema_rejected") ? refusal(error) : h("p.warning", textOf(error)));
  }
}

/**
 * @param {import("../lib/letters.js").Letter} letter
 * @param {string} raw
 * @param {import("./workbench.js").WorkbenchView} view
 */
function editor(letter, raw, view) {
  const text = h("textarea", {
    rows: "12",
    spellcheck: "false",
    "aria-label": "Payload of the new event",
    value: indented(raw),
  });
  const check = h("div", { role: "status" });
  const send = h("button.primary", { type: "button" }, "Publish the mended event…");
  let timer = 0;
  const verify = () => {
    clearTimeout(timer);
    const problem = problemOf(text.value);
    send.disabled = problem !== undefined;
    if (problem) return void fill(check, h("p.warning", `Not JSON yet: ${problem}`));
    timer = window.setTimeout(() => show(view.topic, text.value, check), 350);
  };
  text.addEventListener("input", verify);
  send.addEventListener("click", () => view.redriveEdited(letter, text.value));
  verify();
  return [h("h3", "Mend the payload"), text, check, h("div.row", send)];
}
