/**
 * Short messages at the edge of the page, and questions before something is changed.
 * @module
 */

import { h } from "../lib/dom.js";
import { textOf } from "../lib/view.js";

const SHOWN_MS = 6_000;

/**
 * Shows a message for a while; screen readers read it.
 * @param {string} text
 * @param {"good" | "bad"} [kind]
 */
export function notice(text, kind = "good") {
  const place = document.getElementById("notices");
  const message = h("p.notice", { class: kind }, text);
  place?.append(message);
  setTimeout(() => message.remove(), kind === "bad" ? 2 * SHOWN_MS : SHOWN_MS);
}

/**
 * @typedef {object} Question
 * @property {string} title What is asked.
 * @property {any[]} body What will happen, with counts.
 * @property {string} action The word on the button.
 * @property {boolean} [isDanger] Whether something is lost.
 * @property {string} [typed] A text that must be typed to go on.
 * @property {Promise<unknown>} [ready] Ends when the body says what will happen; until then nothing can be done.
 * @property {() => Promise<string>} work Does it, and returns what to tell afterwards.
 */

/**
 * Asks before something is changed, does it, and tells how it went. Returns whether it was done.
 * @param {Question} question
 * @returns {Promise<boolean>}
 */
export function ask({ title, body, action, isDanger = false, typed, ready, work }) {
  return new Promise((resolve) => {
    const go = h("button", { class: isDanger ? "danger" : "primary", type: "submit" }, action);
    const cancel = h("button", { type: "button" }, "Cancel");
    const failure = h("p.failure", { role: "alert", hidden: true });
    const word = h("input", { type: "text", id: "typed", autocomplete: "off", spellcheck: "false" });
    if (typed !== undefined) {
      go.disabled = true;
      word.addEventListener("input", () => (go.disabled = word.value !== typed));
    }
    const dialog = h(
      "dialog",
      { "aria-labelledby": "question" },
      h(
        "form",
        h("h2", { id: "question" }, title),
        ...body,
        typed !== undefined && h("label", { for: "typed" }, "Type ", h("code", typed), " to go on"),
        typed !== undefined && word,
        failure,
        h("div.row.end", cancel, go),
      ),
    );
    const fail = (/** @type {unknown} */ error) => {
      failure.hidden = false;
      failure.textContent = textOf(error);
    };
    if (ready) {
      go.disabled = true;
      ready.then(() => (go.disabled = false), fail);
    }
    let isDone = false;
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(isDone);
    });
    cancel.addEventListener("click", () => dialog.close());
    dialog.querySelector("form")?.addEventListener("submit", async (/** @type {Event} */ event) => {
      event.preventDefault();
      go.disabled = true;
      try {
        notice(await work());
        isDone = true;
        dialog.close();
      } catch (error) {
        fail(error);
        go.disabled = false;
      }
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/**
 * Copies a text and says so.
 * @param {string} text
 * @param {string} what
 */
export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    notice(`Copied ${what}.`);
  } catch {
    // Without a secure context there is no clipboard: the user copies by hand.
    const area = h("textarea", { rows: "8", readonly: true, "aria-label": what });
    area.value = text;
    await ask({ title: `Copy ${what}`, body: [area], action: "Close", work: async () => "Closed." });
  }
}
