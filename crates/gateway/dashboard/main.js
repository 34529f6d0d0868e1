/**
 * The shell of the dashboard: login, navigation, the state of the connection, and the view that the address names.
 * @module
 */

import { fill, h } from "./lib/dom.js";
import { ago, zoneText } from "./lib/format.js";
import { current, link } from "./lib/route.js";
import { session } from "./lib/session.js";
import { textOf } from "./lib/view.js";

/** Views by the first word of their address. */
const VIEWS = {
  "": { title: "Overview", load: () => import("./views/overview.js") },
  topics: { title: "Topics", load: () => import("./views/topics.js") },
  groups: { title: "Groups", load: () => import("./views/groups.js") },
  "dead-letters": { title: "Dead letters", load: () => import("./views/dead_letters.js") },
  schemas: { title: "Schemas", load: () => import("./views/schemas.js") },
  state: { title: "State", load: () => import("./views/state.js") },
  admin: { title: "Admin", load: () => import("./views/admin.js") },
};

const place = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
const main = place("main");
/** Counts the views that were asked for, so that a slow module does not replace a newer view. */
let asked = 0;

/** @returns {keyof typeof VIEWS} */
function wanted() {
  const word = current().path[0] ?? "";
  return Object.hasOwn(VIEWS, word) ? /** @type {keyof typeof VIEWS} */ (word) : "";
}

async function show() {
  if (session.link === "none" && !isResumed) return;
  const turn = ++asked;
  const name = wanted();
  const route = current();
  for (const view of main.querySelectorAll(".view")) /** @type {import("./lib/view.js").View} */ (view).leave();
  for (const item of place("views").querySelectorAll("a")) {
    if (item.dataset.view === name) item.setAttribute("aria-current", "page");
    else item.removeAttribute("aria-current");
    // At phone width the list of views is wider than the page.
    if (item.dataset.view === name) item.scrollIntoView({ inline: "center", block: "nearest" });
  }
  try {
    const { makeView } = await VIEWS[name].load();
    if (turn !== asked) return;
    const view = makeView(route);
    document.title = `${[...route.path.slice(1, 2), VIEWS[name].title].join(" · ")} · Promethean`;
    fill(main, view);
    window.scrollTo(0, 0);
  } catch (error) {
    if (turn === asked) fill(main, h("p.failure", { role: "alert" }, textOf(error)));
  }
}

function showNavigation() {
  const items = Object.entries(VIEWS).filter(([name]) => name !== "admin" || session.rights.isAdmin);
  const entry = (/** @type {[string, {title: string}]} */ [name, { title }]) =>
    h("li", h("a", { href: link(name ? [name] : []), "data-view": name }, title));
  fill(place("views"), items.map(entry));
  const name = session.who.name;
  fill(
    place("footer"),
    h("p.link", { id: "link" }),
    name && h("p.who", { title: (session.who.scopes ?? []).join("\n") }, "Token ", h("b", name), expiry()),
    h("p.quiet", "Times: ", zoneText()),
    h(
      "div.row",
      h("button.small", { type: "button", onclick: changeTheme }, "Light / dark"),
      session.hasToken && h("button.small", { type: "button", onclick: () => session.logout() }, "Log out"),
    ),
  );
  showLink();
}

function expiry() {
  const { expires } = session.who;
  if (expires === undefined || expires === null) return "";
  const at = typeof expires === "number" ? expires : Date.parse(expires);
  return Number.isNaN(at) ? "" : `, ends ${ago(at)}`;
}

function showLink() {
  const text = { open: "Connected", lost: "Connection lost", none: "Connecting…" }[session.link];
  const element = document.getElementById("link");
  if (element) fill(element, h("span.dot", { class: session.link }), text);
  const banner = place("banner");
  if (session.link === "lost") {
    fill(banner, h("p.warning", "The server does not answer. What you see may be old. Trying again…"));
  } else {
    fill(banner);
  }
}

/** Light and dark follow the system until the user chooses. */
function changeTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  try {
    localStorage.setItem("promethean-theme", root.dataset.theme);
  } catch {
    // The choice lasts as long as the page.
  }
  window.dispatchEvent(new Event("themechange"));
}

let isResumed = false;
let wasLost = false;

function enter() {
  isResumed = true;
  document.body.classList.remove("outside");
  showNavigation();
  show();
}

async function showLogin() {
  isResumed = false;
  asked++;
  document.body.classList.add("outside");
  document.title = "Promethean";
  fill(place("banner"));
  const { LoginView } = await import("./views/login.js");
  fill(main, new LoginView(enter));
}

session.addEventListener("state", () => {
  showLink();
  if (session.link === "lost") wasLost = true;
  if (session.link === "open" && wasLost) {
    wasLost = false;
    if (session.dispatchEvent(new Event("back", { cancelable: true }))) show();
  }
});
session.addEventListener("over", showLogin);
addEventListener("hashchange", show);

try {
  const theme = localStorage.getItem("promethean-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // The system decides.
}
document.body.classList.add("outside");
session.resume().then(enter, showLogin);
