//! The JSON Schemas of bodies and answers, by name.

use serde_json::{Map, Value, json};

use crate::codes::CODES;
use crate::http::param_type::ParamType;
use crate::http::routes::params::EXACT;

/// A reference to a named schema.
fn form(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// An object with these fields and no others; the fields in `optional` may be missing.
fn object(needed: Value, optional: Value) -> Value {
    let names = |fields: &Value| fields.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>());
    let required = names(&needed).unwrap_or_default();
    let mut properties = Map::new();
    for fields in [needed, optional] {
        if let Value::Object(fields) = fields {
            properties.extend(fields);
        }
    }
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn list(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

fn or_null(schema: Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

/// All named schemas.
pub(super) fn all() -> Value {
    let mut forms = Map::new();
    for part in [
        shared(),
        events(),
        groups(),
        letters(),
        topics(),
        schemas(),
        state(),
        server(),
        clients(),
        backups(),
    ] {
        if let Value::Object(part) = part {
            forms.extend(part);
        }
    }
    forms.into()
}

fn shared() -> Value {
    json!({
        "Any": {},
        "Refusal": {
            "type": "object",
            "properties": {
                "error": {"enum": CODES, "description": "a stable word for programs; later versions may add words"},
                "message": {"type": "string", "description": "what is wrong and what to change"},
                "request_id": {"type": "string"},
                "retry_after_ms": {"type": "integer"},
                "parameter": {"type": "string"},
                "line": {"type": "integer", "description": "the line of a batch that is at fault, counted from 1"},
            },
            "required": ["error", "message", "request_id"],
        },
    })
}

fn events() -> Value {
    let (int, text) = (json!({"type": "integer"}), json!({"type": "string"}));
    let (id, count) = (ParamType::Id.schema(), json!({"type": "integer", "minimum": 0}));
    let headers = json!({"type": "object", "additionalProperties": text});
    let event = object(
        json!({"id": id, "ts": int, "topic": text, "offset": count, "payload": {}}),
        json!({"key": text, "partition": count, "headers": headers, "tags": list(text.clone()),
            "caused_by": list(id.clone()), "sid": text}),
    );
    let plain = json!({"type": "string", "pattern": "^[ -~]*$"});
    let offset = ParamType::Offset.schema();
    let opts = object(
        json!({}),
        json!({"id": or_null(id.clone()), "ts": or_null(EXACT.schema()), "key": or_null(text.clone()),
            "headers": or_null(json!({"type": "object", "additionalProperties": plain, "propertyNames": plain})),
            "tags": or_null(list(plain.clone())), "caused_by": or_null(list(id.clone())), "sid": or_null(plain),
            "partition": or_null(json!({"type": "integer", "minimum": 0, "maximum": 4095})),
            "expected_offset": or_null(offset.clone()), "expected_key_offset": or_null(offset)}),
    );
    let published = object(
        json!({"id": id, "topic": text, "offset": count, "ts": int, "durability": text}),
        json!({"partition": count, "duplicate": {"const": true}}),
    );
    let batch = object(
        json!({"count": count, "first_offset": count, "last_offset": count, "ids": list(id), "duplicates": count,
            "durability": text}),
        json!({}),
    );
    let replay = object(
        json!({"topic": text, "count": count, "events": list(form("Event"))}),
        json!({"next": count, "expired": count}),
    );
    let latest = json!({"type": "object", "additionalProperties": or_null(form("Event"))});
    json!({
        "BatchLine": object(json!({"payload": {}}), json!({"opts": or_null(opts)})),
        "Payload": {"description": "Any JSON; null says that the key is gone"},
        "Event": event,
        "Events": list(form("Event")),
        "Published": published,
        "PublishedBatch": batch,
        "Replay": replay,
        "LatestByKey": object(json!({"topic": text, "events": latest}), json!({})),
    })
}

fn groups() -> Value {
    let (int, text, flag) =
        (json!({"type": "integer"}), json!({"type": "string"}), json!({"type": "boolean"}));
    let count = json!({"type": "integer", "minimum": 0});
    let blocked = object(
        json!({"key_hash": text, "offset": count, "waiting": count}),
        json!({"key": text, "id": ParamType::Id.schema(), "member": text}),
    );
    let member = object(json!({"member": text, "in_flight": count}), json!({}));
    let progress = json!({"topic": text, "floor": count, "end": count, "lag": count, "in_flight": count,
        "members": count, "reason": text, "expired": count});
    let more = json!({"blocked_keys": list(blocked), "member_list": list(member), "failing": flag});
    let at = object(json!({"offset": count, "id": ParamType::Id.schema(), "ts": int}), json!({}));
    let (mut cursor, mut cursor_more) = (progress.clone(), more.clone());
    if let (Value::Object(cursor), Value::Object(more)) = (&mut cursor, &mut cursor_more) {
        cursor.insert("group".into(), text.clone());
        more.insert("last".into(), form("At"));
    }
    let group = object(
        json!({"group": text, "topic": text, "paused": flag, "created": int, "options": {"type": "object"},
            "topics": list(form("Progress"))}),
        json!({"partitions": {"type": "object"}, "next_topic": text}),
    );
    let lag = object(
        json!({"topic": text, "group": text, "cursor": or_null(form("At")), "tail": or_null(form("At")),
            "lag_ms": or_null(count.clone()), "lag": count, "floor": count, "end": count}),
        json!({}),
    );
    let report = object(
        json!({"from": count, "to": count, "replayed": count, "skipped": count, "applied": flag}),
        json!({}),
    );
    json!({
        "At": at,
        "Progress": object(progress, more),
        "Cursor": object(cursor, cursor_more),
        "Cursors": object(json!({"topic": text, "cursors": list(form("Cursor"))}), json!({"next": text})),
        "Group": group,
        "Groups": object(json!({"groups": list(form("Group"))}), json!({"next": text})),
        "Lag": lag,
        "Seek": seek(),
        "SeekReport": report,
        "Paused": object(json!({"group": text, "topic": text, "paused": flag}), json!({})),
        "Deleted": object(json!({"group": text, "topic": text, "deleted": {"const": true}}), json!({})),
    })
}

fn seek() -> Value {
    let dry_run = json!({"dryRun": {"type": "boolean"}});
    let exact = EXACT.schema();
    let to =
        |word: &str, schema: Value| object(json!({"to": {"const": word}, word: schema}), dry_run.clone());
    let end = object(json!({"to": {"enum": ["earliest", "latest"]}}), dry_run.clone());
    json!({"oneOf": [end, to("ts", exact), to("afterId", ParamType::Id.schema()), to("offset", ParamType::Offset.schema())]})
}

fn letters() -> Value {
    let (int, text, flag) =
        (json!({"type": "integer"}), json!({"type": "string"}), json!({"type": "boolean"}));
    let count = json!({"type": "integer", "minimum": 0});
    let letter = object(
        json!({"offset": count, "event": or_null(form("Event")), "in_topic": flag, "reason": text, "attempts": count,
            "first_ts": int, "last_ts": int, "redrives": count, "redriving": flag}),
        json!({"letter": ParamType::Id.schema(), "by": text, "last_error": text}),
    );
    let value = json!({"type": "string", "maxLength": 256});
    let values = json!({"anyOf": [value, {"type": "array", "items": value, "minItems": 1, "maxItems": 64}]});
    let headers = json!({"type": "object", "maxProperties": 64, "additionalProperties": values,
        "propertyNames": {"minLength": 1, "maxLength": 256}});
    let filter =
        object(json!({}), json!({"key": values, "keyPrefix": values, "tags": values, "headers": headers}));
    let named = |items: Value| json!({"type": "array", "items": items, "minItems": 1, "maxItems": 1000});
    let choice = |optional: &Value| {
        let by = |fields: Value| object(fields, optional.clone());
        json!({"oneOf": [by(json!({"all": {"const": true}})), by(json!({"ids": named(ParamType::Id.schema())})),
            by(json!({"offsets": named(ParamType::Offset.schema())})), by(json!({"filter": form("Filter")}))]})
    };
    let mut redrive = choice(&json!({"to": {"enum": ["group", "topic"]}}));
    let one = |items: Value| json!({"type": "array", "items": items, "minItems": 1, "maxItems": 1});
    if let Some(Value::Array(forms)) = redrive.get_mut("oneOf") {
        for (name, items) in [("ids", ParamType::Id.schema()), ("offsets", ParamType::Offset.schema())] {
            forms.push(object(json!({name: one(items), "to": {"const": "topic"}, "payload": {}}), json!({})));
        }
    }
    let report = object(
        json!({"selected": count, "redriven": count, "dropped": count, "gone": count, "already_redriving": count,
            "unknown": count}),
        json!({}),
    );
    json!({
        "Letter": letter,
        "Letters": object(json!({"letters": list(form("Letter"))}), json!({"next": count})),
        "Filter": filter,
        "LetterChoice": choice(&json!({})),
        "Redrive": redrive,
        "LetterReport": report,
    })
}

fn topics() -> Value {
    let (text, flag) = (json!({"type": "string"}), json!({"type": "boolean"}));
    let count = json!({"type": "integer", "minimum": 0});
    let whole = |least: u64, most: u64| json!({"type": "integer", "minimum": least, "maximum": most});
    let read = "^([1-9][0-9]{3,11}ms|[1-9][0-9]{0,8}s|[1-9][0-9]{0,6}m|[1-9][0-9]{0,4}h|[1-9][0-9]{0,3}d)$";
    let length =
        |least: u64| json!({"anyOf": [{"type": "string", "pattern": read}, whole(least, 3_153_600_000_000)]});
    let shown = json!({"type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$"});
    let compat = ["none", "backward", "forward", "full"];
    let transitive = ["backward_transitive", "forward_transitive", "full_transitive"];
    let compat: Vec<&str> = compat.into_iter().chain(transitive).collect();
    let settings = |age: &Value, window: &Value| {
        let retention = object(
            json!({}),
            json!({"age": or_null(age.clone()), "bytes": or_null(whole(1, u64::MAX)),
                "count": or_null(whole(1, u64::MAX))}),
        );
        object(
            json!({}),
            json!({"retention": retention, "compacted": flag, "partitions": or_null(whole(1, 4096)),
                "dedupe_window": window, "durability": or_null(json!({"enum": ["fsync", "os"]})),
                "schema": {"enum": ["optional", "required", "off"]}, "compat": {"enum": compat},
                "undeclared": {"enum": ["any", "absent"]}, "max_attempts": whole(1, 1000)}),
        )
    };
    let topic = object(
        json!({"topic": text, "earliest": count, "end": count, "bytes": count, "settings": settings(&shown, &shown)}),
        json!({"held": count}),
    );
    json!({
        "TopicSettings": settings(&length(1), &length(1000)),
        "Topic": topic,
        "Topics": object(json!({"topics": list(form("Topic"))}), json!({"next": text})),
        "DeletedTopic": object(json!({"topic": text, "deleted": {"const": true}}), json!({})),
    })
}

/// The schemas for topic schemas. A JSON Schema itself is described only in its most common forms.
fn schemas() -> Value {
    let (text, flag) = (json!({"type": "string"}), json!({"type": "boolean"}));
    let (int, count) = (json!({"type": "integer"}), json!({"type": "integer", "minimum": 0}));
    let types = json!({"enum": ["array", "boolean", "integer", "null", "number", "object", "string"]});
    let drafts = ["https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"];
    let schema = |first: Value| {
        let mut keywords = json!({
            "type": types, "title": text, "description": text,
            "properties": {"type": "object", "additionalProperties": form("SubSchema")},
            "required": {"type": "array", "items": text, "uniqueItems": true},
            "additionalProperties": form("SubSchema"),
        });
        if let (Value::Object(keywords), Value::Object(first)) = (&mut keywords, first) {
            keywords.extend(first);
        }
        json!({"anyOf": [flag, {"type": "object", "properties": keywords}]})
    };
    let words = json!({"type": "string", "pattern": "^[a-z_]+$"});
    let version = json!({"version": count, "fingerprint": text, "compat": words, "undeclared": words, "forced": flag,
        "created": int, "bytes": count});
    let (mut shown, finding) = (
        version.clone(),
        object(
            json!({"verdict": words, "direction": words, "rule": words, "path": text, "instance_path": text, "fix": text}),
            json!({"old": {}, "new": {}, "example": {}}),
        ),
    );
    if let Value::Object(shown) = &mut shown {
        shown.extend([("topic".to_owned(), text.clone()), ("schema".to_owned(), json!({}))]);
    }
    let compared = object(
        json!({"version": count, "direction": words, "verdict": words, "findings": list(finding)}),
        json!({}),
    );
    let registered = json!({"topic": text, "version": count, "unchanged": flag, "forced": flag, "dry_run": flag,
        "compared": list(form("Compared"))});
    let topic = object(json!({"topic": text, "versions": count, "latest": count}), json!({}));
    let failure = object(json!({"offset": count, "version": count, "reason": text}), json!({}));
    let migration = json!({"events": count, "versions": {"type": "object", "additionalProperties": count},
        "lifted": count, "same": count, "failed": count, "failures": list(failure), "end": count});
    json!({
        "JsonSchema": schema(json!({"$schema": {"enum": drafts}})),
        "SubSchema": schema(json!({})),
        "Compared": compared,
        "SchemaTopics": object(json!({"topics": list(topic)}), json!({"next": text})),
        "SchemaVersions": object(json!({"topic": text, "versions": list(object(version, json!({})))}), json!({})),
        "Schema": object(shown, json!({})),
        "RegisteredSchema": object(registered, json!({})),
        "SchemaCheck": object(
            json!({"topic": text, "verdict": words, "compared": list(form("Compared"))}),
            json!({}),
        ),
        "DeletedSchema": object(json!({"topic": text, "version": count, "deleted": {"const": true}}), json!({})),
        "Validated": object(
            json!({"topic": text, "version": or_null(count), "valid": {"const": true}}),
            json!({}),
        ),
        "Migration": object(migration, json!({})),
    })
}

fn state() -> Value {
    let (text, flag) = (json!({"type": "string"}), json!({"type": "boolean"}));
    let count = json!({"type": "integer", "minimum": 0});
    let document = json!({"type": "object", "required": ["_key", "_ts"]});
    let index = object(json!({"fields": text, "unique": flag}), json!({}));
    let kinds = json!({"type": "object", "additionalProperties": {"enum": ["string", "number", "bool"]}});
    let collection = json!({"name": text, "documents": count, "fields": kinds, "indexes": list(index),
        "default": flag, "history": flag, "projector": or_null(text.clone())});
    let rebuild = object(
        json!({"running": flag, "position": count, "skipped": count, "left_out": count}),
        json!({"first_skipped": text, "equal": flag, "hash": text, "error": text}),
    );
    let activities = json!({"enum": ["running", "retrying", "halted", "stuck", "stopped"]});
    let projector = object(
        json!({"name": text, "topic": text, "collections": list(text.clone()), "activity": activities,
            "position": count, "end": count, "lag": count, "projected": count, "failures": count,
            "dead_letters": count, "timer_runs": count, "changed": flag}),
        json!({"last_error": text, "rebuild": rebuild}),
    );
    json!({
        "Document": document,
        "StateAt": object(json!({"key": text, "state": {}, "ts": EXACT.schema(), "offset": count}), json!({})),
        "CollectionAt": object(
            json!({"documents": list(object(
                json!({"key": text, "document": {}, "ts": EXACT.schema()}), json!({}),
            ))}),
            json!({"next": text}),
        ),
        "CollectionDiff": object(
            json!({"differences": list(json!({"type": "object", "minProperties": 1, "maxProperties": 1}))}),
            json!({"next": text}),
        ),
        "Documents": object(
            json!({"offset": count, "limit": count, "count": count, "items": list(form("Document"))}),
            json!({}),
        ),
        "Collection": object(collection, json!({})),
        "Collections": object(json!({"collections": list(form("Collection"))}), json!({})),
        "DroppedCollection": object(json!({"collection": text, "dropped": {"const": true}}), json!({})),
        "Projector": projector,
        "Compactor": object(
            json!({"topic": text, "snapshots": text, "position": count, "end": count, "last_error": or_null(text.clone()),
                "last_round_ms": or_null(count.clone()), "rounds": count, "published_total": count,
                "missed_total": count, "key_failures_total": count, "last_key_failure": or_null(text.clone())}),
            json!({}),
        ),
        "Projectors": object(
            json!({"projectors": list(form("Projector")), "compactors": list(form("Compactor"))}),
            json!({}),
        ),
    })
}

fn server() -> Value {
    let (text, flag) = (json!({"type": "string"}), json!({"type": "boolean"}));
    let count = json!({"type": "integer", "minimum": 0});
    let damage = object(json!({"topic": text, "range": {"type": "object"}}), json!({}));
    let store =
        json!({"refusing": or_null(text.clone()), "degraded": or_null(text.clone()), "damage": list(damage)});
    let store = object(store, json!({}));
    let unfinished = object(json!({"group": text, "topic": text, "reason": text}), json!({}));
    let index = ["name", "version", "websocket", "openapi", "health", "metrics"];
    let index: Map<String, Value> = index.into_iter().map(|name| (name.to_owned(), text.clone())).collect();
    let status = json!({"enum": ["ok", "degraded"]});
    let mark = json!({"topic": text, "group": text, "id": ParamType::Id.schema(), "seen": {"const": true}});
    json!({
        "Index": object(index.into(), json!({})),
        "Health": object(json!({"status": status, "writable": flag, "slow": flag, "damaged_ranges": count,
            "projectors_halted": count, "retention_waits": count, "rebuilds_incomplete": count,
            "compactors_failing": count, "topics_scarce": flag}), json!({})),
        "Ready": object(json!({"ready": {"const": true}}), json!({})),
        "Ops": object(
            json!({"groups": list(form("Group")), "projectors": list(form("Projector")), "compactors": list(form("Compactor"))}),
            json!({"store": store, "unfinished_deletions": list(unfinished), "next": text}),
        ),
        "Mark": object(mark, json!({})),
    })
}

/// The schemas for clients, their tokens and connections, and the settings of the server.
fn backups() -> Value {
    let (int, text) = (json!({"type": "integer"}), json!({"type": "string"}));
    let count = json!({"type": "integer", "minimum": 0});
    let file = object(
        json!({"file": text, "bytes": count, "length": count}),
        json!({"topic": count, "from": count, "to": count}),
    );
    let topic = object(json!({"topic": text, "number": count, "earliest": count, "end": count}), json!({}));
    json!({
        "Backup": object(
            json!({
                "backup": text, "taken": int, "position": count, "topics": count, "files": count, "bytes": count,
                "piece_bytes": count,
            }),
            json!({}),
        ),
        "BackupFiles": object(json!({"files": list(file)}), json!({"next": count})),
        "BackupTopics": object(json!({"topics": list(topic)}), json!({"next": count})),
        "BackupEnded": object(json!({"ended": text}), json!({})),
    })
}

fn clients() -> Value {
    let (int, text) = (json!({"type": "integer"}), json!({"type": "string"}));
    let count = json!({"type": "integer", "minimum": 0});
    let kind = json!({"enum": ["open", "listed", "signed", "other"]});
    let scopes = list(text.clone());
    let connection = object(
        json!({"id": count, "peer": text, "protocol": {"enum": ["http", "websocket"]}, "since": int,
            "subscriptions": count}),
        json!({"name": text, "kind": kind}),
    );
    let limits = json!({"type": "object", "additionalProperties": count});
    let token = object(
        json!({"name": text, "scopes": scopes, "expires": or_null(int.clone()), "limits": limits}),
        json!({}),
    );
    json!({
        "WhoAmI": object(
            json!({"name": text, "kind": kind, "scopes": scopes, "expires": or_null(int.clone())}),
            json!({}),
        ),
        "TicketRequest": object(json!({"path": {"type": "string", "pattern": "^/"}}), json!({})),
        "Ticket": object(json!({"ticket": text, "expires": int}), json!({})),
        "Connections": object(json!({"connections": list(connection)}), json!({"next": count})),
        "Tokens": object(json!({"tokens": list(token)}), json!({"next": count})),
        "Settings": object(
            json!({"settings": list(object(json!({"key": text, "value": {}}), json!({})))}),
            json!({"next": text}),
        ),
    })
}
