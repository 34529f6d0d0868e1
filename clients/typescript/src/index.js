/**
 * The client of Promethean for Node and browsers.
 * @module
 */

export { Client } from "./client.js";
export { Topic } from "./topic.js";
export { EventClient, PromClient } from "./event_client.js";
export { Lease } from "./lease.js";
export { PrometheanError } from "./errors.js";
export { Subscription } from "./subscription.js";
export { newId } from "./id.js";
