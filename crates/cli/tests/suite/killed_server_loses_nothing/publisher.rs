//! A client that publishes each event with its own id until it is acknowledged.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use promethean_testkit::ledger::{Invocation, payload_hash};
use serde_json::{Value, json};

use super::shared::{Client, Shared};
use super::topic;

pub(super) async fn run(shared: Arc<Shared>, number: usize) {
    let mut client = shared.connect().await;
    for count in 0_u64.. {
        if shared.done.load(Ordering::Relaxed) {
            return;
        }
        let id = format!("{number:08x}-0000-7000-8000-{count:012x}");
        while !publish(&shared, &mut client, number, &id).await {
            client = shared.connect().await;
        }
    }
}

/// Returns whether the event was acknowledged; if not, the connection is over.
async fn publish(shared: &Shared, client: &mut Client, number: usize, id: &str) -> bool {
    let payload = json!({"by": number, "id": id});
    let key = format!("k{number}");
    let invocation = Invocation {
        producer: format!("p{number}"),
        topic: topic(number),
        id: id.to_owned(),
        key: Some(key.clone()),
        payload: payload_hash(payload.to_string().as_bytes()),
        batch: None,
    };
    let op = shared.ledger.record_invoked(invocation);
    let opts = json!({"id": id, "key": key});
    let frame =
        json!({"op": "PUBLISH", "topic": topic(number), "payload": payload, "opts": opts, "corr": id});
    client.send(&frame).await;
    match client.next(shared).await {
        Some(answer) if answer["op"] == "OK" => {
            assert_eq!((&answer["corr"], &answer["id"]), (&json!(id), &json!(id)));
            shared.ledger.record_ok(op, answer["offset"].as_u64().unwrap());
            shared.acknowledged.fetch_add(1, Ordering::Relaxed);
            shared.doubled.fetch_add(u64::from(answer["duplicate"] == true), Ordering::Relaxed);
            true
        }
        // The server stops and has refused the event.
        Some(answer) if answer["code"] == "closed" => {
            shared.ledger.record_fail(op);
            let end: Option<Value> = client.next(shared).await;
            assert_eq!(end, None);
            false
        }
        Some(answer) => panic!("{answer}"),
        None => {
            shared.ledger.record_unknown(op);
            shared.unknown.fetch_add(1, Ordering::Relaxed);
            false
        }
    }
}
