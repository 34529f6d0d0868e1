//! A rebuild makes state anew beside the served state.

use promethean_bus::dead_letters::{LetterChoice, RedriveTo};
use promethean_projections::{Activity, Direction, Index, OnFailure, Projector, StartAt};
use serde_json::json;

use super::world::*;

on_both_stores!(
    a_rebuild_is_equal_and_publishes_nothing,
    a_rebuild_applies_a_new_definition,
    a_rebuild_under_load_loses_nothing,
    another_index_is_a_reason_to_rebuild,
    events_go_on_while_an_index_is_taken_away,
    a_rebuild_leaves_to_the_projector_what_it_has_not_done,
    a_rebuild_leaves_out_what_was_given_up,
    a_rebuild_begins_where_the_state_does,
    a_topic_that_was_deleted_meanwhile_can_be_rebuilt,
);

const COUNT: &str = r#"
    {upsert: {collection: "docs", key: .key, set: .payload, inc: {seen: 1}}},
    {publish: {topic: "out", key: .key, payload: .payload}}
"#;

async fn rebuilt(projections: &promethean_projections::Projections) -> promethean_projections::RebuildStatus {
    projections.rebuild(&group("p"), false).await.unwrap();
    let is_over = |status: &promethean_projections::ProjectorStatus| {
        status.rebuild.as_ref().is_some_and(|rebuild| !rebuild.running)
    };
    until(projections, "p", is_over).await.rebuild.unwrap()
}

