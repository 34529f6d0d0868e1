/**
 * `<p-time>`: a slider over time, with a field for an exact time. Its far end is now.
 * @module
 */

import { h, setText } from "../lib/dom.js";
import { ago, time } from "../lib/format.js";

/** Steps of the slider. */
const STEPS = 1_000;

export class TimeSlider extends HTMLElement {
  /** @type {number} */
  from = Date.now() - 3_600_000;
  /** The chosen time; `undefined` is now. @type {number | undefined} */
  at = undefined;
  label = "Time";
  /** Called when a time was chosen. @type {(() => void) | undefined} */
  onchoose;
  #range = h("input", { type: "range", min: "0", max: String(STEPS), step: "1" });
  #exact = h("input", { type: "datetime-local", step: "0.001" });
  #text = h("output");
  #timer = 0;

  connectedCallback() {
    this.#range.setAttribute("aria-label", this.label);
    this.#exact.setAttribute("aria-label", `${this.label}, exactly`);
    const now = h("button.small", { type: "button", onclick: () => this.choose(undefined) }, "Now");
    this.append(h("div.row.between", h("b", this.label), this.#text, h("div.row", this.#exact, now)), this.#range);
    this.#range.addEventListener("input", () => {
      const part = Number(this.#range.value) / STEPS;
      const end = Date.now();
      this.at = part >= 1 ? undefined : Math.round(this.from + part * (end - this.from));
      this.#show(false);
      clearTimeout(this.#timer);
      this.#timer = window.setTimeout(() => this.onchoose?.(), 120);
    });
    this.#exact.addEventListener("change", () => {
      const at = Date.parse(this.#exact.value);
      if (!Number.isNaN(at)) this.choose(at);
    });
    this.#show(true);
  }

  /** @param {number | undefined} at */
  choose(at) {
    this.at = at;
    this.#show(true);
    this.onchoose?.();
  }

  /** @param {boolean} isMoved Whether the slider must follow. */
  #show(isMoved) {
    const { at } = this;
    const end = Date.now();
    if (isMoved)
      this.#range.value = String(
        at === undefined ? STEPS : Math.max(0, Math.round(((at - this.from) / (end - this.from)) * STEPS)),
      );
    this.#exact.value = at === undefined ? "" : time(at).replace(" ", "T");
    setText(this.#text, at === undefined ? "now" : `${time(at)}, ${ago(at)}`);
    this.#range.setAttribute("aria-valuetext", at === undefined ? "now" : time(at));
  }
}
customElements.define("p-time", TimeSlider);

/**
 * @param {{label: string, from: number, at?: number, onchoose: () => void}} options
 * @returns {TimeSlider}
 */
export function makeSlider({ label, from, at, onchoose }) {
  const slider = /** @type {TimeSlider} */ (document.createElement("p-time"));
  Object.assign(slider, { label, from, at, onchoose });
  return slider;
}
