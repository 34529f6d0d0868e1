/**
 * JSON as text. Numbers keep all their digits, which `JSON.parse` would round.
 * @module
 */

/** @typedef {{kind: "key" | "text" | "number" | "word" | "mark" | "space", text: string}} JsonToken */

const SPACE = " \t\n\r";

/**
 * The end of the value that begins at a place of a JSON text.
 * @param {string} text Valid JSON.
 * @param {number} start
 */
export function endOfValue(text, start) {
  let depth = 0;
  for (let at = start; at < text.length; at++) {
    const c = text[at];
    if (c === '"') at = endOfString(text, at) - 1;
    else if (c === "{" || c === "[") depth++;
    else if (c === "}" || c === "]") depth--;
    else if (depth === 0) {
      while (at < text.length && !",]} \t\n\r".includes(text[at])) at++;
      return at;
    }
    if (depth === 0) return at + 1;
  }
  return text.length;
}

/**
 * @param {string} text
 * @param {number} start The place of the first quote.
 */
function endOfString(text, start) {
  for (let at = text.indexOf('"', start + 1); at >= 0; at = text.indexOf('"', at + 1)) {
    let before = at;
    while (text[before - 1] === "\\" && before - 1 > start) before--;
    // A quote after an odd number of backslashes belongs to the string.
    if ((at - before) % 2 === 0) return at + 1;
  }
  return text.length;
}

/**
 * The members of an object, or the items of a list, with the text of each value.
 * @param {string} text
 * @param {number} [start]
 * @returns {{name: string, value: string, at: number}[]}
 */
export function members(text, start = 0) {
  const isObject = text[start] === "{";
  /** @type {{name: string, value: string, at: number}[]} */
  const found = [];
  let at = start + 1;
  while (at < text.length) {
    while (SPACE.includes(text[at]) || text[at] === ",") at++;
    if (text[at] === "}" || text[at] === "]" || at >= text.length) break;
    let name = String(found.length);
    if (isObject) {
      const end = endOfString(text, at);
      name = JSON.parse(text.slice(at, end));
      at = text.indexOf(":", end) + 1;
      while (SPACE.includes(text[at])) at++;
    }
    const end = endOfValue(text, at);
    found.push({ name, value: text.slice(at, end), at });
    at = end;
  }
  return found;
}

/**
 * The tokens of a JSON text with line breaks and indents between them.
 * @param {string} text Valid JSON.
 * @returns {Generator<JsonToken>}
 */
export function* pretty(text) {
  let depth = 0;
  let isKey = false;
  const stack = [];
  const line = () => ({ kind: /** @type {const} */ ("space"), text: `\n${"  ".repeat(depth)}` });
  for (let at = 0; at < text.length;) {
    const c = text[at];
    if (SPACE.includes(c)) {
      at++;
    } else if (c === "{" || c === "[") {
      const close = c === "{" ? "}" : "]";
      let next = at + 1;
      while (SPACE.includes(text[next])) next++;
      if (text[next] === close) {
        yield { kind: "mark", text: c + close };
        at = next + 1;
        continue;
      }
      yield { kind: "mark", text: c };
      stack.push(close);
      depth++;
      isKey = c === "{";
      yield line();
      at++;
    } else if (c === "}" || c === "]") {
      depth--;
      stack.pop();
      yield line();
      yield { kind: "mark", text: c };
      at++;
    } else if (c === ",") {
      yield { kind: "mark", text: c };
      yield line();
      isKey = stack.at(-1) === "}";
      at++;
    } else if (c === ":") {
      yield { kind: "mark", text: ": " };
      isKey = false;
      at++;
    } else if (c === '"') {
      const end = endOfString(text, at);
      yield { kind: isKey ? "key" : "text", text: text.slice(at, end) };
      at = end;
    } else {
      const end = Math.max(at + 1, endOfValue(text, at));
      const word = text.slice(at, end);
      yield { kind: /^[-\d]/.test(word) ? "number" : "word", text: word };
      at = end;
    }
  }
}

/**
 * A JSON text with line breaks.
 * @param {string} text
 */
export function indented(text) {
  let out = "";
  for (const token of pretty(text)) out += token.text;
  return out;
}

/**
 * Why a text is not JSON, with line and column; `undefined` if it is.
 * @param {string} text
 */
export function problemOf(text) {
  try {
    JSON.parse(text);
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message.replace(/^JSON\.parse: /, "") : String(error);
  }
}
