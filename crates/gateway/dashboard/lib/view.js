/**
 * What all views share: they end their work when they are left, and ask again at intervals while they are seen.
 * @module
 */

import { PrometheanError } from "./client.js";
import { h, setText } from "./dom.js";
import { note } from "./route.js";

/** A view of the dashboard. */
export class View extends HTMLElement {
  #gone = new AbortController();
  #isBuilt = false;
  /** Errors by the part of the view that has them. @type {Map<unknown, string>} */
  #failures = new Map();

  connectedCallback() {
    if (this.#isBuilt) return;
    this.#isBuilt = true;
    this.classList.add("view");
    this.build();
  }

  disconnectedCallback() {
    this.#gone.abort();
  }

  /** Makes the content. */
  build() {}

  /** Ends the work of the view: another one is on its way. */
  leave() {
    this.#gone.abort();
  }

  /**
   * Changes the address to what the view shows, without a new entry in the history. A view that is left does not.
   * @param {Record<string, string | number | undefined | null>} query
   */
  note(query) {
    if (!this.signal.aborted) note(query);
  }

  /** Ends when the view is left. */
  get signal() {
    return this.#gone.signal;
  }

  /**
   * Calls a function now and at intervals, one call at a time, while the page is visible and the view is there.
   * @param {number | (() => number)} ms A function is asked after each call.
   * @param {() => Promise<unknown>} work
   * @returns {() => void} Asks at once.
   */
  every(ms, work) {
    let timer = 0;
    let isBusy = false;
    const run = async () => {
      clearTimeout(timer);
      if (isBusy || this.signal.aborted) return;
      if (document.visibilityState === "hidden") return;
      isBusy = true;
      try {
        await work();
        this.failed(undefined, work);
      } catch (error) {
        if (!this.signal.aborted) this.failed(error, work);
      }
      isBusy = false;
      if (!this.signal.aborted) timer = window.setTimeout(run, typeof ms === "number" ? ms : ms());
    };
    document.addEventListener("visibilitychange", run, { signal: this.signal });
    this.signal.addEventListener("abort", () => clearTimeout(timer));
    run();
    return run;
  }

  /**
   * Shows why something failed, above the content, or takes that away.
   * @param {unknown} error
   * @param {unknown} [part] What failed, where parts of a view fail and recover on their own.
   */
  failed(error, part) {
    // A lost connection is shown for the whole page.
    if (error === undefined || hasCode(error, "unreachable")) this.#failures.delete(part);
    else this.#failures.set(part, textOf(error));
    const place = this.querySelector(":scope > .failure");
    const text = [...new Set(this.#failures.values())].join(" ");
    if (text === "") return void place?.remove();
    if (place) setText(place, text);
    else this.prepend(h("p.failure", { role: "alert" }, text));
  }
}

/**
 * An error as a sentence for people.
 * @param {unknown} error
 */
export function textOf(error) {
  const text = error instanceof Error ? error.message : String(error);
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}

/**
 * Whether an error has one of these codes.
 * @param {unknown} error
 * @param {...string} codes
 */
export function hasCode(error, ...codes) {
  return error instanceof PrometheanError && codes.includes(error.code);
}
