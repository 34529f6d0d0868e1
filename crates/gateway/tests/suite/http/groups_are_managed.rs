use std::sync::Arc;

use promethean_bus::rows::{AskedOptions, StartPosition};
use promethean_bus::subscription::Subscribe;
use promethean_bus::{Subscription, SubscriptionItem};
use promethean_gateway::GatewayOptions;
use promethean_gateway::auth::{Grants, Quota, StaticToken, StaticTokens, TokenHash};
use promethean_testkit::ManualClock;
use serde_json::{Value, json};

use crate::suite::world::{NOW, World};

/// A member that gives an event up after one attempt.
async fn member(world: &World, topic: &str) -> Subscription {
    let options = AskedOptions {
        from: Some(StartPosition::Earliest),
        max_attempts: Some(1),
        ..AskedOptions::default()
    };
    let request = Subscribe { options, ..Subscribe::new(topic.parse().unwrap(), "g".parse().unwrap()) };
    world.bus.subscribe(request).await.unwrap()
}

/// Three events of which the group acked the first and failed at the others.
async fn world_with_letters() -> World {
    let world = World::on_disk().await;
    for (key, payload) in [("x", "0"), ("y", "1"), ("z", "2")] {
        world.publish(&format!("a?key={key}"), payload).await;
    }
    let mut member = member(&world, "a").await;
    let SubscriptionItem::Leases(leases) = member.next(10).await.unwrap() else { panic!("no partitions") };
    let (first, rest) = leases.split_at(1);
    member.ack(first).await.unwrap();
    member.nack(rest, None).await.unwrap();
    member.unsubscribe();
    world
}

