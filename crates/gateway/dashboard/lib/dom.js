/**
 * Making elements. Text always becomes text: no function here reads markup.
 * @module
 */

/**
 * Makes an element: `h("a.button", { href }, "Open")`. A name may have classes; a property that begins with `on` is a
 * listener; children that are `undefined`, `null` or `false` are left out.
 * @param {string} name
 * @param {...any} rest Properties, then children.
 * @returns {any}
 */
export function h(name, ...rest) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  if (classes.length > 0) element.className = classes.join(" ");
  if (isProperties(rest[0])) apply(element, rest.shift());
  element.append(...nodes(rest));
  return element;
}

/**
 * Replaces the children of an element.
 * @param {Element} element
 * @param {...any} children
 */
export function fill(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

/**
 * Sets the text of an element if it differs, so that a selection in it survives.
 * @param {Element} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** @param {any} value */
function isProperties(value) {
  return typeof value === "object" && value !== null && !(value instanceof Node) && !Array.isArray(value);
}

/**
 * @param {any} element
 * @param {Record<string, any>} properties
 */
function apply(element, properties) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = `${element.className} ${value}`.trim();
    else if (["value", "checked", "disabled", "hidden", "columns", "items"].includes(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

/**
 * @param {any[]} children
 * @returns {(Node | string)[]}
 */
function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== undefined && child !== null && child !== false)
    .map((child) => (child instanceof Node ? child : String(child)));
}
