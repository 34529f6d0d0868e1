/**
 * The address of a view: `#/topics/orders.placed?offset=7`. Every view that can be shared has one.
 * @module
 */

/** @typedef {{path: string[], query: URLSearchParams}} Route */

/** @returns {Route} */
export function current() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { path: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

/** @param {string} word */
function decode(word) {
  try {
    return decodeURIComponent(word);
  } catch {
    return word;
  }
}

/**
 * The link to a view.
 * @param {string[]} path
 * @param {Record<string, string | number | undefined | null>} [query] What is empty is left out.
 */
export function link(path, query = {}) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") params.set(name, String(value));
  }
  const text = params.toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text && `?${text}`}`;
}

/**
 * Shows a view.
 * @param {string[]} path
 * @param {Record<string, string | number | undefined | null>} [query]
 */
export function go(path, query) {
  location.hash = link(path, query);
}

/**
 * Changes the address of the present view without a new entry in the history.
 * @param {Record<string, string | number | undefined | null>} query
 */
export function note(query) {
  history.replaceState(null, "", link(current().path, query));
}
