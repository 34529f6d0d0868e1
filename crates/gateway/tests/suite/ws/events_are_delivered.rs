//! Deliveries to subscriptions, and their acks.

use std::sync::Arc;

use promethean_bus::groups::GroupProgress;
use promethean_delivery::Reason;
use promethean_gateway::GatewayOptions;
use promethean_gateway::auth::StaticTokens;
use promethean_testkit::ManualClock;
use serde_json::{Value, json};

use super::client::{Client, about};
use crate::suite::world::{NOW, StoreKind, World, soon};

async fn progress(world: &World, topic: &str, group: &str) -> GroupProgress {
    world.bus.group(&topic.parse().unwrap(), &group.parse().unwrap()).await.unwrap()
}

#[tokio::test]
async fn the_prototypes_client_works() {
    for kind in [StoreKind::Memory, StoreKind::Embedded] {
        let world = World::over(kind, GatewayOptions::default()).await;
        let mut client = world.ws().await;
        // The client sends AUTH without a token, and takes the first OK as being connected.
        client.send(json!({"op": "AUTH", "corr": "8f3a"})).await;
        assert_eq!(client.next().await, json!({"op": "OK", "corr": "8f3a"}));
        client.subscribe("heartbeat.received", "g", json!({"from": "earliest"})).await;
        for n in 0..10 {
            client
                .send(json!({"op": "PUBLISH", "topic": "heartbeat.received", "payload": {"n": n}, "corr": n}))
                .await;
        }
        let (mut replies, mut seen) = (0, Vec::new());
        while replies < 10 || seen.len() < 10 {
            let frame = client.next().await;
            if frame["op"] == "OK" {
                replies += 1;
                continue;
            }
            assert_eq!(frame["op"], "EVENT", "{frame}");
            assert_eq!((&frame["topic"], &frame["group"]), (&json!("heartbeat.received"), &json!("g")));
            assert_eq!(frame["ctx"], json!({"attempt": 1, "ack_deadline_ms": 30_000}));
            // The client acks without `corr`, and gets no reply.
            client.send(about("ACK", &frame)).await;
            seen.push(frame["event"]["payload"]["n"].clone());
        }
        assert_eq!(seen, (0..10).map(Value::from).collect::<Vec<_>>());
        // A reply to an ack means that all earlier acks are durable too.
        client
            .send(json!({"op": "UNSUBSCRIBE", "topic": "heartbeat.received", "group": "g", "corr": "u"}))
            .await;
        assert_eq!(client.next().await, json!({"op": "OK", "corr": "u"}));
        let done = async {
            while progress(&world, "heartbeat.received", "g").await.floor.get() < 10 {
                tokio::task::yield_now().await;
            }
        };
        soon("the cursor reaches the end", done).await;
        world.stop().await;
    }
}

#[tokio::test]
async fn a_dead_letter_has_the_reason_of_the_last_nack_and_who_gave_it() {
    let tokens = vec![StaticTokens::admin("shipping", &"prom_shipping".into())];
    let tokens = StaticTokens::new(tokens, Arc::new(ManualClock::new(NOW)));
    let world = World::with_auth(GatewayOptions::default(), Arc::new(tokens)).await;
    let mut client = Client::connect(world.address(), Some("prom_shipping")).await.unwrap();
    client.subscribe("t", "g", json!({"maxAttempts": 1})).await;
    client.subscribe("t", "p", json!({"maxAttempts": 1, "partitions": 2, "memberId": "worker-1"})).await;
    let bearer = [("authorization", "Bearer prom_shipping")];
    world.http().await.send("POST", "/publish/t", &bearer, "1").await.json(200);
    let mut events = Vec::new();
    while events.len() < 2 {
        let frame = client.next().await;
        events.extend((frame["op"] == "EVENT").then_some(frame));
    }
    for event in &events {
        let mut nack = about("NACK", event);
        nack["reason"] = json!("no \"stock\" left");
        client.ok(nack).await;
    }
    for (group, by) in [("g", "shipping"), ("p", "worker-1")] {
        let page = world.http().await.send("GET", &format!("/dlq?topic=t&group={group}"), &bearer, "").await;
        let letter = page.json(200)["letters"][0].clone();
        assert_eq!((&letter["reason"], &letter["by"]), (&json!("no \"stock\" left"), &json!(by)), "{letter}");
    }
    let history = world.http().await.send("GET", "/replay?topic=t.dlq", &bearer, "").await.json(200);
    let of_g = |event: &&Value| event["payload"]["group"] == "g";
    let payload = &history["events"].as_array().unwrap().iter().find(of_g).unwrap()["payload"];
    assert_eq!((&payload["reason"], &payload["by"]), (&json!("no \"stock\" left"), &json!("shipping")));
    world.stop().await;
}

