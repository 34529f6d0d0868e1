/**
 * Admin: connections, tokens, settings in force, the audit, and metrics with what they mean.
 * @module
 */

import { fill, h } from "../lib/dom.js";
import { page, pageBefore } from "../lib/events.js";
import { ago, count, plural, time } from "../lib/format.js";
import { parseMetrics } from "../lib/metrics_text.js";
import { link } from "../lib/route.js";
import { session } from "../lib/session.js";
import { adminList, settings } from "../lib/settings.js";
import { View, hasCode } from "../lib/view.js";
import { makeRows } from "../parts/rows.js";
import { makeTabs } from "../parts/tabs.js";

const PARTS = { connections: "Connections", tokens: "Tokens", config: "Settings", audit: "Audit", metrics: "Metrics" };

export class AdminView extends View {
  /** @param {import("../lib/route.js").Route} route */
  constructor(route) {
    super();
    /** @private */
    this.subject = /** @type {keyof typeof PARTS} */ (
      Object.hasOwn(PARTS, route.path[1] ?? "") ? route.path[1] : "connections"
    );
  }

  build() {
    const tabs = Object.entries(PARTS).map(([name, title]) => ({
      title,
      href: link(["admin", name]),
      isCurrent: name === this.subject,
    }));
    /** @private */
    this.summary = h("p.quiet", { role: "status" }, "Asking the server…");
    this.append(h("div.top", h("h1", "Admin")), makeTabs(tabs, "Parts of the admin view"), this.summary);
    if (!session.rights.isAdmin) return void fill(this.summary, "Only a token with the scope admin sees this.");
    this[this.subject]();
  }

  /** @private */
  connections() {
    const rows = makeRows({
      label: "Connections",
      columns: [
        { title: "Client", width: "minmax(0, 1fr)", cell: (c) => c.name ?? "unknown", sort: (c) => c.name ?? "" },
        { title: "Address", width: "minmax(0, 1fr)", className: "mono", cell: (c) => c.peer, sort: (c) => c.peer },
        { title: "Speaks", width: "100px", cell: (c) => c.protocol, sort: (c) => c.protocol, isWide: true },
        {
          title: "Subscriptions",
          width: "110px",
          className: "number",
          cell: (c) => count(c.subscriptions),
          sort: (c) => c.subscriptions,
          isWide: true,
        },
        {
          title: "Since",
          width: "110px",
          cell: (c) => h("span", { title: time(c.since) }, ago(c.since)),
          sort: (c) => -c.since,
        },
      ],
      empty: "No connections.",
    });
    this.append(rows);
    this.every(5_000, async () => {
      const list = await adminList("connections", "connections", this.signal);
      rows.items = list;
      fill(this.summary, plural(list.length, "open connection"));
    });
  }

  /** @private */
  tokens() {
    const rows = makeRows({
      label: "Tokens",
      columns: [
        { title: "Name", width: "minmax(0, 1fr)", cell: (t) => t.name, sort: (t) => t.name },
        {
          title: "Scopes",
          width: "minmax(0, 3fr)",
          className: "mono",
          cell: (t) => h("span", { title: t.scopes.join("\n") }, t.scopes.join("  ")),
        },
        {
          title: "Ends",
          width: "110px",
          cell: (t) => (t.expires ? ago(t.expires) : "never"),
          sort: (t) => t.expires ?? Infinity,
        },
        { title: "Limits", width: "minmax(0, 1fr)", cell: (t) => limitsText(t.limits), isWide: true },
      ],
      empty: "No listed tokens.",
    });
    this.append(rows);
    this.every(15_000, async () => {
      const list = await adminList("tokens", "tokens", this.signal);
      rows.items = list;
      fill(
        this.summary,
        `${plural(list.length, "listed token")}. Their secrets are known to their owners only; signed tokens are not listed.`,
      );
    });
  }

  /** @private */
  config() {
    const search = h("input", { type: "search", placeholder: "Find a setting", "aria-label": "Find a setting" });
    const rows = makeRows({
      label: "Settings",
      columns: [
        { title: "Setting", width: "minmax(0, 3fr)", className: "mono", cell: (s) => s.key, sort: (s) => s.key },
        {
          title: "Value",
          width: "minmax(0, 2fr)",
          className: "mono",
          cell: (s) => (typeof s.value === "string" ? s.value : JSON.stringify(s.value)),
        },
      ],
      empty: "No settings.",
    });
    /** @type {any[]} */
    let all = [];
    const show = () => (rows.items = all.filter((one) => one.key.includes(search.value.trim())));
    search.addEventListener("input", show);
    this.append(search, rows);
    this.every(60_000, async () => {
      const map = await settings(this.signal);
      all = [...map].map(([key, value]) => ({ key, value }));
      show();
      fill(this.summary, `${plural(all.length, "setting")} in force, without secrets.`);
    });
  }

