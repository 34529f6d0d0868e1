//! FETCH: subscriptions that pull.

use serde_json::{Value, json};

use super::client::{Client, about};
use crate::suite::world::World;

async fn fetch(client: &mut Client, max: u64, wait_ms: u64) -> Vec<Value> {
    let frame = json!({"op": "FETCH", "topic": "t", "group": "g", "max": max, "wait_ms": wait_ms});
    let reply = client.ask(frame).await;
    assert_eq!(reply["op"], "EVENTS", "{reply}");
    reply["events"].as_array().unwrap().clone()
}

fn payloads(events: &[Value]) -> Vec<u64> {
    events.iter().map(|one| one["event"]["payload"].as_u64().unwrap()).collect()
}

async fn ack(client: &mut Client, events: &[Value]) {
    let ids: Vec<_> = events.iter().map(|one| one["event"]["id"].clone()).collect();
    let reply = client.ok(json!({"op": "ACK", "topic": "t", "group": "g", "ids": ids})).await;
    assert_eq!(reply.get("stale"), None);
}

#[tokio::test]
async fn events_come_when_they_are_asked_for() {
    let world = World::new().await;
    let mut client = world.ws().await;
    for n in 0..5 {
        client.publish("t", json!(n)).await;
    }
    client.subscribe("t", "g", json!({"from": "earliest", "pull": true, "maxInFlight": 3})).await;
    let first = fetch(&mut client, 2, 5_000).await;
    assert_eq!(payloads(&first), [0, 1]);
    assert_eq!(first[0]["ctx"]["attempt"], 1);
    // Events in flight count.
    let second = fetch(&mut client, 10, 5_000).await;
    assert_eq!(payloads(&second), [2]);
    client.refused(json!({"op": "FETCH", "topic": "t", "group": "g"}), "bad_request").await;
    ack(&mut client, &first).await;
    let third = fetch(&mut client, 10, 5_000).await;
    assert_eq!(payloads(&third), [3, 4]);
    ack(&mut client, &second).await;
    ack(&mut client, &third).await;
    assert!(fetch(&mut client, 10, 10).await.is_empty());
    world.stop().await;
}

#[tokio::test]
async fn a_fetch_waits_for_its_first_event() {
    let world = World::new().await;
    let (mut client, mut other) = (world.ws().await, world.ws().await);
    client.subscribe("t", "g", json!({"pull": true})).await;
    client.send(json!({"op": "FETCH", "topic": "t", "group": "g", "wait_ms": 60_000, "corr": 1})).await;
    client.refused(json!({"op": "FETCH", "topic": "t", "group": "g"}), "conflict").await;
    other.publish("t", json!(7)).await;
    let reply = client.next().await;
    assert_eq!((&reply["corr"], payloads(reply["events"].as_array().unwrap())), (&json!(1), vec![7]));
    // An unsubscribe answers the FETCH with a refusal.
    client.send(json!({"op": "FETCH", "topic": "t", "group": "g", "wait_ms": 60_000, "corr": 2})).await;
    client.send(json!({"op": "UNSUBSCRIBE", "topic": "t", "group": "g", "corr": 3})).await;
    let reply = client.next().await;
    assert_eq!((&reply["corr"], &reply["code"]), (&json!(2), &json!("not_subscribed")));
    assert_eq!(client.next().await["corr"], 3);
    world.stop().await;
}

#[tokio::test]
async fn a_client_that_does_not_fetch_holds_no_events_back() {
    let world = World::new().await;
    let (mut pulls, mut pushed) = (world.ws().await, world.ws().await);
    pulls.subscribe("t", "g", json!({"from": "earliest", "pull": true})).await;
    pushed.publish("t", json!(0)).await;
    let first = fetch(&mut pulls, 1, 5_000).await;
    assert_eq!(payloads(&first), [0]);
    // This client asked for one event and got it; the others go to the other client.
    pushed.subscribe("t", "g", json!({})).await;
    for n in 1..20 {
        pushed.send(json!({"op": "PUBLISH", "topic": "t", "payload": n})).await;
    }
    let mut seen = Vec::new();
    while seen.len() < 19 {
        let frame = pushed.next().await;
        if frame["op"] == "EVENT" {
            seen.push(frame["event"]["payload"].as_u64().unwrap());
            pushed.send(about("ACK", &frame)).await;
        }
    }
    assert_eq!(seen, (1..20).collect::<Vec<_>>());
    pushed.refused(json!({"op": "FETCH", "topic": "t", "group": "g"}), "bad_request").await;
    world.stop().await;
}