#[tokio::test]
async fn stale_ids_are_named_and_the_others_are_handled() {
    let world = World::new().await;
    let mut client = world.ws().await;
    for n in 0..3 {
        world.publish("t", &n.to_string()).await;
    }
    client.subscribe("t", "g", json!({"from": "earliest"})).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(client.event().await["event"]["id"].clone());
    }
    let unknown = json!("00000000-0000-7000-8000-0000000000ff");
    let about = |op: &str, ids: &[&Value]| json!({"op": op, "topic": "t", "group": "g", "ids": ids});
    let reply = client.ok(about("MODACK", &[&ids[0], &unknown, &ids[1]])).await;
    assert_eq!((&reply["stale"], &reply["stale_ids"]), (&json!(true), &json!([unknown])));
    client.refused(about("MODACK", &[&unknown]), "unknown_id").await;
    let reply = client.ok(about("ACK", &[&unknown, &ids[0]])).await;
    assert_eq!((&reply["stale"], &reply["stale_ids"]), (&json!(true), &json!([unknown])));
    let reply = client.ok(about("NACK", &[&ids[0], &ids[1]])).await;
    assert_eq!((&reply["stale"], &reply["stale_ids"]), (&json!(true), &json!([ids[0]])));
    let reply = client.ok(about("ACK", &[&ids[2]])).await;
    assert_eq!(reply.get("stale"), None, "{reply}");
    // A reply does not grow without end.
    let many: Vec<Value> = (0..3_000).map(|n| json!(format!("00000000-0000-7000-8000-{n:012}"))).collect();
    let reply = client.ok(about("ACK", &many.iter().collect::<Vec<_>>())).await;
    assert_eq!(reply["stale_ids"].as_array().unwrap().len(), 1_000);
    world.stop().await;
}

#[tokio::test]
async fn a_second_member_of_a_name_fences_the_first_which_is_told_so() {
    let world = World::new().await;
    for opts in [json!({"memberId": "one"}), json!({"memberId": "one", "partitions": 2})] {
        let group = if opts.get("partitions").is_some() { "p" } else { "g" };
        let mut first = world.ws().await;
        first.subscribe("t", group, opts.clone()).await;
        let mut second = world.ws().await;
        second.subscribe("t", group, opts).await;
        let told = loop {
            let frame = first.next().await;
            if frame["op"] != "REBALANCE" {
                break frame;
            }
        };
        assert_eq!((&told["op"], &told["code"]), (&json!("ERR"), &json!("member_fenced")), "{told}");
        assert_eq!((&told["topic"], &told["group"]), (&json!("t"), &json!(group)), "{told}");
        assert_eq!(told.get("corr"), None);
        // Its subscription is closed, and its connection goes on.
        let id = json!("00000000-0000-7000-8000-0000000000ff");
        first.refused(json!({"op": "ACK", "topic": "t", "group": group, "id": id}), "not_subscribed").await;
        world.publish("t", "1").await;
        loop {
            let frame = second.next().await;
            if frame["op"] == "EVENT" {
                second.ok(about("ACK", &frame)).await;
                break;
            }
        }
    }
    world.stop().await;
}

#[tokio::test]
async fn a_refused_subscribe_leaves_no_group_behind() {
    let world = World::new().await;
    let mut client = world.ws().await;
    let subscribe = |opts: Value| json!({"op": "SUBSCRIBE", "topic": "t", "group": "g", "opts": opts});
    for opts in
        [json!({"partitions": 4}), json!({"partitions": 0, "memberId": "m"}), json!({"maxInFlight": 0})]
    {
        client.ask(subscribe(opts.clone())).await;
        let reply = client.ask(subscribe(opts.clone())).await;
        assert_eq!(reply["op"], "ERR", "{opts}");
        assert!(world.bus.groups(None).await.unwrap().is_empty(), "{opts}");
    }
    world.stop().await;
}

