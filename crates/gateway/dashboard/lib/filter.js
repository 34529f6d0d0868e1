/**
 * Filters for events, written as words: `key=customer-1 tag=web payload.total=12.5`. All words must match.
 * @module
 */

/** Examples that the user can take. */
export const EXAMPLES = [
  { text: "key=customer-1", means: "the key is customer-1" },
  { text: "key^=customer-", means: "the key begins with customer-" },
  { text: "header.x-region=eu", means: "the header x-region is eu" },
  { text: "tag=web", means: "the tag web is there" },
  { text: "payload.status=paid", means: "the field status of the payload is paid" },
  { text: "payload.items.0.name~lamp", means: "the name of the first item contains lamp" },
  { text: 'payload~"out of stock"', means: "the payload contains this text somewhere" },
];

const WORD = /\s*([a-z]+(?:\.[^=~^\s]+)?)(\^=|=|~)("(?:[^"\\]|\\.)*"|\S*)/gy;
const FIELDS = new Set(["key", "header", "tag", "payload", "id"]);

/** @typedef {{field: string, path: string[], relation: "=" | "^=" | "~", value: string}} Rule */

/**
 * Reads a filter. Throws with what is wrong and an example.
 * @param {string} text
 * @returns {Rule[]}
 */
export function parseFilter(text) {
  const rules = [];
  let at = 0;
  while (text.slice(at).trim() !== "") {
    WORD.lastIndex = at;
    const match = WORD.exec(text);
    const [field, ...path] = match?.[1].split(".") ?? [];
    if (!match || !FIELDS.has(field)) {
      const rest = text.slice(at).trim().split(/\s/)[0];
      throw new Error(`\`${rest}\` is not a filter; write, for example, key=customer-1 or payload.status=paid`);
    }
    if (field === "header" && path.length === 0) throw new Error("a header needs its name: header.x-region=eu");
    const value = match[3].startsWith('"') ? JSON.parse(match[3]) : match[3];
    // Names of headers have dots too.
    const names = field === "header" ? [path.join(".")] : path;
    rules.push({ field, path: names, relation: /** @type {"="} */ (match[2]), value });
    at = WORD.lastIndex;
  }
  return rules;
}

/**
 * Whether an event fits all rules.
 * @param {Rule[]} rules
 * @param {any} event
 */
export function fits(rules, event) {
  return rules.every((rule) => valuesOf(rule, event).some((value) => holds(rule, value)));
}

/**
 * @param {Rule} rule
 * @param {any} event
 * @returns {unknown[]}
 */
function valuesOf({ field, path }, event) {
  if (field === "tag") return event.tags ?? [];
  if (field === "header") return [event.headers?.[path[0]]];
  if (field !== "payload") return [event[field]];
  let value = event.payload;
  for (const name of path) value = value !== null && typeof value === "object" ? value[name] : undefined;
  return [value];
}

/**
 * @param {Rule} rule
 * @param {unknown} value
 */
function holds({ relation, value: wanted }, value) {
  if (value === undefined) return false;
  const text = typeof value === "string" ? value : JSON.stringify(value);
  if (relation === "=") return text === wanted;
  return relation === "^=" ? text.startsWith(wanted) : text.includes(wanted);
}

const KEPT = "promethean-filters";

/**
 * The filters that the user saved in this browser.
 * @returns {string[]}
 */
export function savedFilters() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEPT) ?? "[]");
    return Array.isArray(kept) ? kept.filter((text) => typeof text === "string") : [];
  } catch {
    return [];
  }
}

/**
 * Saves a filter, or forgets a saved one.
 * @param {string} text
 * @param {boolean} isKept
 */
export function saveFilter(text, isKept) {
  const others = savedFilters().filter((other) => other !== text);
  try {
    localStorage.setItem(KEPT, JSON.stringify(isKept ? [text, ...others].slice(0, 50) : others));
  } catch {
    // A browser that keeps nothing.
  }
}
