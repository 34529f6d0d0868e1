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
export { ServerDedupe, MemoryDedupe, exactlyOnce } from "./exactly_once.js";
export { transform } from "./transform.js";
export { WarmUp, warmUp } from "./warm_up.js";
export { deriveId, producedId } from "./derived_id.js";
export { Reader } from "./reader.js";
export { State } from "./state.js";
export { Admin } from "./admin.js";
export { Http } from "./http.js";
export { adviceFor } from "./advice.js";