#[tokio::test]
async fn an_event_is_nacked_extended_and_acked_once() {
    let world = World::new().await;
    let mut client = world.ws().await;
    client.subscribe("t", "g", json!({"ackTimeoutMs": 1_000})).await;
    client.send(json!({"op": "PUBLISH", "topic": "t", "payload": {"n": 1.50}})).await;
    let (first, second) = (client.next().await, client.next().await);
    let event = if first["op"] == "EVENT" { first } else { second };
    client.ok(about("NACK", &event)).await;
    world.advance(200);
    let event = client.event().await;
    assert_eq!(event["ctx"]["attempt"], 2);
    // The extended lease outlives its first deadline.
    client.ok(json!({"op": "MODACK", "topic": "t", "group": "g", "id": event["event"]["id"], "extend_ms": 5_000})).await;
    world.advance(4_000);
    assert_eq!(client.ok(about("ACK", &event)).await.get("stale"), None);
    assert_eq!(client.ok(about("ACK", &event)).await["stale"], true);
    client.refused(about("MODACK", &event), "unknown_id").await;
    client.refused(json!({"op": "ACK", "topic": "t", "group": "g", "id": "x"}), "bad_request").await;
    client
        .refused(
            json!({"op": "ACK", "topic": "t", "group": "other", "id": event["event"]["id"]}),
            "not_subscribed",
        )
        .await;
    world.stop().await;
}

#[tokio::test]
async fn an_expired_lease_is_delivered_again_and_its_ack_is_stale() {
    let world = World::new().await;
    let (mut slow, mut quick) = (world.ws().await, world.ws().await);
    slow.subscribe("t", "g", json!({"ackTimeoutMs": 1_000})).await;
    quick.publish("t", json!(1)).await;
    let event = slow.event().await;
    slow.ok(json!({"op": "PAUSE", "topic": "t", "group": "g"})).await;
    quick.subscribe("t", "g", json!({})).await;
    world.advance(1_000);
    let again = quick.event().await;
    assert_eq!((&again["event"], &again["ctx"]["attempt"]), (&event["event"], &json!(2)));
    assert_eq!(slow.ok(about("ACK", &event)).await["stale"], true);
    assert_eq!(quick.ok(about("ACK", &again)).await.get("stale"), None);
    world.stop().await;
}

#[tokio::test]
async fn a_lost_connection_counts_as_an_attempt_and_leaving_does_not() {
    let world = World::new().await;
    let mut watcher = world.ws().await;
    let mut lost = world.ws().await;
    lost.subscribe("t", "g", json!({})).await;
    watcher.publish("t", json!(1)).await;
    lost.event().await;
    drop(lost);
    let mut polite = world.ws().await;
    polite.subscribe("t", "g", json!({})).await;
    // The failed attempt is followed by the server's backoff.
    let event = world.pass_time_until(200, polite.event()).await;
    assert_eq!(event["ctx"]["attempt"], 2);
    polite.ok(json!({"op": "UNSUBSCRIBE", "topic": "t", "group": "g"})).await;
    watcher.subscribe("t", "g", json!({})).await;
    assert_eq!(watcher.event().await["ctx"]["attempt"], 2);
    world.stop().await;
}

#[tokio::test]
async fn batches_are_delivered_and_acked_in_one_frame() {
    let world = World::new().await;
    let mut client = world.ws().await;
    for n in 0..5 {
        client.publish("t", json!(n)).await;
    }
    let subscribe =
        json!({"op": "SUBSCRIBE", "topic": "t", "group": "g", "batch": true, "opts": {"from": "earliest"}});
    client.ok(subscribe).await;
    let mut ids = Vec::new();
    while ids.len() < 5 {
        let frame = client.next().await;
        assert_eq!(frame["op"], "EVENTS", "{frame}");
        ids.extend(frame["events"].as_array().unwrap().iter().map(|one| one["event"]["id"].clone()));
    }
    let acked = client.ok(json!({"op": "ACK", "topic": "t", "group": "g", "ids": ids})).await;
    assert_eq!(acked.get("stale"), None);
    assert_eq!(progress(&world, "t", "g").await.floor.get(), 5);
    world.stop().await;
}

