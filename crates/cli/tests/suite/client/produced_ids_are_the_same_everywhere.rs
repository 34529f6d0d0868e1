//! The server derives the ids of produced events as its clients do, so a transformation may move between them.

use serde_json::Value;

/// Ids that the server and all clients derive.
const GOLDEN: &str = include_str!("../../../../../fixtures/protocol/produced-ids.jsonl");

#[test]
fn ids_that_the_server_derives_are_the_golden_ones() {
    for line in GOLDEN.lines() {
        let golden: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| golden[name].as_str().unwrap();
        let (id, n) = (text("id").parse().unwrap(), golden["n"].as_u64().unwrap() as u32);
        let (group, topic) = (text("group").parse().unwrap(), text("topic").parse().unwrap());
        let derived = promethean_bus::exactly_once::produced_id(&group, &topic, &id, n).to_string();
        assert_eq!(derived, text("produced"), "{line}");
    }
}
