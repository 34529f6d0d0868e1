//! Frames of a client.

use std::fmt::Write;

use promethean_model::EventId;
use promethean_model::wire::{Op, PublishOpts};
use serde::Serialize;

use crate::error::ClientError;

/// Bytes of a publish around its payload, about.
const AROUND_BYTES: usize = 160;

/// The mark of a frame, which its answer repeats. Publishes have numbers of their own, which are dense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameMark {
    /// A number: a publish.
    Publish(u64),
    /// A text such as `r7`: anything else.
    Request(u64),
}

/// The JSON text of a payload.
pub(crate) fn payload_json<T: Serialize + ?Sized>(payload: &T) -> Result<String, ClientError> {
    serde_json::to_string(payload).map_err(|cause| {
        let message = format!("the payload cannot be JSON: {cause}; convert it first");
        ClientError::new("bad_payload", message).because(cause)
    })
}

/// A `PUBLISH` of one event, without its end.
pub(crate) fn publish(topic: &str, payload: &str, opts: &PublishOpts<'_>) -> String {
    let mut text = String::with_capacity(AROUND_BYTES + topic.len() + payload.len());
    text.push_str(r#"{"op":"PUBLISH","topic":"#);
    push_json(&mut text, topic);
    text.push_str(r#","payload":"#);
    text.push_str(payload);
    push_opts(&mut text, opts);
    text
}

/// A `PUBLISH` of several events, without its end.
pub(crate) fn publish_many<'a>(
    events: impl Iterator<Item = (&'a str, &'a str, PublishOpts<'a>)>,
    topic: Option<&str>,
) -> String {
    let mut text = String::from(r#"{"op":"PUBLISH""#);
    if let Some(topic) = topic {
        text.push_str(r#","topic":"#);
        push_json(&mut text, topic);
    }
    text.push_str(r#","events":["#);
    for (n, (topic, payload, opts)) in events.enumerate() {
        text.push_str(if n == 0 { "{" } else { ",{" });
        if !topic.is_empty() {
            text.push_str(r#""topic":"#);
            push_json(&mut text, topic);
            text.push(',');
        }
        text.push_str(r#""payload":"#);
        text.push_str(payload);
        push_opts(&mut text, &opts);
        text.push('}');
    }
    text.push(']');
    text
}

fn push_opts(text: &mut String, opts: &PublishOpts<'_>) {
    let has_others = opts.ts.is_some()
        || opts.key.is_some()
        || opts.headers.is_some()
        || opts.tags.is_some()
        || opts.caused_by.is_some()
        || opts.sid.is_some()
        || opts.partition.is_some()
        || opts.expected_offset.is_some()
        || opts.expected_key_offset.is_some();
    if has_others {
        text.push_str(r#","opts":"#);
        push_json(text, opts);
    } else if let Some(id) = &opts.id {
        // Only an id is what is published most, so it is written without a detour.
        text.push_str(r#","opts":{"id":""#);
        text.push_str(id.encode_text(&mut [0; EventId::TEXT_BYTES]));
        text.push_str(r#""}"#);
    }
}

/// The beginning of a frame about a subscription: op, topic and group.
pub(crate) fn about(op: Op, topic: &str, group: &str) -> String {
    let mut text = format!(r#"{{"op":"{}","topic":"#, op.name());
    push_json(&mut text, topic);
    text.push_str(r#","group":"#);
    push_json(&mut text, group);
    text
}

/// An `AUTH`, without its end.
pub(crate) fn auth(token: Option<&str>) -> String {
    let mut text = String::from(r#"{"op":"AUTH""#);
    if let Some(token) = token {
        field(&mut text, "token", token);
    }
    text
}

/// Adds a field.
pub(crate) fn field<T: Serialize + ?Sized>(text: &mut String, name: &str, value: &T) {
    text.push_str(",\"");
    text.push_str(name);
    text.push_str("\":");
    push_json(text, value);
}

/// Adds the ids of events.
pub(crate) fn ids<'a>(text: &mut String, ids: impl Iterator<Item = &'a EventId>) {
    text.push_str(r#","ids":["#);
    for (n, id) in ids.enumerate() {
        text.push_str(if n == 0 { "\"" } else { ",\"" });
        text.push_str(id.encode_text(&mut [0; EventId::TEXT_BYTES]));
        text.push('"');
    }
    text.push(']');
}

/// Ends a frame with its mark.
pub(crate) fn end(text: &mut String, mark: FrameMark) {
    // Writing to a text cannot fail.
    let _ = match mark {
        FrameMark::Publish(number) => write!(text, r#","corr":{number}}}"#),
        FrameMark::Request(number) => write!(text, r#","corr":"r{number}"}}"#),
    };
}

/// Appends a value that can always be JSON: texts, numbers, maps of texts.
fn push_json<T: Serialize + ?Sized>(text: &mut String, value: &T) {
    match serde_json::to_string(value) {
        Ok(json) => text.push_str(&json),
        Err(_) => text.push_str("null"),
    }
}
