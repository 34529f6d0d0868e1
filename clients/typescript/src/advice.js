/**
 * What to do with each error.
 * @module
 */

/** Advice by group of codes; `docs/clients.md` shows the same table. */
const ADVICE = [
  [
    "wait and try the same call again; the client does so by itself for publishes and subscriptions",
    "rate_limited busy auth_unavailable closed fenced topic_deleted too_many_connections not_ready",
  ],
  [
    "try again with the same id: the event may be there already, and the same id never makes a second one",
    "unknown_outcome timeout disconnected",
  ],
  ["start the server or correct the URL; the client keeps trying until it is closed", "unreachable"],
  ["correct the URL", "bad_url wrong_url"],
  ["install the package `ws`, or use Node 22 or newer", "no_websocket"],
  ["get a valid token, and create a client with it or with a function that returns it", "unauthorized bad_token"],
  ["ask for a token whose scopes allow this", "forbidden"],
  ["add the origin of the page to `allowed_origins` in the configuration of the server", "forbidden_origin"],
  ["await each publish, or await `room()` before the next one", "outbox_full"],
  ["create a new client; a closed one stays closed", "client_closed"],
  ["convert the payload to what JSON has: no undefined, no BigInt, no function, no cycle", "bad_payload"],
  [
    "correct the call as the message says; it can never work like this",
    "bad_json bad_request unknown_op bad_name reserved_name invalid_json control_character bad_option bad_filter bad_pattern " +
      "bad_seek bad_settings bad_partition key_required beyond_end bad_schema unknown_field wrong_type bad_use upgrade_required " +
      "method_not_allowed uri_too_long unsupported_media_type too_many_headers not_offered",
  ],
  [
    "send less at once",
    "payload_too_large headers_too_large key_too_large tags_too_large caused_by_too_large sid_too_large batch_too_large too_large",
  ],
  [
    "do nothing: the event is delivered again; if this is frequent, handle events faster or raise `ackTimeoutMs`",
    "lease_lost unknown_id",
  ],
  ["give each member a name of its own: another member took this `memberId`", "member_fenced"],
  ["do nothing: the event was handled before", "already_seen"],
  [
    "correct the projector or its collection on the server",
    "unique_violation wrong_keeping bad_index bad_document derived_with_events not_derivable",
  ],
  ["use the subscription that the client has, another group, or a second client", "already_subscribed"],
  ["subscribe first", "not_subscribed"],
  ["wait until the other backup has ended, or end it", "backup_running"],
  ["begin another backup: this one has ended", "unknown_backup"],
  [
    "close what is not needed, or ask for a higher limit",
    "too_many_subscriptions too_many_in_flight too_many_topics too_many_schemas",
  ],
  ["read the present state, decide again, and try with the new expectation", "conflict"],
  ["publish with a new id: another event has this one", "id_conflict"],
  [
    "make the payload fit the schema; `details.violations` says where it does not",
    "schema_rejected schema_too_costly schema_required downcast_failed",
  ],
  [
    "change the schema as `details.compared` says, or choose another version",
    "schema_incompatible schema_in_use version_taken",
  ],
  [
    "check the name; nothing of that name exists",
    "unknown_schema unknown_topic unknown_group unknown_member unknown_event unknown_letter unknown_collection unknown_projector " +
      "not_found no_default_collection no_history",
  ],
  ["ask for a later time; `details.earliest` says from when on the history is kept", "history_gone"],
  [
    "wait until the members have left, or the work has ended",
    "partitions_in_use group_busy collection_in_use rebuilding",
  ],
  [
    "ask the operator of the server; its log says more",
    "internal poisoned corrupt_range storage_failed bad_declaration reducer_failed projector_group rebuild_needed",
  ],
  ["free space on the disk of the server, then try again", "storage_full"],
];

const BY_CODE = new Map(ADVICE.flatMap(([advice, codes]) => codes.split(" ").map((code) => [code, advice])));

/**
 * What to do about an error, in a sentence.
 * @param {{code?: string} | string} error An error of this library, or its code.
 * @returns {string}
 */
export function adviceFor(error) {
  const code = typeof error === "string" ? error : (error.code ?? "");
  return BY_CODE.get(code) ?? "read the message; it says what to change";
}
