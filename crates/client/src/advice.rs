//! What to do with each error.

/// Advice by group of codes; `docs/clients.md` shows the same.
const ADVICE: &[(&str, &str)] = &[
    (
        "wait and try the same call again; the client does so by itself for publishes and subscriptions",
        "rate_limited busy auth_unavailable closed fenced topic_deleted too_many_connections \
         not_ready",
    ),
    (
        "try again with the same id: the event may be there already, and the same id never makes a second one",
        "unknown_outcome timeout disconnected",
    ),
    ("start the server or correct the URL; the client keeps trying until it is closed", "unreachable"),
    ("correct the URL", "bad_url wrong_url"),
    (
        "get a valid token, and create a client with it or with a function that returns it",
        "unauthorized bad_token",
    ),
    ("ask for a token whose scopes allow this", "forbidden"),
    ("await each publish, or await `room()` before the next one", "outbox_full"),
    ("create a new client; a closed one stays closed", "client_closed"),
    (
        "correct the type of the payload: it cannot be JSON, or the JSON of the event does not fit the type",
        "bad_payload",
    ),
    (
        "correct the call as the message says; it can never work like this",
        "bad_json bad_request unknown_op bad_name reserved_name invalid_json control_character bad_option bad_filter \
         bad_pattern bad_seek bad_settings bad_partition key_required beyond_end bad_schema unknown_field wrong_type \
         bad_use upgrade_required method_not_allowed uri_too_long unsupported_media_type too_many_headers not_offered",
    ),
    (
        "send less at once",
        "payload_too_large headers_too_large key_too_large tags_too_large caused_by_too_large sid_too_large \
         batch_too_large too_large",
    ),
    (
        "do nothing: the event is delivered again; if this is frequent, handle events faster or raise `ack_timeout`",
        "lease_lost unknown_id",
    ),
    ("give each member a name of its own: another member took this `member_id`", "member_fenced"),
    ("do nothing: the event was handled before", "already_seen"),
    (
        "correct the projector or its collection on the server",
        "unique_violation wrong_keeping bad_index bad_document derived_with_events not_derivable",
    ),
    (
        "add the origin of the page to `allowed_origins` in the configuration of the server",
        "forbidden_origin",
    ),
    ("use the subscription that the client has, another group, or a second client", "already_subscribed"),
    ("subscribe first", "not_subscribed"),
    ("wait until the other backup has ended, or end it", "backup_running"),
    ("begin another backup: this one has ended", "unknown_backup"),
    (
        "close unused ones, or ask for a higher limit",
        "too_many_subscriptions too_many_in_flight too_many_topics too_many_schemas",
    ),
    ("read the present state, decide again, and try with the new expectation", "conflict"),
    ("publish with a new id: another event has this one", "id_conflict"),
    (
        "make the payload fit the schema; `details()` has `violations`, which say where it does not",
        "schema_rejected schema_too_costly schema_required downcast_failed",
    ),
    (
        "change the schema as `compared` in `details()` says, or choose another version",
        "schema_incompatible schema_in_use version_taken",
    ),
    (
        "check the name; nothing of that name exists",
        "unknown_schema unknown_topic unknown_group unknown_member unknown_event unknown_letter unknown_collection \
         unknown_projector not_found no_default_collection no_history",
    ),
    ("ask for a later time; `earliest` in `details()` says from when on the history is kept", "history_gone"),
    (
        "wait until the members have left, or the work has ended",
        "partitions_in_use group_busy collection_in_use rebuilding",
    ),
    (
        "ask the operator of the server; its log says more",
        "internal poisoned corrupt_range storage_failed bad_declaration reducer_failed projector_group rebuild_needed",
    ),
    ("free space on the disk of the server, then try again", "storage_full"),
];

/// What to do about an error with this code, in a sentence.
pub(crate) fn advice_for(code: &str) -> &'static str {
    let known = ADVICE.iter().find(|(_, codes)| codes.split_whitespace().any(|known| known == code));
    known.map_or("read the message; it says what to change", |(advice, _)| advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOCOL: &str = include_str!("../../../docs/protocol.md");

    #[test]
    fn every_code_of_the_protocol_has_its_advice() {
        let table = PROTOCOL.split_once("## Error codes").unwrap().1;
        let codes =
            table.lines().filter(|line| line.starts_with("| `")).filter_map(|line| line.split('|').nth(1));
        let mut count = 0;
        for code in codes.flat_map(|cell| cell.split(',')).map(|code| code.trim().trim_matches('`')) {
            assert!(!advice_for(code).starts_with("read the message"), "{code}");
            count += 1;
        }
        assert!(count > 60, "{count}");
    }

    #[test]
    fn a_code_has_one_advice() {
        let mut codes: Vec<_> = ADVICE.iter().flat_map(|(_, codes)| codes.split_whitespace()).collect();
        let count = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), count);
    }
}
