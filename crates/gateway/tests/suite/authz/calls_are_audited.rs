//! Audit records tell who did what.

use std::num::NonZeroU32;
use std::sync::Arc;

use promethean_gateway::GatewayOptions;
use promethean_gateway::auth::jwt::{KeySource, sign};
use promethean_gateway::auth::{
    Either, Grants, Jwt, JwtOptions, Quota, StaticToken, StaticTokens, TokenHash,
};
use promethean_testkit::ManualClock;
use serde_json::{Value, json};

use super::super::ws::client::Client;
use super::quotas_limit_tokens_and_addresses::ask;
use crate::suite::auth::SECRET;
use crate::suite::world::{NOW, World, soon};

const BOSS: &str = "boss-with-a-canary-in-the-name-of-its-token";

async fn world(topic: Option<&str>) -> World {
    let entry = |name: &str, token: &str, scopes: &str| StaticToken {
        name: name.into(),
        hash: TokenHash::of(token),
        grants: Arc::new(Grants::parse(scopes.split_whitespace()).unwrap()),
        expires_ms: None,
        quota: Quota::default(),
    };
    let tokens = vec![
        entry("boss", BOSS, "admin"),
        entry("worker", "worker-canary", "publish:** subscribe:** manage:**"),
    ];
    let tokens = StaticTokens::new(tokens, Arc::new(ManualClock::new(NOW)));
    let options =
        GatewayOptions { audit: topic.map(|topic| topic.parse().unwrap()), ..GatewayOptions::default() };
    World::with_auth(options, Arc::new(tokens)).await
}

/// All records, after so many are written.
async fn records(world: &World, count: usize) -> Vec<Value> {
    let read = async {
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(10));
        loop {
            ticks.tick().await;
            let (status, _, page) = ask(world, "GET", "/replay?topic=audit.events", BOSS, "").await;
            assert_eq!(status, 200, "{page}");
            let events = page["events"].as_array().unwrap();
            if events.len() >= count {
                return events.iter().map(|event| event["payload"].clone()).collect::<Vec<_>>();
            }
        }
    };
    let all = soon("the records", read).await;
    assert_eq!(all.len(), count, "{all:#?}");
    all
}

#[tokio::test]
async fn who_came_was_refused_and_changed_something_is_written_down() {
    let world = world(Some("audit.events")).await;
    let mut client = Client::connect(world.address(), Some("worker-canary")).await.unwrap();
    client.publish("t", json!(1)).await;
    client.subscribe("t", "g", json!({})).await;
    client.ok(json!({"op": "AUTH", "token": BOSS})).await;
    client.refused(json!({"op": "AUTH", "token": "guess-canary"}), "bad_token").await;
    client.ok(json!({"op": "AUTH", "token": "worker-canary"})).await;
    client.ok(json!({"op": "SEEK", "topic": "t", "group": "g", "opts": {"from": "earliest"}})).await;
    // Reading and publishing are not recorded; changes are.
    assert_eq!(ask(&world, "GET", "/topics", "worker-canary", "").await.0, 200);
    assert_eq!(ask(&world, "PUT", "/topics/t", "worker-canary", "{\"max_attempts\":7}").await.0, 200);
    assert_eq!(ask(&world, "POST", "/groups/none/pause?topic=t", "worker-canary", "").await.0, 404);
    assert_eq!(ask(&world, "GET", "/metrics", "worker-canary", "").await.0, 403);
    assert_eq!(ask(&world, "GET", "/topics", "guess-canary", "").await.0, 401);
    let all = records(&world, 9).await;
    let seen: Vec<String> = all
        .iter()
        .map(|record| {
            let text = |name: &str| record[name].as_str().unwrap_or("-").to_owned();
            assert_eq!(record["from"], "127.0.0.1", "{record}");
            assert!(record.get("lost").is_none(), "{record}");
            format!("{} {} {} {}", text("who"), text("what"), text("on"), text("outcome"))
        })
        .collect();
    assert_eq!(
        seen,
        [
            "worker connect - ok",
            "boss AUTH - ok",
            "- auth - bad_token",
            "worker AUTH - ok",
            "worker SEEK t g ok",
            "worker setTopic t ok",
            "worker pauseGroup t none unknown_group",
            "worker metrics - forbidden",
            "- auth - bad_token",
        ]
    );
    assert!(all[5]["request_id"].as_str().is_some_and(|id| !id.is_empty()));
    assert!(!format!("{all:?}").contains("canary"), "{all:?}");
    world.stop().await;
}

#[tokio::test]
async fn nobody_writes_to_it_and_only_who_may_everything_changes_it() {
    let world = world(Some("audit.events")).await;
    let mut client = Client::connect(world.address(), Some("worker-canary")).await.unwrap();
    let mut boss = Client::connect(world.address(), Some(BOSS)).await.unwrap();
    let publish = json!({"op": "PUBLISH", "topic": "audit.events", "payload": 1});
    for token in ["worker-canary", BOSS] {
        let client = if token == BOSS { &mut boss } else { &mut client };
        client.refused(publish.clone(), "forbidden").await;
        client
            .refused(
                json!({"op": "PUBLISH", "topic": "t", "events": [{"topic": "audit.events", "payload": 1}]}),
                "forbidden",
            )
            .await;
        for path in ["/publish/audit.events", "/publish/audit.events/batch"] {
            let (status, _, body) = ask(&world, "POST", path, token, "{\"payload\":1}").await;
            assert_eq!((status, &body["error"]), (403, &json!("forbidden")), "{path}");
        }
    }
    client.refused(json!({"op": "SEEK", "topic": "audit.events", "group": "g"}), "forbidden").await;
    for (method, path, body) in [
        ("PUT", "/topics/audit.events", "{}"),
        ("DELETE", "/topics/audit.events", ""),
        ("POST", "/schemas/audit.events", "true"),
        ("POST", "/dlq/drop?topic=audit.events&group=g", "{\"all\":true}"),
    ] {
        assert_eq!(ask(&world, method, path, "worker-canary", body).await.0, 403, "{method} {path}");
    }
    assert_eq!(
        ask(&world, "PUT", "/topics/audit.events", BOSS, "{\"retention\":{\"age\":\"30d\"}}").await.0,
        200
    );
    let all = records(&world, 16).await;
    assert!(all.iter().filter(|record| record["outcome"] == "forbidden").count() == 13, "{all:#?}");
    world.stop().await;
}