fn offsets(page: &Value) -> Vec<u64> {
    page["letters"].as_array().unwrap().iter().map(|letter| letter["offset"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn groups_show_where_they_are() {
    let world = world_with_letters().await;
    world.publish("a", "3").await;
    let all = world.get("/groups").await.json(200);
    let group = &all["groups"][0];
    assert_eq!(
        (&group["group"], &group["topic"], &group["paused"]),
        (&json!("g"), &json!("a"), &json!(false))
    );
    assert_eq!(group["options"]["maxAttempts"], 1);
    let progress = &group["topics"][0];
    assert_eq!((&progress["floor"], &progress["end"], &progress["lag"]), (&json!(3), &json!(4), &json!(1)));
    assert_eq!(progress["reason"], "no_members");
    assert_eq!(world.get("/groups?topic=a").await.json(200), all);
    assert_eq!(world.get("/groups?topic=b").await.json(200), json!({"groups": []}));
    assert_eq!(world.get("/groups/g?topic=a").await.json(200), *group);
    world.get("/groups/h?topic=a").await.refused(404, "unknown_group");
    world.get("/groups/g?topic=b").await.refused(404, "unknown_group");
    world.get("/groups/g").await.refused(400, "bad_request");
    world.get("/groups/g%20h?topic=a").await.refused(400, "bad_name");

    let cursors = world.get("/cursors?topic=a").await.json(200);
    let cursor = &cursors["cursors"][0];
    assert_eq!(
        (&cursor["group"], &cursor["floor"], &cursor["last"]["offset"]),
        (&json!("g"), &json!(3), &json!(2))
    );
    world.get("/cursors").await.refused(400, "bad_request");
    let lag = world.get("/lag?topic=a&group=g").await.json(200);
    assert_eq!(
        (&lag["lag"], &lag["cursor"]["offset"], &lag["tail"]["offset"]),
        (&json!(1), &json!(2), &json!(3))
    );
    assert_eq!(lag["lag_ms"], 0);
    world.get("/lag?topic=a&group=h").await.refused(404, "unknown_group");
    let ops = world.get("/ops").await.json(200);
    assert_eq!((&ops["groups"], &ops["store"]["refusing"]), (&all["groups"], &json!(null)));
    world.stop().await;
}

/// A member named `w1` that has the first of two events of a key, and the page of its group.
#[tokio::test]
async fn blocked_keys_name_the_event_and_the_member() {
    let world = World::on_disk().await;
    let first = world.publish("a?key=x", "0").await;
    world.publish("a?key=x", "1").await;
    let options = AskedOptions {
        from: Some(StartPosition::Earliest),
        order: Some(promethean_delivery::Order::Key),
        ..AskedOptions::default()
    };
    let mut request = Subscribe { options, ..Subscribe::new("a".parse().unwrap(), "g".parse().unwrap()) };
    request.member.member_id = Some("w1".parse().unwrap());
    let mut member = world.bus.subscribe(request.clone()).await.unwrap();
    let SubscriptionItem::Leases(leases) = member.next(10).await.unwrap() else { panic!("no partitions") };
    assert_eq!(leases.len(), 1);
    // Members without a name of their own: by a token, and without one.
    (request.member.member_id, request.member.shown_as) = (None, Some("billing".into()));
    let _token = world.bus.subscribe(request.clone()).await.unwrap();
    request.member.shown_as = None;
    let _unnamed = world.bus.subscribe(request).await.unwrap();
    for path in ["/groups", "/ops", "/groups/g?topic=a", "/cursors?topic=a"] {
        let page = world.get(path).await.json(200);
        let group = page["groups"].get(0).unwrap_or(&page);
        let progress = group["topics"].get(0).or_else(|| page["cursors"].get(0)).unwrap();
        let blocked = &progress["blocked_keys"][0];
        assert_eq!((&blocked["offset"], &blocked["waiting"]), (&json!(0), &json!(1)), "{path}: {page}");
        assert_eq!((&blocked["id"], &blocked["key"]), (&first["id"], &json!("x")), "{path}: {page}");
        assert_eq!(blocked["member"], "w1", "{path}: {page}");
        let members = progress["member_list"].as_array().unwrap();
        assert_eq!(members[0], json!({"member": "w1", "in_flight": 1}), "{path}: {page}");
        assert_eq!(members[1], json!({"member": "billing", "in_flight": 0}), "{path}: {page}");
        assert!(members[2]["member"].as_str().unwrap().starts_with('#'), "{path}: {page}");
    }
    member.nack(&leases, Some(60_000)).await.unwrap();
    let page = world.get("/groups/g?topic=a").await.json(200);
    let blocked = &page["topics"][0]["blocked_keys"][0];
    assert_eq!((&blocked["id"], blocked.get("member")), (&first["id"], None), "{page}");
    world.stop().await;
}

#[tokio::test]
async fn groups_are_sought_paused_and_deleted() {
    let world = world_with_letters().await;
    let seek = async |body: &str| world.send("POST", "/groups/g/seek?topic=a", body).await;
    let dry = seek(r#"{"to":"earliest","dryRun":true}"#).await.json(200);
    assert_eq!(dry, json!({"from": 3, "to": 0, "replayed": 3, "skipped": 0, "applied": false}));
    assert_eq!(seek(r#"{"to":"offset","offset":1}"#).await.json(200)["applied"], true);
    assert_eq!(world.get("/lag?topic=a&group=g").await.json(200)["floor"], 1);
    assert_eq!(seek(r#"{"to":"latest"}"#).await.json(200)["skipped"], 2);
    assert_eq!(seek(r#"{"to":"ts","ts":0}"#).await.json(200)["to"], 0);
    seek(r#"{"to":"afterId","afterId":"f47ac10b-58cc-4372-a567-0e02b2c3d479"}"#)
        .await
        .refused(404, "unknown_event");
    seek(r#"{"to":"offset","offset":99}"#).await.refused(400, "beyond_end");
    for body in [
        "",
        "{}",
        r#"{"to":"never"}"#,
        r#"{"to":"ts"}"#,
        r#"{"to":"earliest","ts":1}"#,
        r#"{"to":"offset","offset":-1}"#,
        r#"{"to":"latest","dry_run":true}"#,
        r#"{"to":"latest","to":"earliest"}"#,
    ] {
        seek(body).await.refused(400, "bad_request");
    }
    let paused = world.send("POST", "/groups/g/pause?topic=a", "").await.json(200);
    assert_eq!(paused, json!({"group": "g", "topic": "a", "paused": true}));
    assert_eq!(world.get("/groups/g?topic=a").await.json(200)["paused"], true);
    assert_eq!(world.send("POST", "/groups/g/resume?topic=a", "").await.json(200)["paused"], false);
    world.send("POST", "/groups/h/pause?topic=a", "").await.refused(404, "unknown_group");

    let busy = member(&world, "a").await;
    world.send("DELETE", "/groups/g?topic=a", "").await.refused(409, "group_busy");
    busy.unsubscribe();
    let mut deleted = world.send("DELETE", "/groups/g?topic=a", "").await;
    while deleted.status == 409 {
        // A member leaves a moment after its subscription is dropped.
        tokio::task::yield_now().await;
        deleted = world.send("DELETE", "/groups/g?topic=a", "").await;
    }
    assert_eq!(deleted.json(200), json!({"group": "g", "topic": "a", "deleted": true}));
    world.send("DELETE", "/groups/g?topic=a", "").await.refused(404, "unknown_group");
    world.stop().await;
}

#[tokio::test]
async fn another_payload_for_a_letter_needs_the_right_to_publish() {
    let scopes = ["manage:a", "manage:a publish:a"];
    let entry = |scopes: &str| StaticToken {
        name: scopes.into(),
        hash: TokenHash::of(scopes),
        grants: Arc::new(Grants::parse(scopes.split_whitespace()).unwrap()),
        expires_ms: None,
        quota: Quota::default(),
    };
    let tokens = StaticTokens::new(scopes.map(entry).to_vec(), Arc::new(ManualClock::new(NOW)));
    let world = World::with_auth(GatewayOptions::default(), Arc::new(tokens)).await;
    let body = r#"{"offsets":[2],"to":"topic","payload":1}"#;
    let redrive = async |token: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str())];
        world.http().await.send("POST", "/dlq/redrive?topic=a&group=g", &headers, body).await
    };
    let refused = redrive(scopes[0]).await.refused(403, "forbidden");
    assert!(refused["message"].as_str().unwrap().contains("publish:a"), "{refused}");
    redrive(scopes[1]).await.refused(404, "unknown_group");
    world.stop().await;
}

#[tokio::test]
async fn dead_letters_are_browsed_redriven_and_dropped() {
    let world = world_with_letters().await;
    let list = async |more: &str| world.get(&format!("/dlq?topic=a&group=g{more}")).await.json(200);
    let all = list("").await;
    assert_eq!(offsets(&all), [1, 2]);
    let letter = &all["letters"][0];
    assert_eq!(
        (&letter["reason"], &letter["attempts"], &letter["in_topic"]),
        (&json!("nack"), &json!(1), &json!(true))
    );
    assert_eq!((&letter["event"]["payload"], &letter["event"]["key"]), (&json!(1), &json!("y")));
    let first = list("&limit=1").await;
    assert_eq!((offsets(&first), &first["next"]), (vec![1], &json!(1)));
    assert_eq!(offsets(&list("&after=1").await), [2]);
    world.get("/dlq?topic=a&group=h").await.refused(404, "unknown_group");
    world.get("/dlq?topic=a").await.refused(400, "bad_request");

    let redrive = async |body: &str| world.send("POST", "/dlq/redrive?topic=a&group=g", body).await;
    let by_filter = redrive(r#"{"filter":{"key":"y"},"to":"topic"}"#).await.json(200);
    assert_eq!((&by_filter["selected"], &by_filter["redriven"]), (&json!(1), &json!(1)));
    assert_eq!(offsets(&list("").await), [2]);
    assert_eq!(world.get("/replay?topic=a&offset=3").await.json(200)["events"][0]["payload"], 1);
    assert_eq!(redrive(r#"{"offsets":[2]}"#).await.json(200)["redriven"], 1);
    redrive(r#"{"offsets":[0]}"#).await.refused(404, "unknown_letter");
    for body in [
        r#"{"all":true,"to":"topic","payload":1}"#,
        r#"{"offsets":[1,2],"to":"topic","payload":1}"#,
        r#"{"offsets":[2],"payload":1}"#,
        r#"{"offsets":[2],"to":"group","payload":1}"#,
    ] {
        redrive(body).await.refused(400, "bad_request");
    }
    for body in [
        "",
        "{}",
        r#"{"all":false}"#,
        r#"{"ids":[]}"#,
        r#"{"all":true,"offsets":[1]}"#,
        r#"{"all":true,"to":"nowhere"}"#,
        r#"{"offsets":["1"]}"#,
        r#"{"everything":true}"#,
    ] {
        redrive(body).await.refused(400, "bad_request");
    }
    redrive(r#"{"filter":{"nothing":1}}"#).await.refused(400, "bad_filter");
    world.stop().await;

    let world = world_with_letters().await;
    let edited = r#"{"offsets":[2],"to":"topic","payload":{ "n": 1.50 }}"#;
    let done = world.send("POST", "/dlq/redrive?topic=a&group=g", edited).await.json(200);
    assert_eq!((&done["redriven"], list_ids(&world).await.len()), (&json!(1), 1));
    let copy = world.get("/replay?topic=a&offset=3").await.json(200)["events"][0].clone();
    let original = world.get("/replay?topic=a&offset=2&limit=1").await.json(200)["events"][0].clone();
    assert_eq!((&copy["payload"], &copy["caused_by"]), (&json!({"n": 1.5}), &json!([original["id"]])));
    let none = r#"{"offsets":[1],"to":"topic","payload":null}"#;
    assert_eq!(world.send("POST", "/dlq/redrive?topic=a&group=g", none).await.json(200)["redriven"], 1);
    assert_eq!(world.get("/replay?topic=a&offset=4").await.json(200)["events"][0]["payload"], Value::Null);
    world.stop().await;

    let world = world_with_letters().await;
    let drop = async |body: &str| world.send("POST", "/dlq/drop?topic=a&group=g", body).await;
    let id = list_ids(&world).await.remove(0);
    assert_eq!(drop(&format!(r#"{{"ids":["{id}"]}}"#)).await.json(200)["dropped"], 1);
    drop(r#"{"all":true,"to":"group"}"#).await.refused(400, "bad_request");
    assert_eq!(drop(r#"{"all":true}"#).await.json(200)["dropped"], 1);
    assert!(list_ids(&world).await.is_empty());
    world.stop().await;
}

async fn list_ids(world: &World) -> Vec<String> {
    let page = world.get("/dlq?topic=a&group=g").await.json(200);
    let id = |letter: &Value| letter["event"]["id"].as_str().unwrap().to_owned();
    page["letters"].as_array().unwrap().iter().map(id).collect()
}
