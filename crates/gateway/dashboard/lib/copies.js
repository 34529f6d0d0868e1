/**
 * An event as text to copy: for a shell, for `promethean`, for a program.
 * @module
 */

import { session } from "./session.js";

/** @typedef {import("./events.js").RawEvent} RawEvent */

/**
 * The event as JSON, with its numbers as they are stored.
 * @param {RawEvent} event
 */
export function eventText(event) {
  const { raw, payload, isParsed, ...rest } = /** @type {any} */ (event);
  return `${JSON.stringify(rest).slice(0, -1)},"payload":${raw}}`;
}

/** @param {string} text */
function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** The header that a copied command needs; the token itself is never copied. */
function tokenFlag() {
  return session.hasToken ? ' -H "authorization: Bearer $TOKEN"' : "";
}

/**
 * A line of `curl` that reads the event.
 * @param {RawEvent} event
 * @param {string} topic
 */
export function readRequest(event, topic) {
  const query = new URLSearchParams({ topic, from: "offset", offset: String(event.offset), limit: "1" });
  return `curl -s${tokenFlag()} ${quoted(`${session.address.http}/replay?${query}`)}`;
}

/**
 * A line of `curl` that publishes a copy of the event.
 * @param {RawEvent} event
 * @param {string} topic
 */
export function publishRequest(event, topic) {
  const query = new URLSearchParams();
  if (event.key !== undefined) query.set("key", event.key);
  for (const tag of event.tags ?? []) query.append("tags", tag);
  const text = query.toString();
  const headers = Object.entries(event.headers ?? {}).map(([name, value]) => ` -H ${quoted(`${name}: ${value}`)}`);
  const url = `${session.address.http}/publish/${encodeURIComponent(topic)}${text && `?${text}`}`;
  return `curl -s${tokenFlag()}${headers.join("")} ${quoted(url)} -d ${quoted(event.raw)}`;
}

/**
 * A line of `promethean` that reads the event. The command takes its token from `PROMETHEAN_TOKEN`.
 * @param {RawEvent} event
 * @param {string} topic
 */
export function readCommand(event, topic) {
  return `promethean sub ${quoted(topic)} --from ${event.offset} --limit 1 --url ${quoted(session.address.http)}`;
}

/**
 * A line of `promethean` that publishes a copy of the event.
 * @param {RawEvent} event
 * @param {string} topic
 */
export function publishCommand(event, topic) {
  const flags = [
    `--url=${quoted(session.address.http)}`,
    ...(event.key === undefined ? [] : [`--key=${quoted(event.key)}`]),
    ...(event.tags ?? []).map((tag) => `--tag=${quoted(tag)}`),
    ...Object.entries(event.headers ?? {}).map(([name, value]) => `--header=${quoted(`${name}: ${value}`)}`),
  ];
  // After `--` a negative number is no flag.
  return `promethean pub ${flags.join(" ")} -- ${quoted(topic)} ${quoted(event.raw)}`;
}

/**
 * A program that publishes a copy of the event.
 * @param {RawEvent} event
 * @param {string} topic
 */
export function publishCode(event, topic) {
  const options = Object.fromEntries(
    ["key", "headers", "tags"].filter((name) => name in event).map((name) => [name, /** @type {any} */ (event)[name]]),
  );
  return [
    'import { Client } from "@promethean/client";',
    "",
    `const client = new Client(${JSON.stringify(session.address.ws)}${session.hasToken ? ", { token: process.env.TOKEN }" : ""});`,
    `await client.publish(${JSON.stringify(topic)}, ${event.raw}, ${JSON.stringify(options)});`,
    "await client.close();",
    "",
  ].join("\n");
}
