//! PUBLISH: replies in the order of the frames.

use promethean_bus::limits::Rate;
use promethean_gateway::GatewayOptions;
use serde_json::{Value, json};

use crate::suite::world::{StoreKind, World};

#[tokio::test]
async fn many_at_once_are_answered_in_order_at_offsets_in_order() {
    for kind in [StoreKind::Memory, StoreKind::Embedded] {
        let world = World::over(kind, GatewayOptions::default()).await;
        let mut client = world.ws().await;
        let count = 5_000_u64;
        for n in 0..count {
            // An event with an expected offset has a commit of its own, and must keep its place.
            let opts = if n % 97 == 3 { json!({"expected_offset": n}) } else { json!({}) };
            client.send(json!({"op": "PUBLISH", "topic": "t", "payload": n, "opts": opts, "corr": n})).await;
        }
        for n in 0..count {
            let reply = client.next().await;
            assert_eq!(
                (&reply["op"], &reply["corr"], &reply["offset"]),
                (&json!("OK"), &json!(n), &json!(n))
            );
        }
        world.stop().await;
    }
}

#[tokio::test]
async fn a_reply_says_where_the_event_is() {
    let world = World::new().await;
    let mut client = world.ws().await;
    let id = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f";
    let event =
        json!({"op": "PUBLISH", "topic": "t", "payload": {"a": 1}, "opts": {"id": id, "ts": 5, "key": "k"}});
    let first = client.ok(event.clone()).await;
    let expected = json!({"op": "OK", "id": id, "topic": "t", "offset": 0, "ts": 5, "durability": "memory", "corr": "c1"});
    assert_eq!(first, expected);
    let again = client.ok(event).await;
    assert_eq!((&again["offset"], &again["duplicate"]), (&json!(0), &json!(true)));
    let other = json!({"op": "PUBLISH", "topic": "t", "payload": {"a": 2}, "opts": {"id": id, "key": "k"}});
    client.refused(other, "id_conflict").await;
    // A frame without `corr` gets a reply too.
    client.send(json!({"op": "PUBLISH", "topic": "t", "payload": null})).await;
    assert_eq!(client.next().await["offset"], 1);
    world.stop().await;
}

#[tokio::test]
async fn a_batch_is_all_or_nothing() {
    let world = World::new().await;
    let mut client = world.ws().await;
    let batch =
        json!({"op": "PUBLISH", "topic": "a", "events": [{"payload": 1}, {"topic": "b", "payload": 2}]});
    let reply = client.ok(batch).await;
    assert_eq!((&reply["count"], &reply["duplicates"]), (&json!(2), &json!(0)));
    assert_eq!(reply["ids"].as_array().map(Vec::len), Some(2));
    let bad = json!({"op": "PUBLISH", "topic": "a", "events": [{"payload": 1}, {"payload": 2, "opts": {"expected_offset": 9}}]});
    client.refused(bad, "conflict").await;
    assert_eq!(client.publish("a", json!(3)).await["offset"], 1);
    world.stop().await;
}

#[tokio::test]
async fn what_is_wrong_with_an_event_is_said_and_others_are_not_hurt() {
    let world = World::new().await;
    let mut client = world.ws().await;
    let publish =
        |topic: &str, opts: Value| json!({"op": "PUBLISH", "topic": topic, "payload": 1, "opts": opts});
    client.refused(publish("UPPER", json!({})), "bad_name").await;
    client.refused(publish("a/../b", json!({})), "bad_name").await;
    client.refused(publish("_system", json!({})), "reserved_name").await;
    client.refused(publish("t", json!({"headers": {"a": "b\r\nc"}})), "control_character").await;
    client.refused(publish("t", json!({"colour": "red"})), "bad_request").await;
    client.refused(publish("t", json!({"key": 5})), "bad_request").await;
    client.refused(publish("t", json!({"id": "five"})), "bad_request").await;
    client.refused(publish("t", json!({"key": "k".repeat(2_000)})), "key_too_large").await;
    client.refused(publish("t", json!({"expected_offset": 7})), "conflict").await;
    client.refused(json!({"op": "PUBLISH", "topic": "t"}), "bad_request").await;
    client.refused(json!({"op": "PUBLISH", "payload": 1}), "bad_request").await;
    client
        .refused(json!({"op": "PUBLISH", "topic": "t", "payload": "x".repeat(1 << 21)}), "payload_too_large")
        .await;
    client.refused(json!({"op": "NONSENSE"}), "unknown_op").await;
    assert_eq!(client.publish("t", json!(1)).await["offset"], 0);
    world.stop().await;
}

#[tokio::test]
async fn a_connection_has_its_rate_and_says_when_to_try_again() {
    let rate = Rate { per_second: 10.try_into().unwrap(), burst: 2.try_into().unwrap() };
    let world =
        World::with_options(GatewayOptions { publish_rate: Some(rate), ..GatewayOptions::default() }).await;
    let (mut fast, mut other) = (world.ws().await, world.ws().await);
    fast.publish("t", json!(1)).await;
    fast.publish("t", json!(2)).await;
    let refused = fast.refused(json!({"op": "PUBLISH", "topic": "t", "payload": 3}), "rate_limited").await;
    assert_eq!(refused["retry_after_ms"], 100);
    other.publish("t", json!(4)).await;
    world.advance(100);
    fast.publish("t", json!(3)).await;
    world.stop().await;
}

#[tokio::test]
async fn frames_are_counted_by_what_they_ask_for() {
    let world = World::new().await;
    let mut client = world.ws().await;
    client.publish("t", json!(1)).await;
    client.ok(json!({"op": "PUBLISH", "topic": "t", "events": [{"payload": 1}]})).await;
    client.subscribe("t", "g", json!({})).await;
    client.refused(json!({"op": "DANCE"}), "unknown_op").await;
    client.ok(json!({"op": "AUTH"})).await;
    let page = world.bus.metrics().registry().render();
    for (op, count) in [("PUBLISH", 2), ("SUBSCRIBE", 1), ("unknown", 1), ("AUTH", 1), ("ACK", 0)] {
        let line = format!("ws_frames_total{{op=\"{op}\"}} {count}\n");
        assert!(page.contains(&line), "{line} in {page}");
    }
    world.stop().await;
}
