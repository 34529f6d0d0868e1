//! Events that cannot be projected, programs that do not end, and lost events.

use promethean_bus::dead_letters::{LetterChoice, RedriveTo};
use promethean_model::{Millis, Retention, TopicSettings};
use promethean_projections::{Activity, Change, Direction, Index, Logic, OnFailure, Projector};
use serde_json::json;

use super::world::*;

on_both_stores!(
    an_event_that_fails_becomes_a_dead_letter_and_the_rest_goes_on,
    a_projector_that_halts_goes_on_when_told_so,
    a_panic_is_a_failure_of_its_event,
    a_unique_index_is_a_reason_to_fail,
    an_event_whose_publish_is_refused_writes_nothing,
    other_projectors_do_not_notice,
    an_event_that_takes_too_long_becomes_a_dead_letter,
    a_deleted_topic_is_noticed,
    lost_events_are_noticed,
);

const STRICT: &str = r#"
    if .payload.bad then error("bad " + .key) else
    {upsert: {collection: "docs", key: .key, inc: {n: 1}}} end
"#;

async fn an_event_that_fails_becomes_a_dead_letter_and_the_rest_goes_on(kind: StoreKind) {
    let mut world = World::running(kind).await;
    let projections =
        world.open_projections(declared(Projector { retries: 2, ..projector(jq(STRICT), &["docs"]) })).await;
    for n in 0..20 {
        world.publish_json("in", &format!("k{n}"), if n % 5 == 3 { r#"{"bad":true}"# } else { "{}" }).await;
    }
    let status = caught_up(&world, &projections, "p").await;
    assert_eq!((status.projected, status.failures, status.dead_letters), (16, 12, 4));
    assert!(status.last_error.unwrap().contains("bad k18"));
    let letters = world.bus.dead_letters(&topic("in"), &group("p"), None, 100).await.unwrap().letters;
    assert_eq!(letters.iter().map(|letter| letter.offset.get()).collect::<Vec<_>>(), [3, 8, 13, 18]);
    assert!(letters[0].row.reason_text().contains("bad k3"), "{:?}", letters[0].row);
    let posted = payloads(&world, "in.dlq").await;
    assert_eq!(posted.len(), 4);
    assert!(posted[0]["reason"].as_str().unwrap().contains("bad k3"), "{}", posted[0]);
    assert_eq!((posted[0]["attempts"].clone(), posted[0]["event"]["key"].clone()), (json!(3), json!("k3")));
    projections.close().await;
    // After a restart the failed events are not projected again.
    world = world.restart().await;
    let projections = world.open_projections(declared(projector(jq(STRICT), &["docs"]))).await;
    caught_up(&world, &projections, "p").await;
    assert_eq!((payloads(&world, "in.dlq").await.len(), docs(&world, "docs").await.len()), (4, 16));
    // They can be redriven to the topic, but not to the projector.
    let (of, by) = (topic("in"), group("p"));
    let redrive = |to| world.bus.redrive(&of, &by, LetterChoice::All, to);
    assert_eq!(redrive(RedriveTo::Group).await.unwrap_err().code(), "projector_group");
    assert_eq!(redrive(RedriveTo::Topic).await.unwrap().redriven, 4);
    caught_up(&world, &projections, "p").await;
    assert_eq!(payloads(&world, "in").await.len(), 24);
    projections.close().await;
}

async fn a_projector_that_halts_goes_on_when_told_so(kind: StoreKind) {
    let mut world = World::running(kind).await;
    let halting = || Projector { on_failure: OnFailure::Halt, ..projector(jq(STRICT), &["docs"]) };
    let projections = world.open_projections(declared(halting())).await;
    world.publish_json("in", "a", "{}").await;
    world.publish_json("in", "b", r#"{"bad":true}"#).await;
    world.publish_json("in", "c", "{}").await;
    let status = until(&projections, "p", |status| status.activity == Activity::Halted).await;
    assert!(status.last_error.unwrap().contains("bad b"));
    assert_eq!(status.position, 1, "it is shown where it stopped");
    let shown = world.bus.group(&topic("in"), &group("p")).await.unwrap();
    assert!(shown.failure.unwrap().contains("bad b"));
    assert_eq!((shown.floor.get(), shown.lag), (1, 2));
    projections.resume(&group("p")).await.unwrap();
    until(&projections, "p", |status| status.failures == 2 && status.activity == Activity::Halted).await;
    assert_eq!(docs(&world, "docs").await, [json!({"_key": "a", "n": 1})], "what was done is not done again");
    projections.close().await;
    // With a repaired program the projector goes on at the event at which it halted.
    world = world.restart().await;
    let repaired = jq(r#"{upsert: {collection: "docs", key: .key, inc: {n: 1}}}"#);
    let projections = world.open_projections(declared(projector(repaired, &["docs"]))).await;
    let status = caught_up(&world, &projections, "p").await;
    assert!(status.changed, "it says that earlier events were projected by another definition");
    assert_eq!(docs(&world, "docs").await.len(), 3);
    assert!(docs(&world, "docs").await.iter().all(|doc| doc["n"] == 1));
    projections.close().await;
}

async fn a_panic_is_a_failure_of_its_event(kind: StoreKind) {
    let world = World::running(kind).await;
    let logic = Logic::rust(|event: &promethean_model::Event| {
        assert!(event.key.as_deref() != Some("b"), "never b");
        Ok(vec![Change::upsert(collection("docs"), event.key.clone().unwrap()).inc("n", 1)])
    });
    let projections = world.open_projections(declared(projector(logic, &["docs"]))).await;
    for key in ["a", "b", "c"] {
        world.publish_json("in", key, "{}").await;
    }
    let status = caught_up(&world, &projections, "p").await;
    assert_eq!((status.projected, status.dead_letters), (2, 1));
    assert!(status.last_error.unwrap().contains("never b"));
    projections.close().await;
}

async fn a_unique_index_is_a_reason_to_fail(kind: StoreKind) {
    let world = World::running(kind).await;
    let mut all =
        declared(projector(jq(r#"{upsert: {collection: "docs", key: .key, set: .payload}}"#), &["docs"]));
    all.collections[0].indexes =
        vec![Index { fields: vec![("a".to_owned(), Direction::Ascending)], unique: true }];
    let projections = world.open_projections(all).await;
    for (key, a) in [("one", "x"), ("two", "y"), ("three", "x"), ("four", "z"), ("two", "x"), ("five", "w")] {
        world.publish_json("in", key, &json!({"a": a}).to_string()).await;
    }
    let status = caught_up(&world, &projections, "p").await;
    assert_eq!((status.projected, status.dead_letters), (4, 2));
    let docs = docs(&world, "docs").await;
    let of = |key: &str, a: &str| json!({"_key": key, "a": a});
    assert_eq!(docs, [of("five", "w"), of("four", "z"), of("one", "x"), of("two", "y")]);
    projections.close().await;
}

async fn an_event_whose_publish_is_refused_writes_nothing(kind: StoreKind) {
    let world = World::running(kind).await;
    let logic = jq(
        r#"{publish: {topic: .payload.to, payload: {}}}, {upsert: {collection: "docs", key: .key, inc: {n: 1}}}"#,
    );
    let projections = world.open_projections(declared(projector(logic, &["docs"]))).await;
    for (key, to) in [("a", "out"), ("b", "out.dlq.not.a.topic..."), ("c", "out"), ("d", "out")] {
        world.publish_json("in", key, &json!({"to": to}).to_string()).await;
    }
    world
        .bus
        .set_topic(&topic("strict"), TopicSettings { compacted: true, ..TopicSettings::default() })
        .await
        .unwrap();
    // A compacted topic needs a key, which the program does not give.
    world.publish_json("in", "e", r#"{"to":"strict"}"#).await;
    world.publish_json("in", "f", r#"{"to":"out"}"#).await;
    let status = caught_up(&world, &projections, "p").await;
    assert_eq!((status.projected, status.dead_letters), (4, 2));
    let keys: Vec<_> = docs(&world, "docs").await.iter().map(|doc| doc["_key"].clone()).collect();
    assert_eq!(keys, ["a", "c", "d", "f"]);
    assert_eq!(payloads(&world, "out").await.len(), 4);
    projections.close().await;
}

async fn other_projectors_do_not_notice(kind: StoreKind) {
    let world = World::running(kind).await;
    let endless = Projector { name: group("endless"), ..projector(jq("def f: f; f"), &[]) };
    let mut all = declared(projector(jq(STRICT), &["docs"]));
    all.projectors.push(Projector { on_failure: OnFailure::Halt, ..endless });
    let projections = world.open_projections(all).await;
    for n in 0..50 {
        world.publish_json("in", &format!("k{n}"), "{}").await;
    }
    caught_up(&world, &projections, "p").await;
    let is_over = |status: &promethean_projections::ProjectorStatus| {
        [Activity::Halted, Activity::Stuck].contains(&status.activity)
    };
    let error = until(&projections, "endless", is_over).await.last_error.unwrap();
    // Which limit is reached first depends on the load of the machine.
    assert!(error.contains("steps") || error.contains("too long"), "{error}");
    assert_eq!(docs(&world, "docs").await.len(), 50);
    projections.close().await;
}

async fn an_event_that_takes_too_long_becomes_a_dead_letter(kind: StoreKind) {
    let world = World::running(kind).await;
    // Looking for a match takes as many steps as the text has characters, times the size of the pattern, and the
    // interpreter cannot end it.
    let slow = jq(r#"
        if (.payload.text // "") | test("(a?){400}b") then error("found") else
        {upsert: {collection: "docs", key: .key, inc: {n: 1}}} end
    "#);
    for n in 0..6 {
        let text = if n == 3 { "a".repeat(1 << 19) } else { "a".repeat(5) };
        world.publish_json("in", &format!("k{n}"), &json!({ "text": text }).to_string()).await;
    }
    // All events are in one page, and so in one job of the program.
    let projections = world.open_projections(declared(projector(slow, &["docs"]))).await;
    let status = caught_up(&world, &projections, "p").await;
    assert_eq!((status.projected, status.failures, status.dead_letters), (5, 1, 1));
    assert_eq!(status.activity, Activity::Running);
    assert!(status.last_error.unwrap().contains("took too long"));
    let letters = world.bus.dead_letters(&topic("in"), &group("p"), None, 100).await.unwrap().letters;
    assert_eq!(letters.iter().map(|letter| letter.offset.get()).collect::<Vec<_>>(), [3]);
    projections.close().await;
}

async fn a_deleted_topic_is_noticed(kind: StoreKind) {
    let mut world = World::running(kind).await;
    let projections = world.open_projections(declared(projector(jq(STRICT), &["docs"]))).await;
    for _ in 0..3 {
        world.publish_json("in", "k", "{}").await;
    }
    caught_up(&world, &projections, "p").await;
    world.bus.delete_topic(&topic("in")).await.unwrap();
    until(&projections, "p", |status| status.activity == Activity::Halted).await;
    projections.close().await;
    world.publish_json("in", "k", "{}").await;
    world = world.restart().await;
    let projections = world.open_projections(declared(projector(jq(STRICT), &["docs"]))).await;
    let status = until(&projections, "p", |status| status.activity == Activity::Halted).await;
    assert!(status.last_error.unwrap().contains("rebuild"));
    assert_eq!(docs(&world, "docs").await, [json!({"_key": "k", "n": 3})], "what there was is served still");
    projections.rebuild(&group("p"), false).await.unwrap();
    let status =
        until(&projections, "p", |status| status.rebuild.as_ref().is_some_and(|rebuild| !rebuild.running))
            .await;
    assert_eq!(status.rebuild.unwrap().equal, Some(false));
    assert_eq!(docs(&world, "docs").await, [json!({"_key": "k", "n": 1})]);
    world.publish_json("in", "k", "{}").await;
    until(&projections, "p", |status| status.position == 2).await;
    assert_eq!(docs(&world, "docs").await, [json!({"_key": "k", "n": 2})]);
    projections.close().await;
}

async fn lost_events_are_noticed(kind: StoreKind) {
    let world = World::running(kind).await;
    let projections = world.open_projections(declared(projector(jq(STRICT), &["docs"]))).await;
    world.publish_json("in", "k", "{}").await;
    caught_up(&world, &projections, "p").await;
    projections.close().await;
    let filler = format!(r#"{{"filler":"{}"}}"#, "x".repeat(500));
    for _ in 0..100 {
        world.publish_json("in", "k", &filler).await;
    }
    let retention = Retention { count: Some(2), age: None, bytes: None };
    let settings =
        TopicSettings { retention, dedupe_window: Millis::from_hours(1), ..TopicSettings::default() };
    world.bus.set_topic(&topic("in"), settings).await.unwrap();
    lose(&world, "in", "p").await;
    let kept = payloads(&world, "in").await.len() as u64;
    assert!(kept < 50, "{kept}");
    let projections = world.open_projections(declared(projector(jq(STRICT), &["docs"]))).await;
    let status = until(&projections, "p", |status| status.activity == Activity::Halted).await;
    assert!(status.last_error.unwrap().contains("accept_loss"));
    assert_eq!(projections.rebuild(&group("p"), false).await.unwrap_err().code(), "history_gone");
    projections.close().await;
    let accepting = Projector { accept_loss: true, ..projector(jq(STRICT), &["docs"]) };
    let projections = world.open_projections(declared(accepting)).await;
    caught_up(&world, &projections, "p").await;
    assert_eq!(docs(&world, "docs").await, [json!({"_key": "k", "n": 1 + kept})]);
    projections.close().await;
}
