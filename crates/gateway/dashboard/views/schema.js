/**
 * The schema of one topic: its versions, their differences in words, and trying a new one.
 * @module
 */

import { fill, h } from "../lib/dom.js";
import { ago, bytes, count, plural } from "../lib/format.js";
import { problemOf } from "../lib/json_text.js";
import { link } from "../lib/route.js";
import { differences } from "../lib/schema_words.js";
import { session } from "../lib/session.js";
import { View, hasCode, textOf } from "../lib/view.js";
import { jsonView } from "../parts/json.js";
import { ask } from "../parts/notice.js";
import { crumb, field } from "../parts/tabs.js";

export class SchemaView extends View {
  /** @param {import("../lib/route.js").Route} route */
  constructor(route) {
    super();
    /** @private */
    this.topic = route.path[1];
    /** @private */
    this.wanted = Number(route.query.get("version") ?? "0");
  }

  async build() {
    const { topic } = this;
    /** @private */
    this.body = h("div.stack", h("p.quiet", "Reading the versions…"));
    this.append(
      crumb(link(["schemas"]), "Schemas"),
      h("div.top", h("h1", topic), h("a", { href: link(["topics", topic]) }, "The topic")),
      this.body,
    );
    try {
      const { versions } = await session.admin.schemas(topic, { signal: this.signal });
      await this.show(versions);
    } catch (error) {
      if (!hasCode(error, "unknown_topic")) return this.failed(error);
      await this.show([]);
    }
  }

  /**
   * @private
   * @param {any[]} versions In ascending order.
   */
  async show(versions) {
    const { topic } = this;
    const shown = versions.find((one) => one.version === this.wanted) ?? versions.at(-1);
    const list = versions.map((one) =>
      h(
        "tr",
        h(
          "td",
          h(
            "a",
            { href: link(["schemas", topic], { version: one.version }), "aria-current": one === shown && "true" },
            `Version ${one.version}`,
          ),
        ),
        h("td", ago(one.created)),
        h("td", one.compat, one.forced && h("span.chip.warn", "forced")),
        h("td", bytes(one.bytes)),
      ),
    );
    fill(
      this.body,
      h(
        "section.card",
        h("h2", plural(versions.length, "version")),
        versions.length === 0
          ? h("p.quiet", "The topic has no schema: every JSON is accepted, unless its settings require a schema.")
          : h(
              "div.scroll",
              h(
                "table.plain",
                h(
                  "thead",
                  h(
                    "tr",
                    ["Version", "Registered", "Had to be", "Size"].map((text) => h("th", { scope: "col" }, text)),
                  ),
                ),
                h("tbody", list),
              ),
            ),
      ),
      shown && (await this.one(shown, versions)),
      session.rights.mayManage(topic) && this.candidate(shown),
    );
  }

  /**
   * @private
   * @param {any} shown
   * @param {any[]} versions
   */
  async one(shown, versions) {
    const { topic, signal } = this;
    const full = await session.admin.schema(topic, shown.version, { signal });
    this.schema = full.schema;
    const before = versions[versions.indexOf(shown) - 1];
    const old = before && (await session.admin.schema(topic, before.version, { signal }));
    const words = old ? differences(old.schema, full.schema) : [];
    return h(
      "section.card",
      h("h2", `Version ${shown.version}`),
      before && h("h3", `Differences from version ${before.version}`),
      before &&
        (words.length > 0
          ? h(
              "ul",
              words.map((text) => h("li", text)),
            )
          : h("p.quiet", "None that can be put in words.")),
      jsonView(JSON.stringify(full.schema)),
    );
  }

  /** @private @param {any} shown */
  candidate(shown) {
    const { topic } = this;
    const text = h("textarea", {
      rows: "14",
      spellcheck: "false",
      value: JSON.stringify(shown ? this.schema : { type: "object", properties: {}, required: [] }, null, 2),
    });
    const result = h("div.stack", { role: "status" });
    const send = (/** @type {string[]} */ path, /** @type {any} */ query) =>
      session.http.json(["schemas", topic, ...path], {
        method: "POST",
        text: text.value,
        query,
        headers: { "content-type": "application/json" },
      });
    const check = async () => {
      const problem = problemOf(text.value);
      if (problem) return void fill(result, h("p.warning", `Not JSON yet: ${problem}`));
      try {
        fill(result, verdict(await send(["check"], {})));
      } catch (error) {
        fill(result, h("p.failure", textOf(error)));
      }
    };
    const register = async () => {
      const dry = await send([], { dry_run: 1 }).catch((error) => error);
      const isRefused = dry instanceof Error;
      if (isRefused)
        return void fill(
          result,
          h("p.failure", textOf(dry)),
          verdict({ compared: /** @type {any} */ (dry).details?.compared ?? [] }),
        );
      const isDone = await ask({
        title: `Register version ${dry.version} of ${topic}?`,
        body: [
          h(
            "p",
            dry.unchanged
              ? "It is equal to the latest version: nothing changes."
              : "From then on a published payload must fit this version. Events that are stored stay as they are.",
          ),
        ],
        action: "Register",
        work: async () => {
          const { version } = await send([], {});
          return `Version ${version} is registered.`;
        },
      });
      if (!isDone) return;
      const { versions } = await session.admin.schemas(topic, { signal: this.signal });
      this.wanted = 0;
      await this.show(versions);
    };
    return h(
      "section.card",
      h("h2", "Try a new version"),
      field("JSON Schema, draft 2020-12 or 7", text),
      h(
        "div.row",
        h("button", { type: "button", onclick: check }, "Check"),
        h("button.primary", { type: "button", onclick: register }, "Register…"),
      ),
      result,
    );
  }
}
customElements.define("schema-view", SchemaView);

/** @param {any} report */
function verdict({ verdict: word, compared }) {
  const kinds = { compatible: "fine", incompatible: "failure", undecidable: "warning" };
  const text = {
    compatible:
      compared.length > 0
        ? "It is compatible: it can be registered."
        : "There is nothing to compare it with: it can be registered.",
    incompatible: "It is incompatible: it would be refused.",
    undecidable: "It cannot be decided whether it is compatible: it would be refused.",
  };
  const finding = (/** @type {any} */ one) =>
    h(
      "li",
      h("code", one.path || "/"),
      ` ${one.rule.replaceAll("_", " ")}. ${one.fix}`,
      "example" in one && [" For example: ", h("code", JSON.stringify(one.example))],
    );
  return [
    word &&
      h(
        "p",
        { class: kinds[/** @type {"compatible"} */ (word)] ?? "hint" },
        text[/** @type {"compatible"} */ (word)] ?? word,
      ),
    compared
      .filter((/** @type {any} */ one) => one.findings.length > 0)
      .map((/** @type {any} */ one) =>
        h(
          "div",
          h("h3", `Compared with version ${count(one.version)}, ${one.direction}: ${one.verdict}`),
          h("ul", one.findings.map(finding)),
        ),
      ),
  ];
}
