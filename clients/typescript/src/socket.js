/**
 * One WebSocket, of the platform or of the package `ws`, behind one small face.
 * @module
 */

import { PrometheanError } from "./errors.js";

/**
 * What a socket tells its owner.
 * @typedef {object} SocketEvents
 * @property {() => void} open
 * @property {(text: string) => void} message
 * @property {(code: number, reason: string, cause: any) => void} close Called once, also if the socket never opened.
 */

/** The name is a variable so that bundlers for browsers do not look for the package. */
const WS_PACKAGE = "ws";

/**
 * Finds the WebSocket class: the given one, the platform's, or the one of the package `ws`.
 * @param {any} [given]
 * @returns {Promise<any>}
 */
export async function socketClass(given) {
  if (given) return given;
  if (typeof globalThis.WebSocket === "function") return globalThis.WebSocket;
  try {
    return (await import(/* @vite-ignore */ /* webpackIgnore: true */ WS_PACKAGE)).WebSocket;
  } catch (cause) {
    const message = "this Node has no WebSocket; run `npm install ws`, or use Node 22 or newer";
    throw new PrometheanError("no_websocket", message, { cause });
  }
}

/** A WebSocket that reports its end exactly once. */
export class Socket {
  /**
   * @param {any} WebSocketClass
   * @param {string} url
   * @param {SocketEvents} events
   */
  constructor(WebSocketClass, url, events) {
    /** @private @type {SocketEvents | undefined} */
    this.events = events;
    /** @private */
    this.corked = false;
    const isPackage = typeof WebSocketClass.prototype.on === "function";
    /** @private */
    this.ws = isPackage ? new WebSocketClass(url, [], { perMessageDeflate: false }) : new WebSocketClass(url);
    /** @type {any} */
    let cause;
    this.ws.onopen = () => this.events?.open();
    this.ws.onerror = (/** @type {any} */ event) => (cause ??= event.error ?? event);
    this.ws.onclose = (/** @type {any} */ event) => this.end(event.code, event.reason, cause);
    if (isPackage) {
      this.ws.on("message", (/** @type {any} */ data) => this.events?.message(data.toString()));
    } else {
      this.ws.onmessage = (/** @type {any} */ event) => this.events?.message(event.data);
    }
  }

  /**
   * Sends a text. Texts of one turn leave together where the socket allows it.
   * @param {string} text
   */
  send(text) {
    const stream = this.ws._socket;
    if (!this.corked && stream?.cork) {
      this.corked = true;
      stream.cork();
      queueMicrotask(() => {
        this.corked = false;
        stream.uncork();
      });
    }
    this.ws.send(text);
  }

  /** Closes the socket after what was sent has left. The end is still reported. */
  close() {
    this.ws.close(1000);
  }

  /**
   * Ends the socket at once: it is reported as closed, whatever the other side does.
   * @param {string} reason
   */
  abandon(reason) {
    const { ws } = this;
    this.end(1006, reason, undefined);
    if (ws.terminate) ws.terminate();
    else ws.close();
  }

  /**
   * @private
   * @param {number} code
   * @param {string} reason
   * @param {any} cause
   */
  end(code, reason, cause) {
    const { events } = this;
    this.events = undefined;
    events?.close(code, reason, cause);
  }
}
