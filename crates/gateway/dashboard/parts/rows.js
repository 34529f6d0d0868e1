/**
 * `<p-rows>`: a table that shows any number of rows, and keeps elements only for the rows in view.
 * @module
 */

import { h } from "../lib/dom.js";

/** A table that is less wide leaves columns out. */
const NARROW_PX = 640;
/** Rows above and below the visible ones that have elements too. */
const MARGIN = 6;

/**
 * @typedef {object} Column
 * @property {string} title
 * @property {string} width As in `grid-template-columns`.
 * @property {(item: any) => string | Node | (string | Node | undefined | false)[]} cell
 * @property {string} [className]
 * @property {boolean} [isWide] Left out where the page is narrow.
 * @property {(item: any) => string | number} [sort] Makes the column sortable.
 */

export class Rows extends HTMLElement {
  /** @type {Column[]} */
  #columns = [];
  /** @type {any[]} */
  #items = [];
  /** @type {any[]} */
  #given = [];
  /** @type {Map<number, HTMLElement>} */
  #elements = new Map();
  #focused = 0;
  /** @type {{column: Column, isDown: boolean} | undefined} */
  #sorted;
  #head = h("div.head", { role: "row" });
  #space = h("div.space", { role: "rowgroup" });
  #none = h("p.none");
  #isNarrow = false;
  #watcher = new ResizeObserver(() => {
    const isNarrow = this.clientWidth < NARROW_PX;
    if (isNarrow === this.#isNarrow) return this.#draw();
    this.#isNarrow = isNarrow;
    this.#layout();
  });
  /** Called with the item of a row that is opened. @type {((item: any) => void) | undefined} */
  onpick;
  /** Called when the last row comes into view. @type {(() => void) | undefined} */
  onend;
  /** What tells an item from others, to mark the chosen one. @type {(item: any) => unknown} */
  keyOf = (item) => item;
  /** @type {unknown} */
  #chosen;
  /** The text when there are no rows. */
  empty = "There is nothing here.";
  /** The name for screen readers. */
  label = "";

  connectedCallback() {
    this.setAttribute("role", "grid");
    if (this.label) this.setAttribute("aria-label", this.label);
    this.append(h("div.heads", { role: "rowgroup" }, this.#head), this.#space, this.#none);
    this.addEventListener("scroll", () => this.#draw(), { passive: true });
    this.addEventListener("keydown", (event) => this.#key(event));
    this.addEventListener("click", (event) => this.#click(event));
    this.#watcher.observe(this);
    this.#isNarrow = this.clientWidth < NARROW_PX;
    this.#layout();
  }

  disconnectedCallback() {
    this.#watcher.disconnect();
  }

  /** @param {Column[]} columns */
  set columns(columns) {
    this.#columns = columns;
    this.#layout();
  }

  /** @param {any[]} items */
  set items(items) {
    this.#given = items;
    this.#arrange();
  }

  get items() {
    return this.#items;
  }

  /** @param {unknown} key The key of the item that is marked. */
  set chosen(key) {
    this.#chosen = key;
    this.#draw();
  }

  /** Scrolls to the first row. */
  scrollToStart() {
    this.scrollTop = 0;
  }

  /**
   * Marks the row of an item and scrolls it into view.
   * @param {unknown} key
   */
  reveal(key) {
    this.chosen = key;
    const index = this.#items.findIndex((item) => this.keyOf(item) === key);
    if (index < 0) return;
    this.#focused = index;
    const top = index * this.#height;
    const isSeen = top >= this.scrollTop && top < this.scrollTop + this.clientHeight - 2 * this.#height;
    if (!isSeen) this.scrollTop = Math.max(0, top - this.clientHeight / 3);
    this.#draw();
  }

  get #visible() {
    return this.#isNarrow ? this.#columns.filter((column) => !column.isWide) : this.#columns;
  }

  get #height() {
    return this.hasAttribute("tall") ? 56 : 38;
  }

  #layout = () => {
    if (!this.isConnected) return;
    const columns = this.#visible;
    this.style.setProperty("--columns", columns.map((column) => column.width).join(" "));
    this.setAttribute("aria-colcount", String(columns.length));
    this.#head.replaceChildren(...columns.map((column) => this.#title(column)));
    const hadFocus = this.#space.contains(document.activeElement);
    for (const element of this.#elements.values()) element.remove();
    this.#elements.clear();
    this.#draw();
    if (hadFocus) this.#elements.get(this.#focused)?.focus();
  };

  /** @param {Column} column */
  #title(column) {
    const cell = h("div", { role: "columnheader", class: column.className });
    if (!column.sort) {
      cell.textContent = column.title;
      return cell;
    }
    const state = this.#sorted?.column === column ? (this.#sorted.isDown ? "descending" : "ascending") : "none";
    cell.setAttribute("aria-sort", state);
    const mark = { none: "", ascending: " ↑", descending: " ↓" }[state];
    const press = () => {
      const wasDown = this.#sorted?.column === column && this.#sorted.isDown;
      this.#sorted = { column, isDown: !wasDown };
      this.#arrange();
      this.#layout();
    };
    cell.append(h("button", { type: "button", onclick: press }, column.title + mark));
    return cell;
  }

  #arrange() {
    this.#items = this.#given;
    if (this.#sorted?.column.sort) {
      const { isDown, column } = this.#sorted;
      const by = /** @type {(item: any) => any} */ (column.sort);
      this.#items = [...this.#given].sort((a, b) => (by(a) < by(b) ? -1 : by(a) > by(b) ? 1 : 0) * (isDown ? -1 : 1));
    }
    this.setAttribute("aria-rowcount", String(this.#items.length + 1));
    this.#draw();
  }

  #draw() {
    if (!this.isConnected) return;
    const height = this.#height;
    this.#space.style.height = `${this.#items.length * height}px`;
    const seen = Math.max(this.clientHeight, 200);
    const first = Math.max(0, Math.floor(this.scrollTop / height) - MARGIN);
    const last = Math.min(this.#items.length, Math.ceil((this.scrollTop + seen) / height) + MARGIN);
    for (const [index, element] of this.#elements) {
      if (index < first || index >= last) {
        element.remove();
        this.#elements.delete(index);
      }
    }
    for (let index = first; index < last; index++) this.#row(index, height);
    this.#none.hidden = this.#items.length > 0;
    if (this.#items.length === 0) this.#none.textContent = this.empty;
    if (last === this.#items.length && this.#items.length > 0) this.onend?.();
  }

  /**
   * @param {number} index
   * @param {number} height
   */
  #row(index, height) {
    const item = this.#items[index];
    const columns = this.#visible;
    let row = this.#elements.get(index);
    if (!row) {
      row = /** @type {HTMLElement} */ (
        h(
          "div.line",
          { role: "row", "aria-rowindex": index + 2, "data-index": index },
          columns.map((column) => h("div", { role: "gridcell", class: column.className })),
        )
      );
      row.style.top = `${index * height}px`;
      row.style.height = `${height}px`;
      this.#elements.set(index, row);
      this.#space.append(row);
    }
    row.tabIndex = index === Math.min(this.#focused, this.#items.length - 1) ? 0 : -1;
    const isChosen = this.#chosen !== undefined && this.keyOf(item) === this.#chosen;
    row.toggleAttribute("data-chosen", isChosen);
    row.setAttribute("aria-selected", String(isChosen));
    columns.forEach((column, place) => {
      const content = column.cell(item);
      const cell = /** @type {HTMLElement} */ (row.children[place]);
      if (typeof content === "string") {
        if (cell.textContent !== content || cell.firstElementChild) cell.textContent = content;
      } else {
        const parts = (Array.isArray(content) ? content : [content]).filter(
          (part) => part !== undefined && part !== false,
        );
        cell.replaceChildren(.../** @type {(string | Node)[]} */ (parts));
      }
    });
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };
    const step = steps[/** @type {keyof typeof steps} */ (event.key)];
    const row = /** @type {HTMLElement} */ (event.target);
    if (row.getAttribute("role") !== "row") return;
    if (event.key === "Enter") return this.#pick(Number(row.dataset.index));
    if (step === undefined) return;
    event.preventDefault();
    this.#focused = Math.max(0, Math.min(this.#items.length - 1, Number(row.dataset.index) + step));
    const top = this.#focused * this.#height;
    if (top < this.scrollTop) this.scrollTop = top;
    const lowest = this.scrollTop + this.clientHeight - 2 * this.#height;
    if (top > lowest) this.scrollTop += top - lowest;
    this.#draw();
    this.#elements.get(this.#focused)?.focus();
  }

  /** @param {MouseEvent} event */
  #click(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (target.closest("a, button, input, label")) return;
    const row = /** @type {HTMLElement | null} */ (target.closest("[data-index]"));
    if (row && String(getSelection()) === "") this.#pick(Number(row.dataset.index));
  }

  /** @param {number} index */
  #pick(index) {
    this.#focused = index;
    this.#draw();
    const item = this.#items[index];
    if (item !== undefined) this.onpick?.(item);
  }
}
customElements.define("p-rows", Rows);

/**
 * Makes a table.
 * @param {{label: string, columns: Column[], empty?: string, isTall?: boolean, keyOf?: (item: any) => unknown,
 *   onpick?: (item: any) => void, onend?: () => void}} options
 * @returns {Rows}
 */
export function makeRows({ label, columns, empty, isTall, keyOf, onpick, onend }) {
  const rows = /** @type {Rows} */ (document.createElement("p-rows"));
  rows.label = label;
  if (isTall) rows.setAttribute("tall", "");
  if (empty !== undefined) rows.empty = empty;
  if (keyOf) rows.keyOf = keyOf;
  rows.onpick = onpick;
  rows.onend = onend;
  rows.columns = columns;
  return rows;
}
