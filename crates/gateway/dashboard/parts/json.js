/**
 * `<p-json>`: a payload as text, indented and coloured, or as it is stored.
 * @module
 */

import { fill, h } from "../lib/dom.js";
import { bytes } from "../lib/format.js";
import { pretty } from "../lib/json_text.js";

/** Characters that are shown before the user asks for all. */
const SHOWN_MAX = 20_000;

export class JsonText extends HTMLElement {
  #text = "";
  #isRaw = false;
  #isWhole = false;

  /** @param {string} text */
  set text(text) {
    this.#text = text;
    this.#isWhole = false;
    this.#draw();
  }

  connectedCallback() {
    this.#draw();
  }

  #draw() {
    const size = new Blob([this.#text]).size;
    const isCut = !this.#isWhole && this.#text.length > SHOWN_MAX;
    const press = (/** @type {boolean} */ isRaw) => () => {
      this.#isRaw = isRaw;
      this.#draw();
    };
    const choice = (/** @type {string} */ name, /** @type {boolean} */ isRaw) =>
      h("button", { type: "button", "aria-pressed": String(this.#isRaw === isRaw), onclick: press(isRaw) }, name);
    fill(
      this,
      h(
        "div.row.between",
        h(
          "div.choice",
          { role: "group", "aria-label": "Form of the payload" },
          choice("Pretty", false),
          choice("Raw", true),
        ),
        h("span.quiet", bytes(size)),
      ),
      h("pre", { tabindex: "0" }, h("code", this.#isRaw ? this.#raw(isCut) : this.#tokens(isCut))),
      isCut &&
        h(
          "button.small",
          { type: "button", onclick: () => ((this.#isWhole = true), this.#draw()) },
          `Show all ${bytes(size)}`,
        ),
    );
  }

  /** @param {boolean} isCut */
  #raw(isCut) {
    return isCut ? `${this.#text.slice(0, SHOWN_MAX)}…` : this.#text;
  }

  /** @param {boolean} isCut */
  #tokens(isCut) {
    const out = [];
    let length = 0;
    for (const { kind, text } of pretty(this.#text)) {
      length += text.length;
      if (isCut && length > SHOWN_MAX) {
        out.push("…");
        break;
      }
      out.push(kind === "space" || kind === "mark" ? text : h(`span.j-${kind}`, text));
    }
    return out;
  }
}
customElements.define("p-json", JsonText);

/**
 * @param {string} text Valid JSON.
 * @returns {JsonText}
 */
export function jsonView(text) {
  const view = /** @type {JsonText} */ (document.createElement("p-json"));
  view.text = text;
  return view;
}