#[tokio::test]
async fn topics_of_a_pattern_may_have_the_same_id() {
    let world = World::new().await;
    let mut client = world.ws().await;
    client.subscribe("a.*", "g", json!({"from": "earliest"})).await;
    let id = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f";
    for topic in ["a.one", "a.two"] {
        client.send(json!({"op": "PUBLISH", "topic": topic, "payload": topic, "opts": {"id": id}})).await;
    }
    let mut topics = Vec::new();
    while topics.len() < 2 {
        let frame = client.next().await;
        if frame["op"] == "EVENT" {
            assert_eq!((&frame["topic"], &frame["event"]["id"]), (&json!("a.*"), &json!(id)));
            topics.push(frame["event"]["topic"].as_str().unwrap().to_owned());
        }
    }
    topics.sort();
    assert_eq!(topics, ["a.one", "a.two"]);
    // By the concrete topic, then by the pattern: each settles one.
    let ack = |topic: &str| json!({"op": "ACK", "topic": topic, "group": "g", "id": id});
    client.ok(ack("a.one")).await;
    assert_eq!(progress(&world, "a.one", "g").await.floor.get(), 1);
    assert_eq!(progress(&world, "a.two", "g").await.floor.get(), 0);
    assert_eq!(client.ok(ack("a.*")).await.get("stale"), None);
    assert_eq!(progress(&world, "a.two", "g").await.floor.get(), 1);
    assert_eq!(client.ok(ack("a.*")).await["stale"], true);
    world.stop().await;
}

#[tokio::test]
async fn an_ack_by_topic_finds_whichever_subscription_holds_the_event() {
    let world = World::new().await;
    let mut client = world.ws().await;
    // Three members of one group, over one connection.
    for subject in ["a.*", "a.b", "a.**"] {
        client.subscribe(subject, "g", json!({"from": "earliest", "maxInFlight": 4})).await;
    }
    for n in 0..12 {
        client.send(json!({"op": "PUBLISH", "topic": "a.b", "payload": n})).await;
    }
    let (mut events, mut over) = (Vec::new(), std::collections::BTreeSet::new());
    while events.len() < 12 {
        let frame = client.next().await;
        if frame["op"] == "EVENT" {
            over.insert(frame["topic"].as_str().unwrap().to_owned());
            events.push(frame["event"]["id"].clone());
        }
    }
    assert_eq!(over.len(), 3, "each has its share: {over:?}");
    let frame = |op: &str, ids: &[Value]| json!({"op": op, "topic": "a.b", "group": "g", "ids": ids});
    client.ok(frame("MODACK", &events)).await;
    assert_eq!(client.ok(frame("ACK", &events[..6])).await.get("stale"), None);
    // The same without a reply.
    client.send(frame("ACK", &events[6..])).await;
    assert_eq!(client.ok(frame("ACK", &events[..1])).await["stale"], true);
    let done = async {
        while progress(&world, "a.b", "g").await.floor.get() < 12 {
            tokio::task::yield_now().await;
        }
    };
    soon("all of them are done", done).await;
    world.stop().await;
}

#[tokio::test]
async fn what_waits_for_a_client_that_does_not_read_is_bounded() {
    const EVENTS: usize = 80;
    let world = World::new().await;
    let (mut slow, mut other) = (world.ws().await, world.ws().await);
    for group in ["one", "two"] {
        slow.subscribe("t", group, json!({"from": "earliest", "maxInFlight": 1_000})).await;
    }
    let large = "x".repeat(500_000);
    for n in 0..EVENTS {
        other.publish("t", json!({"n": n, "large": large})).await;
    }
    let mut in_flight = 0;
    for group in ["one", "two"] {
        let stopped = async {
            loop {
                let progress = progress(&world, "t", group).await;
                if progress.reason == Some(Reason::Credit) {
                    return progress.in_flight;
                }
                tokio::task::yield_now().await;
            }
        };
        in_flight += soon("the group waits for the client", stopped).await;
    }
    // 8 MiB wait for the client; some more is on its way over the socket.
    assert!(in_flight < 60, "{in_flight} events of half a megabyte are in flight");
    // Now the client reads, and gets all of them.
    let mut seen = std::collections::BTreeMap::new();
    while seen.len() < 2 * EVENTS {
        let event = slow.event().await;
        slow.send(about("ACK", &event)).await;
        let group = event["group"].as_str().unwrap().to_owned();
        assert_eq!(
            seen.insert((group, event["event"]["offset"].as_u64()), ()),
            None,
            "twice: {}",
            event["ctx"]
        );
    }
    world.stop().await;
}

