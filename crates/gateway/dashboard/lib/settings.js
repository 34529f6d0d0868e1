/**
 * The settings of the server that are in force, for admins.
 * @module
 */

import { session } from "./session.js";

/**
 * All pages of a list for admins.
 * @param {"connections" | "tokens" | "config"} name The word of the route.
 * @param {string} list The field of the answer.
 * @param {AbortSignal} signal
 * @param {number} [most]
 * @returns {Promise<any[]>}
 */
export async function adminList(name, list, signal, most = 5_000) {
  const found = [];
  let after;
  do {
    const page = await session.http.json(["admin", name], { query: { after, limit: 1000 }, signal });
    found.push(...page[list]);
    after = page.next;
  } while (after !== undefined && after !== null && found.length < most);
  return found;
}

/**
 * The settings by key.
 * @param {AbortSignal} signal
 * @returns {Promise<Map<string, any>>}
 */
export async function settings(signal) {
  const list = await adminList("config", "settings", signal);
  return new Map(list.map(({ key, value }) => [key, value]));
}
