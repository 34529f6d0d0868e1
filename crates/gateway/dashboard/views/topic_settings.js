/**
 * The settings of a topic, and its deletion.
 * @module
 */

import { h } from "../lib/dom.js";
import { bytes, count, plural } from "../lib/format.js";
import { go } from "../lib/route.js";
import { session } from "../lib/session.js";
import { View } from "../lib/view.js";
import { ask } from "../parts/notice.js";
import { field } from "../parts/tabs.js";

const COMPAT = ["none", "backward", "forward", "full", "backward_transitive", "forward_transitive", "full_transitive"];

export class TopicSettingsView extends View {
  /** @param {any} info */
  constructor(info) {
    super();
    /** @private */
    this.info = info;
  }

  build() {
    const { topic, settings } = this.info;
    const may = session.rights.mayManage(topic);
    const text = (/** @type {any} */ value, placeholder = "") =>
      h("input", { type: "text", value: value ?? "", placeholder, disabled: !may, autocomplete: "off" });
    const choice = (/** @type {string[]} */ words, /** @type {any} */ value) => {
      const select = h(
        "select",
        { disabled: !may },
        words.map((word) => h("option", { value: word }, word === "" ? "the server's" : word)),
      );
      select.value = value ?? words[0];
      return select;
    };
    const retention = settings.retention ?? {};
    const inputs = {
      age: text(retention.age, "7d"),
      bytes: text(retention.bytes),
      count: text(retention.count),
      compacted: h("input", { type: "checkbox", checked: settings.compacted, disabled: !may }),
      partitions: text(settings.partitions),
      dedupe_window: text(settings.dedupe_window, "1d"),
      durability: choice(["", "fsync", "os"], settings.durability),
      schema: choice(["optional", "required", "off"], settings.schema),
      compat: choice(COMPAT, settings.compat ?? "backward"),
      undeclared: choice(["any", "absent"], settings.undeclared),
      max_attempts: text(settings.max_attempts),
    };
    const submit = (/** @type {Event} */ event) => {
      event.preventDefault();
      this.save(read(inputs));
    };
    this.append(
      h(
        "form.card",
        { onsubmit: submit },
        h("h2", "Retention"),
        h(
          "div.fields",
          field("Age", inputs.age, "Such as 7d or 12h; empty keeps everything"),
          field("Bytes", inputs.bytes),
          field("Events", inputs.count),
        ),
        h("label.check", inputs.compacted, "Compacted: only the latest event of each key is kept"),
        h("h2", "Publishing"),
        h(
          "div.fields",
          field("Durability", inputs.durability, "fsync survives a power cut, os a crash"),
          field("Recognises a repeated id for", inputs.dedupe_window),
          field("Partitions", inputs.partitions, "Labels for routing keys"),
          field("Attempts before a dead letter", inputs.max_attempts),
        ),
        h("h2", "Schema"),
        h(
          "div.fields",
          field("Payloads", inputs.schema),
          field("A new version must be", inputs.compat),
          field("Properties that a schema does not name", inputs.undeclared),
        ),
        may
          ? h("div.row", h("button.primary", { type: "submit" }, "Save"))
          : h(
              "p.hint",
              "Your token may not change the settings: it lacks the scope ",
              h("code", `manage:${topic}`),
              ".",
            ),
      ),
      may &&
        h(
          "section.card",
          h("h2", "Delete the topic"),
          h("p.quiet", "With its events, groups, dead letters and schemas."),
          h("div.row", h("button.danger", { type: "button", onclick: () => this.askToDelete() }, "Delete…")),
        ),
    );
  }

  /**
   * @private
   * @param {any} settings
   */
  async save(settings) {
    const { topic } = this.info;
    const before = flat(this.info.settings);
    const after = flat(settings);
    const changed = [...new Set([...Object.keys(before), ...Object.keys(after)])].filter(
      (name) => String(before[name] ?? "") !== String(after[name] ?? ""),
    );
    const isDone = await ask({
      title: `Change the settings of ${topic}?`,
      body: [
        changed.length === 0
          ? h("p", "Nothing is different.")
          : h(
              "ul",
              changed.map((name) =>
                h("li", h("code", name), `: ${before[name] ?? "default"} becomes ${after[name] ?? "default"}`),
              ),
            ),
        changed.some((name) => name.startsWith("retention") || name === "compacted") &&
          h(
            "p.warning",
            `Retention and compaction remove events for good. The topic has ${count(this.info.end - this.info.earliest)} events now.`,
          ),
      ],
      action: "Save",
      work: async () => {
        this.info = await session.admin.setTopic(topic, settings);
        return "Saved.";
      },
    });
    if (isDone) {
      this.replaceChildren();
      this.build();
    }
  }

  /** @private */
  async askToDelete() {
    const { topic } = this.info;
    const [info, groups] = await Promise.all([session.admin.topic(topic), session.admin.groups(topic)]);
    await ask({
      title: `Delete ${topic}?`,
      body: [
        h(
          "p",
          `This removes ${plural(info.end - info.earliest, "event")} (${bytes(info.bytes)}), ${plural(groups.length, "group")} and the topic's dead letters and schemas. It cannot be undone.`,
        ),
      ],
      action: "Delete",
      isDanger: true,
      typed: topic,
      work: async () => {
        await session.admin.deleteTopic(topic);
        go(["topics"]);
        return `${topic} was deleted.`;
      },
    });
  }
}
customElements.define("topic-settings-view", TopicSettingsView);

/** @param {any} inputs */
function read(inputs) {
  const number = (/** @type {any} */ input) => (input.value.trim() === "" ? undefined : Number(input.value));
  const word = (/** @type {any} */ input) => input.value.trim() || undefined;
  const retention = clean({ age: word(inputs.age), bytes: number(inputs.bytes), count: number(inputs.count) });
  return clean({
    retention: Object.keys(retention).length > 0 ? retention : undefined,
    compacted: inputs.compacted.checked,
    partitions: number(inputs.partitions),
    dedupe_window: word(inputs.dedupe_window),
    durability: word(inputs.durability),
    schema: inputs.schema.value,
    compat: inputs.compat.value,
    undeclared: inputs.undeclared.value,
    max_attempts: number(inputs.max_attempts),
  });
}

/** @param {Record<string, any>} value */
function clean(value) {
  return Object.fromEntries(Object.entries(value).filter(([, one]) => one !== undefined));
}

/**
 * @param {any} settings
 * @returns {Record<string, any>}
 */
function flat({ retention, ...rest }) {
  return {
    ...rest,
    ...Object.fromEntries(Object.entries(retention ?? {}).map(([name, value]) => [`retention.${name}`, value])),
  };
}
