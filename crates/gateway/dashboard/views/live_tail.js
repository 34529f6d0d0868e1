/**
 * The live tail of a topic: follow it, stop, go on where it stopped, or from now.
 * @module
 */

import { fill, h } from "../lib/dom.js";
import { count } from "../lib/format.js";
import { session } from "../lib/session.js";

/** How often the list is drawn while events come. */
const DRAW_MS = 200;
/** Events that wait to be drawn, at most, and their characters; older ones are passed over and counted. */
const WAITING_MAX = 2_000;
const WAITING_SIZE_MAX = 10_000_000;

export class LiveTail {
  /** @param {import("./messages.js").MessagesView} view */
  constructor(view) {
    /** @private */
    this.view = view;
    this.isOn = false;
    /** @private The offset after the last event that was seen. @type {number | undefined} */
    this.next = undefined;
    /** @private @type {import("../lib/events.js").RawEvent[]} */
    this.waiting = [];
    /** @private Characters of the waiting payloads. */
    this.size = 0;
    /** @private Whether the server sends events. */
    this.isOpen = false;
    /** @private The list that the tail added to. */
    this.turn = 0;
    /** @private */
    this.passedOver = 0;
    /** @private @type {AbortController | undefined} */
    this.stopping = undefined;
    this.controls = h("div.row", { role: "group", "aria-label": "Live tail" });
    view.signal.addEventListener("abort", () => this.stop());
    const { signal } = view;
    session.addEventListener("state", () => this.lose(), { signal });
    session.addEventListener("back", (event) => this.recover(event), { signal });
    this.show();
  }

  /**
   * Begins to follow.
   * @param {number} [from] The offset to begin with; with the next event if left out.
   */
  async start(from) {
    this.stop();
    const { view } = this;
    const { topic } = view.info;
    this.isOn = true;
    this.isOpen = false;
    this.passedOver = 0;
    const stopping = new AbortController();
    this.stopping = stopping;
    this.show();
    const timer = setInterval(() => this.draw(), DRAW_MS);
    // After a jump the list shows another place.
    if (from === undefined || view.turn !== this.turn) view.restart(view.info.earliest);
    this.turn = view.turn;
    const { signal } = stopping;
    const onOpen = () => {
      if (this.stopping !== stopping) return;
      this.isOpen = true;
      this.show();
    };
    try {
      const offset = from ?? (await session.reader.end(topic, signal));
      signal.throwIfAborted();
      this.next = offset;
      for await (const event of session.reader.follow(topic, { from: "offset", offset, signal, onOpen })) {
        if (signal.aborted) break;
        this.take(event);
      }
    } catch (error) {
      if (!stopping.signal.aborted) view.failed(error);
    } finally {
      clearInterval(timer);
    }
    if (this.stopping === stopping) this.stop();
  }

  /** Says that the connection is lost. @private */
  lose() {
    if (!this.isOn || session.link !== "lost") return;
    this.isOpen = false;
    this.show();
  }

  /**
   * Goes on where the tail was when the connection was lost.
   * @private
   * @param {Event} event Its default is to make the view anew.
   */
  recover(event) {
    if (!this.isOn) return;
    event.preventDefault();
    this.start(this.next);
  }

  stop() {
    this.draw();
    this.stopping?.abort();
    this.stopping = undefined;
    this.isOn = false;
    this.show();
  }

  /**
   * @private
   * @param {import("../lib/client.js").BusEvent} event
   */
  take(event) {
    this.next = event.offset + 1;
    const raw = JSON.stringify(event.payload);
    this.waiting.push({ ...event, raw, isParsed: true });
    this.size += raw.length;
    while (this.waiting.length > WAITING_MAX || (this.size > WAITING_SIZE_MAX && this.waiting.length > 1)) {
      this.size -= this.waiting.shift()?.raw.length ?? 0;
      this.passedOver++;
    }
  }

  /** @private */
  draw() {
    if (this.waiting.length === 0) return;
    const events = this.waiting;
    this.waiting = [];
    this.size = 0;
    this.view.addNewer(events);
    if (this.passedOver > 0)
      this.view.show(`Events come faster than the page draws: ${count(this.passedOver)} were passed over.`);
  }

  /** @private */
  show() {
    const button = (/** @type {string} */ text, /** @type {() => void} */ onclick, name = "") =>
      h(`button${name}`, { type: "button", onclick }, text);
    if (this.isOn) {
      fill(
        this.controls,
        this.isOpen
          ? h("span.chip.good", "Live")
          : h("span.chip.warn", session.link === "lost" ? "Waiting for the server…" : "Opening…"),
        button("Stop", () => this.stop()),
      );
    } else if (this.next !== undefined) {
      const { next } = this;
      fill(
        this.controls,
        button("Go on where it stopped", () => this.start(next)),
        button("Live from now", () => this.start()),
      );
    } else {
      fill(
        this.controls,
        button("Live tail", () => this.start()),
      );
    }
  }
}
