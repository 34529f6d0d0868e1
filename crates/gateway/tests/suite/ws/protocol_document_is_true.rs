//! The conversations and error codes of `docs/protocol.md` are true.

use std::collections::BTreeSet;

use futures_util::SinkExt;
use serde_json::Value;
use tokio_tungstenite::tungstenite::Message;

use crate::suite::world::World;

const DOCUMENT: &str = include_str!("../../../../../docs/protocol.md");
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

#[tokio::test]
async fn its_codes_are_those_of_the_description_for_programs() {
    let (_, table) = DOCUMENT.split_once("## Error codes").unwrap();
    let codes = table.lines().filter_map(|line| line.strip_prefix('|')?.split('|').next());
    let documented: BTreeSet<&str> = codes.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let world = World::new().await;
    let description = world.get("/openapi.json").await.json(200);
    let listed = &description["components"]["schemas"]["Refusal"]["properties"]["error"]["enum"];
    let listed: BTreeSet<&str> =
        listed.as_array().unwrap().iter().map(|code| code.as_str().unwrap()).collect();
    assert_eq!(documented, listed);
    world.stop().await;
}