  /** @private */
  async audit() {
    const rows = makeRows({
      label: "Audit records, newest first",
      columns: [
        { title: "Time", width: "84px", cell: (e) => h("span", { title: time(e.ts) }, shortTime(e.ts)) },
        { title: "Who", width: "minmax(0, 1.2fr)", cell: (e) => String(e.payload?.who ?? e.payload?.from ?? "") },
        { title: "Did", width: "minmax(0, 1.6fr)", cell: (e) => String(e.payload?.what ?? "") },
        { title: "On", width: "minmax(0, 2fr)", cell: (e) => String(e.payload?.on ?? ""), isWide: true },
        { title: "Outcome", width: "minmax(0, 1fr)", cell: (e) => String(e.payload?.outcome ?? "") },
        { title: "Record", width: "minmax(0, 2fr)", className: "mono", cell: (e) => e.raw, isWide: true },
      ],
      empty: "No records.",
    });
    this.append(rows);
    try {
      const configured = (await settings(this.signal).catch(() => undefined))?.get("audit.topic");
      const name = typeof configured === "string" ? configured : "audit.events";
      const info = await session.admin.topic(name, { signal: this.signal }).catch((error) => {
        if (hasCode(error, "unknown_topic", "forbidden")) return undefined;
        throw error;
      });
      if (!info)
        return void fill(
          this.summary,
          "This server writes no audit, or keeps it in another topic. Set ",
          h("code", "audit"),
          " in its configuration.",
        );
      const { events } = await pageBefore(name, info.end, 1000, info.earliest, this.signal);
      rows.items = events.reverse();
      fill(
        this.summary,
        `The last ${plural(events.length, "record")} of `,
        h("a", { href: link(["topics", name]) }, name),
        ".",
      );
      for await (const event of session.reader.follow(name, { signal: this.signal })) {
        const next = await page(name, { from: "offset", offset: event.offset }, 1, this.signal);
        rows.items = [...next.events, ...rows.items].slice(0, 2000);
      }
    } catch (error) {
      if (!this.signal.aborted) this.failed(error);
    }
  }

  /** @private */
  metrics() {
    const search = h("input", { type: "search", placeholder: "Find a metric", "aria-label": "Find a metric" });
    const rows = makeRows({
      label: "Metrics",
      isTall: true,
      columns: [
        { title: "Metric", width: "minmax(0, 3fr)", cell: (f) => [h("code", f.name), h("small", f.help)] },
        { title: "Kind", width: "90px", cell: (f) => f.type, isWide: true },
        { title: "Series", width: "70px", className: "number", cell: (f) => count(f.series), isWide: true },
        { title: "Now", width: "120px", className: "number", cell: (f) => f.value },
      ],
      empty: "No metric has this name.",
    });
    /** @type {any[]} */
    let all = [];
    const show = () =>
      (rows.items = all.filter(
        (one) => one.name.includes(search.value.trim()) || one.help.includes(search.value.trim()),
      ));
    search.addEventListener("input", show);
    this.append(search, rows);
    this.every(5_000, async () => {
      const text = await (await session.http.send(["metrics"], { signal: this.signal })).text();
      all = [...parseMetrics(text).values()].map(metricLine);
      show();
      fill(
        this.summary,
        `${plural(all.length, "metric")}, as Prometheus reads them at `,
        h("code", `${session.address.http}/metrics`),
      );
    });
  }
}
customElements.define("admin-view", AdminView);

/**
 * The clock of today, or the day and the clock.
 * @param {number} ts
 */
function shortTime(ts) {
  const [then, today] = [time(ts), time(Date.now())];
  return then.slice(0, 10) === today.slice(0, 10) ? then.slice(11, 19) : then.slice(5, 16);
}

/** @param {import("../lib/metrics_text.js").Family} family */
function metricLine({ name, help, type, samples }) {
  const isHistogram = type === "histogram";
  const counted = isHistogram ? samples.filter((sample) => sample.name === `${name}_count`) : samples;
  const sum = counted.reduce((all, sample) => all + sample.value, 0);
  return { name, help, type, series: counted.length, value: isHistogram ? `${count(sum)} observed` : count(sum) };
}

/** @param {Record<string, number> | undefined} limits */
function limitsText(limits) {
  const entries = Object.entries(limits ?? {});
  return entries.length > 0
    ? entries.map(([name, value]) => `${name.replaceAll("_", " ")} ${count(value)}`).join(", ")
    : "none";
}

/** @param {import("../lib/route.js").Route} route */
export function makeView(route) {
  return new AdminView(route);
}