#[tokio::test]
async fn a_signed_token_cannot_pass_for_a_listed_one() {
    let clock = Arc::new(ManualClock::new(NOW));
    let listed = StaticToken {
        name: "boss".into(),
        hash: TokenHash::of(BOSS),
        grants: Arc::new(Grants::everything()),
        expires_ms: None,
        quota: Quota::default(),
    };
    let keys = KeySource::Secret(SECRET.into());
    let jwt = JwtOptions { keys, issuer: None, audience: vec![], leeway_ms: 0 };
    let auth = Either {
        listed: StaticTokens::new(vec![listed], clock.clone()),
        signed: Jwt::new(jwt, clock).unwrap(),
    };
    let quota = Quota { publish_per_second: NonZeroU32::new(1), ..Quota::default() };
    let audit = Some("audit.events".parse().unwrap());
    let options = GatewayOptions { audit, quota, ..GatewayOptions::default() };
    let world = World::with_auth(options, Arc::new(auth)).await;
    let claims = json!({"sub": "boss", "exp": NOW / 1000 + 60, "scope": "admin"});
    let signed = sign::hs256(&SECRET.into(), &claims).unwrap();
    let signed = signed.reveal_text().unwrap();
    let mut client = Client::connect(world.address(), Some(BOSS)).await.unwrap();
    client.publish("t", json!(1)).await;
    client.ok(json!({"op": "AUTH", "token": signed})).await;
    assert_eq!(ask(&world, "PUT", "/topics/t", signed, "{}").await.0, 200);
    assert_eq!(ask(&world, "PUT", "/topics/t", BOSS, "{}").await.0, 200);
    let seen: Vec<Value> =
        records(&world, 4).await.iter().map(|record| json!([record["who"], record["known"]])).collect();
    let (listed, signed_one) = (json!(["boss", "listed"]), json!(["boss", "signed"]));
    assert_eq!(seen, [listed.clone(), signed_one.clone(), signed_one, listed]);
    // Nor does the one use up the quota of the other.
    client.publish("t", json!(2)).await;
    client.refused(json!({"op": "PUBLISH", "topic": "t", "payload": 3}), "rate_limited").await;
    world.stop().await;
}

#[tokio::test]
async fn what_finds_no_room_is_counted_and_told() {
    let world = world(Some("audit.events")).await;
    let mut client = Client::connect(world.address(), Some("worker-canary")).await.unwrap();
    // A client can cause any number of refusals; at most a thousand at once are recorded.
    for n in 0..1_200 {
        client.send(json!({"op": "PUBLISH", "topic": "audit.events", "payload": n})).await;
    }
    for _ in 0..1_200 {
        assert_eq!(client.next().await["code"], "forbidden");
    }
    client.ok(json!({"op": "AUTH", "token": "worker-canary"})).await;
    let read = async {
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(10));
        loop {
            ticks.tick().await;
            let (_, _, page) = ask(&world, "GET", "/replay?topic=audit.events&limit=10000", BOSS, "").await;
            let events = page["events"].as_array().unwrap().clone();
            if events.last().is_some_and(|event| event["payload"]["what"] == "AUTH") {
                return events;
            }
        }
    };
    let events = soon("the records", read).await;
    assert_eq!(events.len(), 1_002);
    let lost: u64 = events.iter().filter_map(|event| event["payload"]["lost"].as_u64()).sum();
    assert_eq!(lost, 200);
    let page = world.bus.metrics().registry().render();
    assert!(page.contains("audit_records_lost_total 200"), "{page}");
    world.stop().await;
}

#[tokio::test]
async fn nothing_is_written_unless_it_is_asked_for() {
    let world = world(None).await;
    let mut client = Client::connect(world.address(), Some("worker-canary")).await.unwrap();
    client.publish("audit.events", json!(1)).await;
    let (_, _, page) = ask(&world, "GET", "/replay?topic=audit.events", BOSS, "").await;
    assert_eq!(page["count"], 1);
    world.stop().await;
}

#[tokio::test]
async fn a_seek_on_the_audit_topic_says_why_it_is_refused() {
    let world = world(Some("audit.events")).await;
    let mut client = Client::connect(world.address(), Some("worker-canary")).await.unwrap();
    let seek = json!({"op": "SEEK", "topic": "audit.events", "group": "g", "opts": {"from": "earliest"}});
    let refused = client.refused(seek, "forbidden").await;
    let message = refused["msg"].as_str().unwrap();
    assert!(message.contains("`audit.events` holds the audit records"), "{message}");
    world.stop().await;
}
