//! A client that acks every event and waits for the answer that the ack is durable.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;

use super::shared::{Client, Shared};
use super::{group, topic};

pub(super) async fn run(shared: Arc<Shared>, number: usize) {
    let (topic, group) = (topic(number), group(number));
    loop {
        let mut client = shared.connect().await;
        let mut waiting = BTreeSet::new();
        consume(&shared, &mut client, &topic, &group, &mut waiting).await;
        let lost = waiting.into_iter().map(|id| (group.clone(), topic.clone(), id));
        shared.deliveries.lock().unwrap().unanswered(lost);
    }
}

/// Consumes until the connection ends. `waiting` holds the ids of unanswered acks.
async fn consume(
    shared: &Shared,
    client: &mut Client,
    topic: &str,
    group: &str,
    waiting: &mut BTreeSet<String>,
) -> Option<()> {
    // Each kill uses up an attempt, so the default number would not be enough.
    let opts = json!({"from": "earliest", "maxInFlight": 20, "maxAttempts": 100});
    let subscribe = json!({"op": "SUBSCRIBE", "topic": topic, "group": group, "opts": opts});
    client.send(&subscribe).await;
    let subscribed = client.next(shared).await?;
    assert_eq!(subscribed["op"], "OK", "{subscribed}");
    loop {
        let frame = client.next(shared).await?;
        let name = |id: &str| (group.to_owned(), topic.to_owned(), id.to_owned());
        match frame["op"].as_str() {
            Some("EVENT") => {
                let id = frame["event"]["id"].as_str().unwrap();
                shared.deliveries.lock().unwrap().delivered(&name(id), client.epoch);
                waiting.insert(id.to_owned());
                let ack = json!({"op": "ACK", "topic": topic, "group": group, "id": id, "corr": id});
                client.send(&ack).await;
            }
            Some("OK") => {
                let id = frame["corr"].as_str().unwrap();
                assert!(waiting.remove(id), "an answer without an ack: {frame}");
                assert_eq!(frame.get("stale"), None, "{frame}");
                shared.deliveries.lock().unwrap().acked(name(id), client.epoch);
            }
            // The server stops: the ack may or may not be in its last commit.
            Some("ERR") if frame["code"] == "closed" => {}
            _ => panic!("{frame}"),
        }
    }
}
