//! A well-behaved client, which must not notice the bad clients beside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tokio::task::JoinSet;

use super::super::ws::client::{Client, about};
use crate::suite::world::World;

pub(super) const TOPIC: &str = "witness";

pub(super) struct Witness {
    stop: Arc<AtomicBool>,
    task: JoinSet<u64>,
}

impl Witness {
    /// Publishes, receives and acks in rounds until it is ended.
    pub(super) async fn start(world: &World) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut client = world.ws().await;
        client.subscribe(TOPIC, "w", json!({"from": "earliest"})).await;
        let mut task = JoinSet::new();
        task.spawn(go_on(client, Arc::clone(&stop)));
        Self { stop, task }
    }

    /// Ends the client; the number of rounds. No event was lost, doubled, late or out of order.
    pub(super) async fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.task.join_next().await.unwrap().unwrap()
    }
}

async fn go_on(mut client: Client, stop: Arc<AtomicBool>) -> u64 {
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        client.send(json!({"op": "PUBLISH", "topic": TOPIC, "payload": rounds, "corr": "p"})).await;
        let (mut event, mut published) = (None, false);
        while event.is_none() || !published {
            let frame = client.next().await;
            match frame["op"].as_str() {
                Some("OK") if frame["offset"] == rounds => published = true,
                Some("EVENT") if frame["event"]["payload"] == rounds => event = Some(frame),
                _ => panic!("round {rounds}: {frame}"),
            }
        }
        let mut ack = about("ACK", &event.unwrap());
        ack["corr"] = json!("a");
        client.send(ack).await;
        assert_eq!(client.next().await, json!({"op": "OK", "corr": "a"}));
        rounds += 1;
    }
    rounds
}
