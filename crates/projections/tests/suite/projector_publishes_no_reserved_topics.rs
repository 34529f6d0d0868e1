//! A program publishes to the topics that clients may publish to, and to no topic of the system.

use promethean_projections::{Activity, OnFailure, Projector, Timer};
use serde_json::json;

use super::world::*;

on_both_stores!(a_reserved_topic_is_a_failure_of_its_event, a_reserved_topic_halts_a_projector_that_halts);

const FORWARD: &str = r#"
    {publish: {topic: .payload.to, key: .key, payload: {forged: true}}},
    {upsert: {collection: "docs", key: .key, set: {a: .payload.to}}}
"#;

const RESERVED: [&str; 6] =
    ["docs.changed", "other.changed", "in.dlq", "in.snapshot", "_sys", "orders.placed.v2"];

async fn a_reserved_topic_is_a_failure_of_its_event(kind: StoreKind) {
    let world = World::running(kind).await;
    let mut all = declared(projector(jq(FORWARD), &["docs"]));
    all.collections[0].history = true;
    let projections = world.open_projections(all).await;
    for (n, to) in RESERVED.iter().chain(&["out"]).enumerate() {
        world.publish_json("in", &format!("k{n}"), &json!({ "to": to }).to_string()).await;
    }
    let status = caught_up(&world, &projections, "p").await;
    assert_eq!((status.dead_letters, status.projected), (6, 1));
    assert!(status.last_error.unwrap().contains("reserved"));
    assert_eq!(payloads(&world, "out").await, [json!({"forged": true})]);
    for to in RESERVED {
        assert!(!payloads(&world, to).await.contains(&json!({"forged": true})), "{to}");
    }
    // Its own feed is written by the server, with documents only.
    let feed = payloads(&world, "docs.changed").await;
    assert_eq!(feed.len(), 1);
    assert_eq!((&feed[0]["_key"], &feed[0]["a"]), (&json!("k6"), &json!("out")));
    projections.close().await;
}

async fn a_reserved_topic_halts_a_projector_that_halts(kind: StoreKind) {
    let world = World::running(kind).await;
    let halting = Projector { on_failure: OnFailure::Halt, ..projector(jq(FORWARD), &["docs"]) };
    let projections = world.open_projections(declared(halting)).await;
    world.publish_json("in", "k", r#"{"to":"docs.changed"}"#).await;
    let status = until(&projections, "p", |status| status.activity == Activity::Halted).await;
    assert!(status.last_error.unwrap().contains("reserved"));
    assert_eq!(docs(&world, "docs").await, [json!(null); 0]);
    projections.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_publishes_to_no_reserved_topic() {
    let world = World::running(StoreKind::Memory).await;
    let timer = Timer {
        every: std::time::Duration::from_millis(10),
        over: collection("docs"),
        program: promethean_jq::Program::compile(
            r#"{publish: {topic: (.doc.a + ".dlq"), payload: {forged: true}}}"#,
        )
        .unwrap(),
    };
    let logic = jq(r#"{upsert: {collection: "docs", key: .key, set: {a: "in"}}}"#);
    let projections = world
        .open_projections(declared(Projector { timer: Some(timer), ..projector(logic, &["docs"]) }))
        .await;
    world.publish_json("in", "k", "{}").await;
    let status =
        until(&projections, "p", |status| status.timer_runs > 2 && status.last_error.is_some()).await;
    assert!(status.last_error.unwrap().contains("reserved"));
    assert_eq!(payloads(&world, "in.dlq").await, [json!(null); 0]);
    projections.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_topic_of_audit_records_is_reserved() {
    let world = World::running(StoreKind::Memory).await;
    let mut all = declared(projector(jq(FORWARD), &["docs"]));
    all.reserved.insert(topic("audit.events"));
    let projections = world.open_projections(all).await;
    world.publish_json("in", "k", r#"{"to":"audit.events"}"#).await;
    let status = caught_up(&world, &projections, "p").await;
    assert_eq!((status.dead_letters, payloads(&world, "audit.events").await), (1, Vec::new()));
    projections.close().await;
}

#[test]
fn a_name_that_is_written_out_is_refused_at_the_start() {
    for to in RESERVED.iter().chain(&["audit.events"]) {
        let program = format!(r#"{{publish: {{topic: "{to}", payload: {{}}}}}}"#);
        let mut all = declared(projector(jq(&program), &["docs"]));
        all.reserved.insert(topic("audit.events"));
        let refused = all.validate().unwrap_err();
        assert_eq!(refused.code(), "bad_declaration");
        assert!(refused.to_string().contains("reserved"), "{refused}");
        let timer = Timer {
            every: std::time::Duration::from_secs(1),
            over: collection("docs"),
            program: promethean_jq::Program::compile(&program).unwrap(),
        };
        let mut all = declared(Projector { timer: Some(timer), ..projector(jq("empty"), &["docs"]) });
        all.reserved.insert(topic("audit.events"));
        assert!(all.validate().is_err());
    }
}