#[tokio::test]
async fn without_manual_ack_a_written_event_is_done() {
    let world = World::new().await;
    let mut client = world.ws().await;
    client.subscribe("t", "g", json!({"manualAck": false})).await;
    client.publish("t", json!(1)).await;
    let done = async {
        while progress(&world, "t", "g").await.floor.get() < 1 {
            tokio::task::yield_now().await;
        }
    };
    soon("the event is done", done).await;
    world.stop().await;
}

#[tokio::test]
async fn partitions_change_hands_and_members_hear_it() {
    let world = World::new().await;
    let (mut one, mut two) = (world.ws().await, world.ws().await);
    one.subscribe("t", "g", json!({"partitions": 8, "memberId": "one"})).await;
    let first = one.next().await;
    assert_eq!((&first["op"], first["assigned"].as_array().map(Vec::len)), (&json!("REBALANCE"), Some(8)));
    two.subscribe("t", "g", json!({"partitions": 8, "memberId": "two"})).await;
    let (lost, won) = (one.next().await, two.next().await);
    assert_eq!((&lost["revoked"], &lost["epoch"]), (&won["assigned"], &won["epoch"]));
    assert!(!won["assigned"].as_array().unwrap().is_empty());
    world.stop().await;
}

#[tokio::test]
async fn a_group_is_moved() {
    let world = World::new().await;
    let mut client = world.ws().await;
    for n in 0..4 {
        client.publish("t", json!(n)).await;
    }
    client.subscribe("t", "g", json!({})).await;
    let seek = |dry: bool| json!({"op": "SEEK", "topic": "t", "group": "g", "opts": {"from": "offset", "offset": 2, "dryRun": dry}});
    let would = client.ok(seek(true)).await;
    assert_eq!(
        (&would["from"], &would["to"], &would["replayed"], &would["applied"]),
        (&json!(4), &json!(2), &json!(2), &json!(false))
    );
    client.send(seek(false)).await;
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let frame = client.next().await;
        if frame["op"] == "EVENT" {
            seen.push(frame["event"]["payload"].clone());
        }
    }
    assert_eq!(seen, [json!(2), json!(3)]);
    client
        .refused(
            json!({"op": "SEEK", "topic": "a.*", "group": "g", "opts": {"from": "latest"}}),
            "bad_request",
        )
        .await;
    client.refused(json!({"op": "SEEK", "topic": "t", "group": "g"}), "bad_request").await;
    let both = json!({"op": "SEEK", "topic": "t", "group": "g", "opts": {"from": "latest", "ts": 1}});
    client.refused(both, "bad_request").await;
    client
        .refused(
            json!({"op": "SEEK", "topic": "t", "group": "none", "opts": {"from": "latest"}}),
            "unknown_group",
        )
        .await;
    world.stop().await;
}

#[tokio::test]
async fn a_server_that_stops_says_goodbye_and_takes_back_without_blame() {
    let world = World::new().await;
    let mut client = world.ws().await;
    client.subscribe("t", "g", json!({})).await;
    client.publish("t", json!(1)).await;
    let event = client.event().await;
    assert_eq!(event["ctx"]["attempt"], 1);
    soon("the gateway stops", world.gateway.stop()).await;
    assert_eq!(client.close_code().await, 1001);
    let request = promethean_bus::subscription::Subscribe::new("t".parse().unwrap(), "g".parse().unwrap());
    let mut next = world.bus.subscribe(request).await.unwrap();
    let promethean_bus::SubscriptionItem::Leases(leases) =
        soon("the event again", next.next(1)).await.unwrap()
    else {
        panic!("no lease")
    };
    assert_eq!(leases[0].attempt, 1);
    drop((next, leases));
    world.stop().await;
}
