/**
 * Publishing an event by hand, with help of the topic's schema.
 * @module
 */

import { fill, h } from "../lib/dom.js";
import { count, plural } from "../lib/format.js";
import { indented, problemOf } from "../lib/json_text.js";
import { link } from "../lib/route.js";
import { example } from "../lib/schema_words.js";
import { session } from "../lib/session.js";
import { View, hasCode, textOf } from "../lib/view.js";
import { notice } from "../parts/notice.js";
import { field } from "../parts/tabs.js";

/** How long the user must pause before a payload is checked. */
const PAUSE_MS = 350;

export class PublishView extends View {
  /** @param {{topic: string}} info */
  constructor(info) {
    super();
    /** @private */
    this.topic = info.topic;
  }

  async build() {
    const payload = h("textarea", { rows: "12", spellcheck: "false", value: "{}" });
    const key = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
    const tags = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
    const id = h("input", {
      type: "text",
      autocomplete: "off",
      spellcheck: "false",
      placeholder: "made by the server",
    });
    const headers = h("textarea", { rows: "3", spellcheck: "false", placeholder: "x-region: eu" });
    const check = h("div", { role: "status" }, " ");
    const result = h("div", { role: "status" });
    const button = h("button.primary", { type: "submit" }, "Publish");
    const take = h("button", { type: "button", hidden: true }, "Example from the schema");
    const tidy = h("button", { type: "button" }, "Indent");
    let timer = 0;
    const verify = () => {
      clearTimeout(timer);
      const problem = problemOf(payload.value);
      button.disabled = problem !== undefined;
      if (problem) return void fill(check, h("p.warning", `Not JSON yet: ${problem}`));
      timer = window.setTimeout(() => this.verify(payload.value, check), PAUSE_MS);
    };
    payload.addEventListener("input", verify);
    tidy.addEventListener("click", () => {
      if (problemOf(payload.value) === undefined) payload.value = indented(payload.value);
    });
    const submit = async (/** @type {Event} */ event) => {
      event.preventDefault();
      button.disabled = true;
      try {
        const query = { key: key.value || undefined, tags: tags.value.split(/[\s,]+/).filter(Boolean) };
        const all = {
          ...readHeaders(headers.value),
          ...(id.value.trim() && { "x-event-id": id.value.trim() }),
          "content-type": "application/json",
        };
        const answer = await session.http.json(["publish", this.topic], {
          method: "POST",
          query,
          text: payload.value,
          headers: all,
        });
        const place = h(
          "a",
          { href: link(["topics", this.topic], { offset: answer.offset }) },
          `offset ${count(answer.offset)}`,
        );
        const how =
          { fsync: "It survives a power cut.", os: "It survives a crash of the server." }[
            /** @type {"os"} */ (answer.durability)
          ] ?? "";
        fill(
          result,
          h("p.fine", answer.duplicate ? "The event was there already, at " : "Stored at ", place, `. ${how}`),
        );
        notice("Published.");
      } catch (error) {
        fill(result, refusal(error));
      }
      button.disabled = false;
    };
    this.append(
      h(
        "form.card",
        { onsubmit: submit },
        field("Payload, any JSON; null is a tombstone", payload),
        h("div.row", take, tidy),
        check,
        h(
          "div.fields",
          field("Key", key, "What the event is about"),
          field("Tags", tags, "Words, separated by spaces"),
          field("Id", id, "A UUID; the same id twice is stored once"),
        ),
        field("Headers, one in a line", headers),
        h("div.row", button),
        result,
      ),
    );
    const schema = await session.admin.schema(this.topic, "latest", { signal: this.signal }).catch((error) => {
      if (!hasCode(error, "unknown_schema", "unknown_topic", "not_found", "forbidden")) this.failed(error);
      return undefined;
    });
    if (!schema) return void fill(check, h("p.quiet", "The topic has no schema: every JSON is accepted."));
    take.hidden = false;
    take.addEventListener("click", () => {
      payload.value = JSON.stringify(example(schema.schema), null, 2);
      verify();
    });
    verify();
  }

  /**
   * @private
   * @param {string} text
   * @param {Element} place
   */
  async verify(text, place) {
    try {
      const { version } = await session.http.json(["schemas", this.topic, "validate"], {
        method: "POST",
        text,
        headers: { "content-type": "application/json" },
        signal: this.signal,
      });
      fill(
        place,
        version
          ? h("p.fine", `Fits version ${version} of the schema.`)
          : h("p.quiet", "The topic has no schema: every JSON is accepted."),
      );
    } catch (error) {
      if (this.signal.aborted) return;
      fill(place, hasCode(error, "schema_rejected") ? refusal(error) : undefined);
    }
  }
}
customElements.define("publish-view", PublishView);

/**
 * A refusal, with the places of the payload that break the schema.
 * @param {any} error
 */
export function refusal(error) {
  const violations = error.details?.violations ?? [];
  return h(
    "div.failure",
    { role: "alert" },
    h(
      "p",
      violations.length > 0 ? `${plural(violations.length, "place")} of the payload break the schema:` : textOf(error),
    ),
    violations.length > 0 &&
      h(
        "ul",
        violations.map((/** @type {any} */ one) =>
          h("li", h("code", one.path || "/"), `: ${one.message} (${one.rule})`),
        ),
      ),
  );
}

/** @param {string} text */
function readHeaders(text) {
  /** @type {Record<string, string>} */
  const headers = {};
  for (const line of text.split("\n").filter((line) => line.trim() !== "")) {
    const at = line.indexOf(":");
    if (at < 1) throw new Error(`\`${line}\` is not a header; write name: value`);
    headers[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  return headers;
}
