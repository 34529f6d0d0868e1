// The dashboard in a real Chromium, against a real server.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { after } from "node:test";
import puppeteer from "puppeteer-core";
import { until } from "../../clients/typescript/test/support/wait.js";

export { startServer } from "../../clients/typescript/test/support/server.js";
export { sleep, until } from "../../clients/typescript/test/support/wait.js";
export { Admin, Client } from "../../clients/typescript/src/index.js";

const FOLDER = new URL("../../crates/gateway/dashboard/", import.meta.url);
const CLIENT = new URL("../../clients/typescript/src/", import.meta.url);
/** With DASHBOARD_FROM=folder the page loads the files of the folder, so that a change needs no build of the server. */
export const IS_FROM_FOLDER = process.env.DASHBOARD_FROM === "folder";
const TYPES = { html: "text/html", js: "text/javascript", css: "text/css", svg: "image/svg+xml" };
/** The browser logs these by itself when the server refuses a request. */
const EXPECTED = /Failed to load resource|WebSocket connection to .* failed/;

let browser;
after(async () => (await browser)?.close());

let description;
/** The description of the API that the server gives, asked for once. */
export async function descriptionOf(server) {
  description ??= await (await fetch(`${server.http}/openapi.json`)).json();
  return description;
}

/** What of a request the description of the API does not have; `undefined` for a public request. */
export function unknownPart({ paths }, method, url) {
  const { pathname, searchParams } = new URL(url);
  const fits = (path) => new RegExp(`^${path.replace(/\{[^}]+\}/g, "[^/]+")}$`).test(pathname);
  const route = Object.keys(paths).sort(byBraces).find(fits);
  const operation = paths[route]?.[method.toLowerCase()];
  if (!operation) return `${method} ${pathname}`;
  // A list is filtered by the fields of its collection, which only the collection knows.
  if (/\/list$/.test(route)) return undefined;
  const names = (operation.parameters ?? []).filter((one) => one.in === "query").map((one) => one.name);
  const unknown = [...searchParams.keys()].find((name) => !names.includes(name));
  return unknown && `${method} ${pathname}: ${unknown}`;
}

const byBraces = (a, b) => a.split("{").length - b.split("{").length;

function chromium() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  const find = "command -v chromium || command -v chromium-browser || command -v google-chrome";
  return execFileSync("sh", ["-c", find]).toString().trim();
}

async function launch() {
  browser ??= puppeteer.launch({
    executablePath: chromium(),
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-dev-shm-usage",
      // A page that the test serves counts as one of another network.
      ...(IS_FROM_FOLDER ? ["--disable-features=LocalNetworkAccessChecks,LocalNetworkAccessChecksWebSockets"] : []),
    ],
  });
  return browser;
}

/**
 * Opens the dashboard in a browser profile of its own. Errors of the page, and requests that are not in the public
 * description of the API, fail the test. `page.requests` has every request, as `GET /topics`.
 * `isWide`: whether the page is as wide as a desktop's; `token`: what a login of this tab has kept; `answers`: answers
 * that no server gives at will, by path; `script`: a function that the page runs before its own code.
 */
