/**
 * Links between the parts of a view.
 * @module
 */

import { h } from "../lib/dom.js";

/**
 * @param {{title: string, href: string, isCurrent: boolean}[]} tabs
 * @param {string} label
 */
export function makeTabs(tabs, label) {
  return h(
    "nav.tabs",
    { "aria-label": label },
    tabs.map(({ title, href, isCurrent }) => h("a", { href, "aria-current": isCurrent && "page" }, title)),
  );
}

/**
 * The way to the view above.
 * @param {string} href
 * @param {string} text
 */
export function crumb(href, text) {
  return h("p.crumbs", h("a", { href }, `← ${text}`));
}

/**
 * Names and values.
 * @param {([string, any] | false | null | undefined)[]} facts
 */
export function makeFacts(facts) {
  return h(
    "dl.facts",
    facts.map((fact) => fact && [h("dt", fact[0]), h("dd", fact[1])]),
  );
}

/**
 * A label above its input.
 * @param {string} title
 * @param {any} input
 * @param {string} [about]
 */
export function field(title, input, about) {
  const id = input.id || `f-${Math.random().toString(36).slice(2)}`;
  input.id = id;
  return h("div.field", h("label", { for: id }, title), input, about && h("small.quiet", about));
}