async fn a_rebuild_is_equal_and_publishes_nothing(kind: StoreKind) {
    let world = World::running(kind).await;
    let projections = world.open_projections(declared(projector(jq(COUNT), &["docs"]))).await;
    for n in 0..500 {
        world.publish_json("in", &format!("k{}", n % 11), &format!(r#"{{"n":{n}}}"#)).await;
    }
    caught_up(&world, &projections, "p").await;
    let hash = projections.state_hash(&[collection("docs")]).await.unwrap();
    let status = rebuilt(&projections).await;
    assert_eq!((status.equal, status.error, status.skipped), (Some(true), None, 0));
    assert_eq!(status.hash.unwrap(), format!("{hash:032x}"));
    assert_eq!(payloads(&world, "out").await.len(), 500);
    world.publish_json("in", "k0", r#"{"n":-1}"#).await;
    caught_up(&world, &projections, "p").await;
    assert_eq!(docs(&world, "docs").await[0], json!({"_key": "k0", "n": -1, "seen": 47}));
    let names: Vec<_> = projections.collections().await.unwrap();
    assert_eq!(names.len(), 1);
    assert_eq!(stored_collections(&world).await, ["docs", "docs:deleted"], "nothing is left of the rebuild");
    projections.close().await;
}

async fn a_rebuild_applies_a_new_definition(kind: StoreKind) {
    let mut world = World::running(kind).await;
    let projections = world.open_projections(declared(projector(jq(COUNT), &["docs"]))).await;
    for n in 0..20 {
        world.publish_json("in", &format!("k{n}"), &format!(r#"{{"n":{n}}}"#)).await;
    }
    caught_up(&world, &projections, "p").await;
    projections.close().await;
    world = world.restart().await;
    let other = jq(
        r#"if .payload.n == 7 then error("seven") else {upsert: {collection: "docs", key: .key, set: {n: (.payload.n * 2)}}} end"#,
    );
    let projections = world.open_projections(declared(projector(other.clone(), &["docs"]))).await;
    assert!(projections.projectors()[0].changed);
    let status = rebuilt(&projections).await;
    assert_eq!((status.equal, status.skipped), (Some(false), 1));
    assert!(!projections.projectors()[0].changed);
    assert_eq!(docs(&world, "docs").await.len(), 19);
    assert_eq!(payloads(&world, "in.dlq").await.len(), 1);
    projections.close().await;
    world = world.restart().await;
    let projections = world.open_projections(declared(projector(other, &["docs"]))).await;
    assert!(!projections.projectors()[0].changed, "it is known by its new definition");
    projections.close().await;
}

async fn a_rebuild_under_load_loses_nothing(kind: StoreKind) {
    let world = World::running(kind).await;
    let projections = world.open_projections(declared(projector(jq(COUNT), &["docs"]))).await;
    for n in 0..1_000 {
        world.publish_json("in", &format!("k{}", n % 5), &format!(r#"{{"n":{n}}}"#)).await;
        if n % 300 == 100 {
            // Refused while the last rebuild still runs.
            let _ = projections.rebuild(&group("p"), false).await;
        }
    }
    caught_up(&world, &projections, "p").await;
    let status =
        until(&projections, "p", |status| status.rebuild.as_ref().is_some_and(|rebuild| !rebuild.running))
            .await;
    assert_eq!(status.rebuild.unwrap().equal, Some(true));
    caught_up(&world, &projections, "p").await;
    assert!(docs(&world, "docs").await.iter().all(|doc| doc["seen"] == 200));
    assert_eq!(payloads(&world, "out").await.len(), 1_000);
    projections.close().await;
}

async fn another_index_is_a_reason_to_rebuild(kind: StoreKind) {
    let mut world = World::running(kind).await;
    let projections = world.open_projections(declared(projector(jq(COUNT), &["docs"]))).await;
    for n in 0..50 {
        world.publish_json("in", &format!("k{n}"), &format!(r#"{{"n":{n},"a":"x"}}"#)).await;
    }
    caught_up(&world, &projections, "p").await;
    projections.close().await;
    world = world.restart().await;
    let mut all = declared(projector(jq(COUNT), &["docs"]));
    all.collections[0].indexes =
        vec![Index { fields: vec![("a".to_owned(), Direction::Ascending)], unique: false }];
    let indexes = all.collections[0].indexes.clone();
    let projections = world.open_projections(all).await;
    until(&projections, "p", |status| {
        status.rebuild.as_ref().is_some_and(|rebuild| rebuild.equal == Some(true))
    })
    .await;
    let info = projections.collection(&collection("docs")).await.unwrap();
    assert_eq!((info.docs, info.collection.indexes), (50, indexes));
    assert_eq!(until(&projections, "p", |_| true).await.activity, Activity::Running);
    let equals = [("a".to_owned(), "x".to_owned())];
    assert_eq!(projections.list(&collection("docs"), &equals, 0, 100).await.unwrap().docs.len(), 50);
    projections.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_projector_cannot_be_rebuilt() {
    let world = World::running(StoreKind::Memory).await;
    let projections = world.open_projections(declared(projector(jq("empty"), &[]))).await;
    let unknown = projections.rebuild(&group("q"), false).await.unwrap_err();
    assert_eq!(unknown.code(), "unknown_projector");
    let known = Projector { ..projector(jq("empty"), &[]) };
    assert_eq!(projections.projector(&known.name).unwrap().activity, Activity::Running);
    projections.close().await;
}

const STRICT: &str = r#"
    if .payload.bad then error("bad " + .key) else
    {upsert: {collection: "docs", key: "all", inc: {n: 1}}}, {publish: {topic: "out", payload: .offset}} end
"#;

/// The served collection still has the index.
async fn events_go_on_while_an_index_is_taken_away(kind: StoreKind) {
    let mut world = World::running(kind).await;
    let mut all = declared(projector(jq(COUNT), &["docs"]));
    all.collections[0].indexes =
        vec![Index { fields: vec![("a".to_owned(), Direction::Ascending)], unique: false }];
    let projections = world.open_projections(all).await;
    for n in 0..1_000 {
        world.publish_json("in", &format!("k{}", n % 50), &format!(r#"{{"n":{n},"a":"x"}}"#)).await;
    }
    caught_up(&world, &projections, "p").await;
    projections.close().await;
    // These events wait for the projector when it begins, so that it projects and rebuilds at once.
    world = world.restart().await;
    for n in 0..100 {
        world.publish_json("in", &format!("k{}", n % 50), &format!(r#"{{"n":{n},"a":"y"}}"#)).await;
    }
    let projections = world.open_projections(declared(projector(jq(COUNT), &["docs"]))).await;
    let status =
        until(&projections, "p", |status| status.rebuild.as_ref().is_some_and(|rebuild| !rebuild.running))
            .await;
    assert_eq!(status.rebuild.unwrap().error, None);
    let status = caught_up(&world, &projections, "p").await;
    assert_eq!((status.failures, status.dead_letters), (0, 0));
    assert!(docs(&world, "docs").await.iter().all(|doc| doc["seen"] == 22));
    projections.close().await;
}

async fn a_rebuild_leaves_to_the_projector_what_it_has_not_done(kind: StoreKind) {
    let mut world = World::running(kind).await;
    let halting =
        |program: &str| Projector { on_failure: OnFailure::Halt, ..projector(jq(program), &["docs"]) };
    let projections = world.open_projections(declared(halting(STRICT))).await;
    for payload in ["{}", r#"{"bad":true}"#, "{}", "{}"] {
        world.publish_json("in", "k", payload).await;
    }
    until(&projections, "p", |status| status.activity == Activity::Halted).await;
    let status = rebuilt(&projections).await;
    assert_eq!((status.equal, status.skipped, status.position), (Some(true), 0, 1));
    until(&projections, "p", |status| status.activity == Activity::Halted && status.failures == 2).await;
    assert_eq!(payloads(&world, "out").await, [json!(0)]);
    projections.close().await;
    world = world.restart().await;
    let repaired = STRICT.replace("error(\"bad \" + .key)", "empty");
    let projections = world.open_projections(declared(halting(&repaired))).await;
    caught_up(&world, &projections, "p").await;
    assert_eq!(payloads(&world, "out").await, [json!(0), json!(2), json!(3)], "none was swallowed");
    assert_eq!(docs(&world, "docs").await, [json!({"_key": "all", "n": 3})]);
    projections.close().await;
}

async fn a_rebuild_leaves_out_what_was_given_up(kind: StoreKind) {
    let mut world = World::running(kind).await;
    let projections = world.open_projections(declared(projector(jq(STRICT), &["docs"]))).await;
    for payload in ["{}", r#"{"bad":true}"#, "{}"] {
        world.publish_json("in", "k", payload).await;
    }
    caught_up(&world, &projections, "p").await;
    projections.close().await;
    world = world.restart().await;
    let repaired = STRICT
        .replace("error(\"bad \" + .key)", "{upsert: {collection: \"docs\", key: \"all\", inc: {n: 1}}}");
    let projections = world.open_projections(declared(projector(jq(&repaired), &["docs"]))).await;
    let status = rebuilt(&projections).await;
    assert_eq!((status.equal, status.skipped), (Some(true), 0), "it is an open dead letter");
    let redriven =
        world.bus.redrive(&topic("in"), &group("p"), LetterChoice::All, RedriveTo::Topic).await.unwrap();
    assert_eq!(redriven.redriven, 1);
    caught_up(&world, &projections, "p").await;
    assert_eq!(
        docs(&world, "docs").await,
        [json!({"_key": "all", "n": 3})],
        "counted once, when it came again"
    );
    projections.close().await;
}

async fn a_rebuild_begins_where_the_state_does(kind: StoreKind) {
    let world = World::running(kind).await;
    for _ in 0..5 {
        world.publish_json("in", "k", "{}").await;
    }
    let latest = Projector { from: StartAt::Latest, ..projector(jq(STRICT), &["docs"]) };
    let projections = world.open_projections(declared(latest)).await;
    world.publish_json("in", "k", "{}").await;
    caught_up(&world, &projections, "p").await;
    assert_eq!(rebuilt(&projections).await.equal, Some(true));
    assert_eq!(docs(&world, "docs").await, [json!({"_key": "all", "n": 1})]);
    projections.close().await;
}

async fn a_topic_that_was_deleted_meanwhile_can_be_rebuilt(kind: StoreKind) {
    let world = World::running(kind).await;
    let projections = world.open_projections(declared(projector(jq(STRICT), &["docs"]))).await;
    for _ in 0..3 {
        world.publish_json("in", "k", "{}").await;
    }
    caught_up(&world, &projections, "p").await;
    world.bus.delete_topic(&topic("in")).await.unwrap();
    until(&projections, "p", |status| status.activity == Activity::Halted).await;
    assert_eq!(projections.resume(&group("p")).await.unwrap_err().code(), "rebuild_needed");
    let subject = promethean_delivery::Subject::Topic(topic("in"));
    let consumer =
        world.bus.subscribe(promethean_bus::subscription::Subscribe::new(subject, group("p"))).await;
    assert_eq!(consumer.map(drop).unwrap_err().code(), "projector_group", "its group is kept for it");
    world.publish_json("in", "k", "{}").await;
    let status = rebuilt(&projections).await;
    assert_eq!((status.error, status.equal), (None, Some(false)));
    world.publish_json("in", "k", "{}").await;
    until(&projections, "p", |status| status.position == 2).await;
    assert_eq!(docs(&world, "docs").await, [json!({"_key": "all", "n": 2})]);
    projections.close().await;
}
