/**
 * `<p-chart>`: lines over the last minutes, drawn on a canvas.
 * @module
 */

import { h } from "../lib/dom.js";
import { rate } from "../lib/format.js";

/** @typedef {{at: number, values: (number | undefined)[]}} Point */
/** @typedef {{name: string, color: string}} Line `color` is the name of a custom property. */

export class Chart extends HTMLElement {
  /** @type {Line[]} */
  lines = [];
  /** @type {Point[]} */
  points = [];
  /** How much of the past is shown. */
  spanMs = 5 * 60_000;
  #canvas = h("canvas", { role: "img" });
  #observer = new ResizeObserver(() => this.draw());

  connectedCallback() {
    this.append(this.#canvas);
    this.#observer.observe(this);
    window.addEventListener("themechange", this.draw);
  }

  disconnectedCallback() {
    this.#observer.disconnect();
    window.removeEventListener("themechange", this.draw);
  }

  draw = () => {
    const { width, height } = this.getBoundingClientRect();
    if (width === 0) return;
    const scale = devicePixelRatio || 1;
    const canvas = this.#canvas;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    const style = getComputedStyle(this);
    const now = this.points.at(-1)?.at ?? Date.now();
    const seen = this.points.filter((point) => point.at > now - this.spanMs);
    const most = ceiling(Math.max(1, ...seen.flatMap((point) => point.values.map((value) => value ?? 0))));
    const box = { left: 44, top: 8, right: width - 8, bottom: height - 20 };
    this.#grid(pen, style, box, most);
    const x = (/** @type {number} */ at) => box.right - ((now - at) / this.spanMs) * (box.right - box.left);
    const y = (/** @type {number} */ value) => box.bottom - (value / most) * (box.bottom - box.top);
    this.lines.forEach((line, index) => {
      pen.strokeStyle = style.getPropertyValue(line.color);
      pen.lineWidth = 2;
      pen.lineJoin = "round";
      pen.beginPath();
      let before = -Infinity;
      for (const point of seen) {
        const value = point.values[index];
        if (value === undefined) continue;
        // A gap stays a gap: nothing is known about it.
        if (point.at - before > 15_000) pen.moveTo(x(point.at), y(value));
        else pen.lineTo(x(point.at), y(value));
        before = point.at;
      }
      pen.stroke();
    });
    const last = this.points.at(-1);
    const text = this.lines.map((line, index) => `${line.name} ${rate(last?.values[index])} per second`).join(", ");
    canvas.setAttribute("aria-label", `Rates of the last minutes. Now: ${text}.`);
  };

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {CSSStyleDeclaration} style
   * @param {{left: number, top: number, right: number, bottom: number}} box
   * @param {number} most
   */
  #grid(pen, style, box, most) {
    pen.font = `11px ${style.fontFamily}`;
    pen.fillStyle = style.getPropertyValue("--quiet");
    pen.strokeStyle = style.getPropertyValue("--line");
    pen.lineWidth = 1;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const part of [0, 0.5, 1]) {
      const y = Math.round(box.bottom - part * (box.bottom - box.top)) + 0.5;
      pen.beginPath();
      pen.moveTo(box.left, y);
      pen.lineTo(box.right, y);
      pen.stroke();
      pen.fillText(rate(most * part), box.left - 8, y);
    }
    pen.textBaseline = "alphabetic";
    pen.textAlign = "left";
    pen.fillText(`${Math.round(this.spanMs / 60_000)} min ago`, box.left, box.bottom + 16);
    pen.textAlign = "right";
    pen.fillText("now", box.right, box.bottom + 16);
  }
}
customElements.define("p-chart", Chart);

/**
 * A round number that is at least as large.
 * @param {number} value
 */
function ceiling(value) {
  const unit = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 5, 10].find((factor) => factor * unit >= value) ?? 10;
  return step * unit;
}
