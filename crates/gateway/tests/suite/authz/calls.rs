//! Every route and every op, once.

use serde_json::{Value, json};

use super::rule::{GROUP, Need};

/// An id that no event has.
const ID: &str = "00000000-0000-7000-8000-0000000000ff";

/// Routes: method, path as in `/openapi.json`, query, body, and the access it needs. Routes that delete come
/// last.
pub(super) const ROUTES: [(&str, &str, &str, &str, Need); 65] = [
    ("GET", "/health", "", "", Need::Nothing),
    ("GET", "/ready", "", "", Need::Nothing),
    ("GET", "/dashboard", "", "", Need::Nothing),
    ("GET", "/dashboard/{file}", "", "", Need::Nothing),
    ("GET", "/dashboard/{folder}/{file}", "", "", Need::Nothing),
    ("GET", "/", "", "", Need::Known),
    ("GET", "/openapi.json", "", "", Need::Known),
    ("GET", "/topics", "", "", Need::Known),
    ("GET", "/groups", "", "", Need::Known),
    ("GET", "/schemas", "", "", Need::Known),
    ("GET", "/ops", "", "", Need::Known),
    ("GET", "/projectors", "", "", Need::Known),
    ("GET", "/collections", "", "", Need::Known),
    // These read the default collection, and this world has none.
    ("GET", "/snap/{key}", "", "", Need::Known),
    ("GET", "/list", "", "", Need::Known),
    ("GET", "/collections/{collection}", "", "", Need::Read),
    ("GET", "/collections/{collection}/snap/{key}", "", "", Need::Read),
    ("GET", "/collections/{collection}/list", "?limit=1", "", Need::Read),
    ("GET", "/collections/{collection}/at", "", "", Need::Read),
    ("GET", "/collections/{collection}/diff", "?from=1h+ago", "", Need::Read),
    ("GET", "/state/{topic}/{key}", "", "", Need::Subscribe),
    ("GET", "/whoami", "", "", Need::Known),
    ("POST", "/tickets", "", "{\"path\":\"/topics\"}", Need::Known),
    ("GET", "/admin/connections", "", "", Need::Admin),
    ("GET", "/admin/tokens", "", "", Need::Admin),
    ("GET", "/admin/config", "", "", Need::Admin),
    ("POST", "/admin/backups", "", "", Need::Admin),
    ("GET", "/admin/backups/{backup}/files", "", "", Need::Admin),
    ("GET", "/admin/backups/{backup}/topics", "", "", Need::Admin),
    ("GET", "/admin/backups/{backup}/piece", "?file=manifest&piece=0", "", Need::Admin),
    ("GET", "/admin/backups/{backup}/state", "", "", Need::Admin),
    ("DELETE", "/admin/backups/{backup}", "", "", Need::Admin),
    ("POST", "/projectors/{projector}/rebuild", "", "", Need::Admin),
    ("POST", "/projectors/{projector}/resume", "", "", Need::Admin),
    ("DELETE", "/collections/{collection}", "", "", Need::Admin),
    ("GET", "/metrics", "", "", Need::Admin),
    ("POST", "/publish/{topic}", "", "1", Need::Publish),
    ("POST", "/publish/{topic}/batch", "", "{\"payload\":1}", Need::Publish),
    ("GET", "/replay", "?topic={topic}", "", Need::Subscribe),
    ("GET", "/export", "?topic={topic}", "", Need::Subscribe),
    ("GET", "/stream/{topic}", "", "", Need::Subscribe),
    ("GET", "/latest-by-key", "?topic={topic}&key=k", "", Need::Subscribe),
    ("GET", "/cursors", "?topic={topic}", "", Need::Subscribe),
    ("GET", "/lag", "?topic={topic}&group={group}", "", Need::SubscribeAs),
    ("GET", "/groups/{group}", "?topic={topic}", "", Need::SubscribeAs),
    ("GET", "/dlq", "?topic={topic}&group={group}", "", Need::Letters),
    ("GET", "/dedupe/{topic}/{group}/{id}", "", "", Need::SubscribeAs),
    ("PUT", "/dedupe/{topic}/{group}/{id}", "", "", Need::SubscribeAs),
    ("GET", "/topics/{topic}", "", "", Need::Any),
    ("PUT", "/topics/{topic}", "", "{\"max_attempts\":7}", Need::Manage),
    ("POST", "/schemas/{topic}", "", "{\"type\":\"number\"}", Need::Manage),
    ("POST", "/schemas/{topic}/check", "", "true", Need::Manage),
    ("POST", "/schemas/{topic}/validate", "", "1", Need::Any),
    ("POST", "/schemas/{topic}/migrate", "", "", Need::Manage),
    ("GET", "/schemas/{topic}", "", "", Need::Any),
    ("GET", "/schemas/{topic}/{version}", "", "", Need::Any),
    ("DELETE", "/schemas/{topic}/{version}", "", "", Need::Manage),
    ("POST", "/groups/{group}/pause", "?topic={topic}", "", Need::Manage),
    ("POST", "/groups/{group}/resume", "?topic={topic}", "", Need::Manage),
    ("POST", "/groups/{group}/seek", "?topic={topic}", "{\"to\":\"latest\"}", Need::Manage),
    ("POST", "/dlq/redrive", "?topic={topic}&group={group}", "{\"all\":true}", Need::ManageLetters),
    ("POST", "/dlq/drop", "?topic={topic}&group={group}", "{\"all\":true}", Need::ManageLetters),
    ("GET", "/groups/{group}", "?topic={topic}&", "", Need::SubscribeAs),
    ("DELETE", "/groups/{group}", "?topic={topic}", "", Need::Manage),
    ("DELETE", "/topics/{topic}", "", "", Need::Manage),
];

/// A path with its names filled in.
pub(super) fn filled(template: &str, topic: &str) -> String {
    let names = [
        ("{topic}", topic),
        ("{collection}", topic),
        ("{group}", GROUP),
        ("{projector}", GROUP),
        ("{id}", ID),
        ("{folder}/{file}", "lib/dom.js"),
        ("{file}", "main.js"),
    ];
    let template = names.iter().fold(template.to_owned(), |path, (name, text)| path.replace(name, text));
    template.replace("{version}", "1").replace("{key}", "k")
}

/// Every op but AUTH. Subscribing comes last: after it the others would find a subscription.
pub(super) fn frames(topic: &str) -> Vec<(Value, Need)> {
    let about = |op: &str| json!({"op": op, "topic": topic, "group": GROUP, "id": ID});
    let mut seek = about("SEEK");
    seek["opts"] = json!({"from": "latest"});
    vec![
        (json!({"op": "PUBLISH", "topic": topic, "payload": 1}), Need::Publish),
        (json!({"op": "PUBLISH", "topic": topic, "events": [{"payload": 1}]}), Need::Publish),
        (json!({"op": "PUBLISH", "events": [{"topic": topic, "payload": 1}]}), Need::Publish),
        (about("UNSUBSCRIBE"), Need::Subscription),
        (about("ACK"), Need::Subscription),
        (about("NACK"), Need::Subscription),
        (about("MODACK"), Need::Subscription),
        (about("PAUSE"), Need::Subscription),
        (about("RESUME"), Need::Subscription),
        (seek, Need::Manage),
        (about("SUBSCRIBE"), Need::SubscribeAs),
    ]
}
