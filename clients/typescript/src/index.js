/**
 * The client of Promethean for Node and browsers.
 * @module
 */

/**
 * @template [T=any]
 * @typedef {import("./types.js").BusEvent<T>} BusEvent
 */
/** @typedef {import("./client.js").ClientOptions} ClientOptions */
/** @typedef {import("./exactly_once.js").DedupeStore} DedupeStore */
/** @typedef {import("./types.js").EventToPublish} EventToPublish */
/**
 * @template [T=any]
 * @typedef {import("./subscription.js").Handler<T>} Handler
 */
/** @typedef {import("./types.js").PublishOptions} PublishOptions */
/** @typedef {import("./types.js").Published} Published */
/** @typedef {import("./types.js").PublishedBatch} PublishedBatch */
/** @typedef {import("./types.js").Rebalance} Rebalance */
/** @typedef {import("./types.js").SubscribeOptions} SubscribeOptions */
/** @typedef {import("./types.js").Token} Token */

export { Client } from "./client.js";
export { Topic } from "./topic.js";
export { EventClient, PromClient } from "./event_client.js";
export { Lease } from "./lease.js";
export { PrometheanError } from "./errors.js";
export { Subscription } from "./subscription.js";
export { newId } from "./id.js";
export { ServerDedupe, MemoryDedupe, exactlyOnce } from "./exactly_once.js";
export { transform } from "./transform.js";
export { WarmUp, warmUp } from "./warm_up.js";
export { deriveId, producedId } from "./derived_id.js";
export { Reader } from "./reader.js";
export { State } from "./state.js";
export { Admin } from "./admin.js";
export { Http } from "./http.js";
export { adviceFor } from "./advice.js";