export async function openDashboard(
  t,
  server,
  { hash = "#/", token, isWide = true, isDark = false, answers, script } = {},
) {
  const context = await (await launch()).createBrowserContext();
  const page = await context.newPage();
  page.errors = [];
  page.requests = new Set();
  const api = await descriptionOf(server);
  page.on("request", (request) => {
    const url = request.url();
    // The browser draws its own icons.
    if (url.startsWith("data:")) return;
    if (!url.startsWith(server.http)) return void page.errors.push(`a request to ${url}`);
    page.requests.add(`${request.method()} ${new URL(url).pathname}`);
    const unknown = unknownPart(api, request.method(), url);
    if (unknown) page.errors.push(`not in /openapi.json: ${unknown}`);
  });
  page.on("pageerror", (error) => page.errors.push(String(error)));
  page.on("console", (message) => {
    const text = message.text();
    if (["error", "warn"].includes(message.type()) && !EXPECTED.test(text)) page.errors.push(text);
  });
  page.on("dialog", (dialog) => {
    page.errors.push(`a dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  t.after(async () => {
    await context.close();
    assert.deepEqual(page.errors, []);
  });
  await page.setViewport(isWide ? { width: 1360, height: 860 } : { width: 390, height: 844 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: isDark ? "dark" : "light" }]);
  if (IS_FROM_FOLDER) await serveFolder(page);
  if (answers) await page.evaluateOnNewDocument(answerInstead, answers);
  if (script) await page.evaluateOnNewDocument(script);
  if (token) await page.evaluateOnNewDocument((text) => sessionStorage.setItem("promethean-token", text), token);
  await page.goto(`${server.http}/${hash}`);
  return page;
}

function answerInstead(answers) {
  const real = globalThis.fetch;
  globalThis.fetch = async (url, init) => {
    const answer = answers[new URL(url).pathname];
    if (answer === undefined) return real(url, init);
    return new Response(typeof answer === "string" ? answer : JSON.stringify(answer));
  };
}

async function serveFolder(page) {
  await page.setRequestInterception(true);
  page.on("request", (request) => {
    const { pathname } = new URL(request.url());
    const isPage = pathname === "/" && request.isNavigationRequest();
    if (!isPage && !pathname.startsWith("/dashboard/")) return request.continue();
    const path = isPage ? "index.html" : pathname.slice("/dashboard/".length);
    const file = path.startsWith("src/") ? new URL(path.slice(4), CLIENT) : new URL(path, FOLDER);
    if (!existsSync(file)) return request.respond({ status: 404 });
    return request.respond({ contentType: TYPES[path.split(".").pop()], body: readFileSync(file) });
  });
}

/** All text that the page shows. */
export const textOf = (page, selector = "body") => page.$eval(selector, (element) => element.innerText);

/** Waits until the page shows a text. */
export async function sees(page, text, selector = "body") {
  const has = async () => (await textOf(page, selector).catch(() => "")).includes(text);
  try {
    await until(has, { timeoutMs: 15_000 });
  } catch {
    const shown = await textOf(page, selector).catch(() => "(nothing)");
    throw new Error(`the page does not show ${JSON.stringify(text)}, but: ${shown}`);
  }
}

/** Waits until the page no longer shows a text. */
export const losesSight = (page, text) => until(async () => !(await textOf(page)).includes(text), { what: text });

/** Presses the first visible button or link with this text. */
export async function press(page, text, within = "body") {
  const find = (wanted, root) => {
    const all = [...document.querySelectorAll(`${root} :is(button, a, summary)`)];
    const fits = (element) => element.innerText.trim() === wanted && element.checkVisibility() && !element.disabled;
    const element = all.find(fits);
    element?.click();
    return element !== undefined;
  };
  await until(() => page.evaluate(find, text, within), { what: `a button ${JSON.stringify(text)}`, timeoutMs: 15_000 });
}

/** Fills the field with this label, and tells the page as typing does. */
export async function write(page, label, value, within = "body") {
  const fill = (wanted, text, root) => {
    const named = (element) =>
      element.getAttribute("aria-label") === wanted || element.labels?.[0]?.innerText.trim() === wanted;
    const element = [...document.querySelectorAll(`${root} :is(input, textarea, select)`)].find(named);
    if (!element) return false;
    if (element.type === "checkbox") element.checked = text;
    else element.value = text;
    element.dispatchEvent(new Event("input", { bubbles: true }));
    element.dispatchEvent(new Event("change", { bubbles: true }));
    return true;
  };
  await until(() => page.evaluate(fill, label, value, within), { what: `a field ${JSON.stringify(label)}` });
}

/** Shows another view. */
export const visit = (page, hash) => page.evaluate((to) => void (location.hash = to), hash);

/** Publishes payloads, with the options of each. */
export async function publish(server, topic, payload, { query = "", headers = {}, token } = {}) {
  const response = await fetch(`${server.http}/publish/${topic}?${query}`, {
    method: "POST",
    headers: { ...headers, ...(token && { authorization: `Bearer ${token}` }) },
    body: typeof payload === "string" ? payload : JSON.stringify(payload),
  });
  assert.equal(response.status, 200, await response.clone().text());
  return response.json();
}

/** Publishes many payloads in one commit. */
export async function publishMany(server, topic, payloads) {
  for (let at = 0; at < payloads.length; at += 1000) {
    const lines = payloads.slice(at, at + 1000).map((payload) => JSON.stringify({ payload }));
    const response = await fetch(`${server.http}/publish/${topic}/batch`, { method: "POST", body: lines.join("\n") });
    assert.equal(response.status, 200);
  }
}

/** The rows of a table that have elements, as lists of texts. */
export const rowsOf = (page, label) =>
  page.$$eval(`p-rows[aria-label="${label}"] .line`, (lines) =>
    [...lines]
      .sort((a, b) => Number(a.dataset.index) - Number(b.dataset.index))
      .map((line) => [...line.children].map((cell) => cell.innerText.trim())),
  );
