//! The conversations and error codes of `docs/protocol.md` are true.

use std::collections::BTreeSet;

use futures_util::SinkExt;
use serde_json::Value;
use tokio_tungstenite::tungstenite::Message;

use crate::suite::world::World;

const DOCUMENT: &str = include_str!("../../../../../docs/protocol.md");
/// The sources that contain error codes.
const SOURCES: [&str; 12] = [
    include_str!("../../../../bus/src/error/code.rs"),
    include_str!("../../../../delivery/src/error.rs"),
    include_str!("../../../../projections/src/error.rs"),
    include_str!("../../../src/refusal.rs"),
    include_str!("../../../src/auth/authenticator.rs"),
    include_str!("../../../src/usage/accounts.rs"),
    include_str!("../../../src/ws/ack.rs"),
    include_str!("../../../src/ws/fetch.rs"),
    include_str!("../../../src/ws/subscribe.rs"),
    include_str!("../../../src/ws/upgrade.rs"),
    include_str!("../../../../model/src/name/error.rs"),
    include_str!("../../../../model/src/wire/client.rs"),
];
/// Has the codes of the store's read errors, which reach clients through collections.
const STORE_ERRORS: &str = include_str!("../../../../store/src/port/error.rs");

/// Whether a frame is as the document says; `"..."` stands for any value.
fn fits(expected: &Value, actual: &Value) -> bool {
    match (expected, actual) {
        (Value::String(any), _) if any == "..." => true,
        (Value::Object(expected), Value::Object(actual)) => {
            expected.len() == actual.len()
                && expected
                    .iter()
                    .all(|(name, value)| actual.get(name).is_some_and(|actual| fits(value, actual)))
        }
        (Value::Array(expected), Value::Array(actual)) => {
            expected.len() == actual.len() && expected.iter().zip(actual).all(|(a, b)| fits(a, b))
        }
        _ => expected == actual,
    }
}

#[tokio::test]
async fn its_conversations_happen() {
    let mut conversations = 0;
    for block in DOCUMENT.split("```protocol\n").skip(1) {
        conversations += 1;
        let world = World::new().await;
        let mut client = world.ws().await;
        let mut event_id = String::new();
        let mut lines = block.split("```").next().unwrap().lines().peekable();
        while lines.peek().is_some() {
            while let Some(sent) = lines.peek().and_then(|line| line.strip_prefix("> ")) {
                client.socket.send(Message::text(sent.replace("$event.id", &event_id))).await.unwrap();
                lines.next();
            }
            let mut expected: Vec<Value> = Vec::new();
            while let Some(line) = lines.peek().and_then(|line| line.strip_prefix("< ")) {
                expected.push(serde_json::from_str(line).unwrap());
                lines.next();
            }
            // A reply and a delivery may change places.
            while !expected.is_empty() {
                let actual = client.next().await;
                let at = expected.iter().position(|expected| fits(expected, &actual));
                expected.remove(at.unwrap_or_else(|| panic!("expected {expected:?}\n     got {actual}")));
                if let Some(id) = actual["event"]["id"].as_str() {
                    event_id = id.to_owned();
                }
            }
        }
        world.stop().await;
    }
    assert!(conversations >= 4);
}

#[test]
fn its_codes_are_those_of_the_code() {
    let (_, table) = DOCUMENT.split_once("## Error codes").unwrap();
    let codes = table.lines().filter_map(|line| line.strip_prefix('|')?.split('|').next());
    let documented: BTreeSet<&str> = codes.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    // Words that look like codes, on lines that give codes.
    let word = |text: &'static str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let given = |source: &'static str| {
        let source = source.split("#[cfg(test)]").next().unwrap_or_default();
        source.lines().flat_map(move |line| {
            let is_code =
                line.contains("=> \"") || line.contains("StatusCode::") || line.trim().starts_with('"');
            line.split('"').skip(1).step_by(2).filter(move |text| {
                is_code && word(text) && text.contains('_') || is_code && NO_UNDERSCORE.contains(text)
            })
        })
    };
    let read_errors = STORE_ERRORS.split("impl ReadError").nth(1).unwrap().split("\n}\n").next().unwrap();
    let in_code: BTreeSet<&str> = SOURCES.into_iter().chain([read_errors]).flat_map(given).collect();
    let missing: Vec<_> = in_code.difference(&documented).filter(|code| !NO_CODES.contains(code)).collect();
    assert!(missing.is_empty(), "not documented: {missing:?}");
    let gone: Vec<_> = documented.difference(&in_code).filter(|code| **code != "internal").collect();
    assert!(gone.is_empty(), "documented, but not in the code: {gone:?}");
}

/// Codes without an underscore.
const NO_UNDERSCORE: [&str; 8] =
    ["rebuilding", "busy", "unauthorized", "forbidden", "conflict", "fenced", "poisoned", "closed"];
/// Field names on such lines.
const NO_CODES: [&str; 2] = ["retry_after_ms", "delay_ms"];
