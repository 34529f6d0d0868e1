/**
 * The parts of the TypeScript client that the dashboard uses. The server serves the client's modules as they are, under
 * `src/` beside this folder.
 * @module
 */

export { addressOf } from "../src/address.js";
export { Admin } from "../src/admin.js";
export { Connection } from "../src/connection.js";
export { PrometheanError } from "../src/errors.js";
export { Http } from "../src/http.js";
export { Reader } from "../src/reader.js";
export { State } from "../src/state.js";

/** @typedef {import("../src/types.js").BusEvent} BusEvent */
