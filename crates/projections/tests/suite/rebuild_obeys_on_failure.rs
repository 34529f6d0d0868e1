//! A rebuild deals with an event that fails as its projector does, and says so.

use promethean_projections::{
    Activity, Declared, Direction, Index, OnFailure, Projections, Projector, ProjectorStatus, RebuildStatus,
};
use promethean_store::port::{CollectionOp, StateOp};
use promethean_testkit::{Fault, StoreCall};
use serde_json::json;

use super::world::*;

on_both_stores!(
    a_unique_index_over_duplicates_makes_dead_letters,
    a_projector_that_halts_keeps_its_old_state,
    a_rebuild_that_a_person_asked_for_ends_at_a_failure,
);

const COPY: &str = r#"{upsert: {collection: "docs", key: .key, set: .payload}}"#;
const STRICT: &str = r#"if .payload.a == "x" then error("no x") else {upsert: {collection: "docs", key: .key, set: .payload}} end"#;

fn with(program: &str, on_failure: OnFailure, unique: bool) -> Declared {
    let mut all = declared(Projector { on_failure, ..projector(jq(program), &["docs"]) });
    if unique {
        all.collections[0].indexes =
            vec![Index { fields: vec![("a".to_owned(), Direction::Ascending)], unique: true }];
    }
    all
}

fn is_over(status: &ProjectorStatus) -> bool {
    status.rebuild.as_ref().is_some_and(|rebuild| !rebuild.running)
}

async fn over(projections: &Projections) -> RebuildStatus {
    until(projections, "p", is_over).await.rebuild.unwrap()
}

/// Three documents, two of which have the same value.
async fn three_documents(world: &World, declared: Declared) {
    let projections = world.open_projections(declared).await;
    for (key, a) in [("one", "x"), ("two", "x"), ("three", "y")] {
        world.publish_json("in", key, &json!({"a": a}).to_string()).await;
    }
    caught_up(world, &projections, "p").await;
    projections.close().await;
}

async fn letters(world: &World) -> Vec<u64> {
    let page = world.bus.dead_letters(&topic("in"), &group("p"), None, 100).await.unwrap();
    page.letters.iter().map(|letter| letter.offset.get()).collect()
}

async fn a_unique_index_over_duplicates_makes_dead_letters(kind: StoreKind) {
    let mut world = World::running(kind).await;
    three_documents(&world, with(COPY, OnFailure::DeadLetter, false)).await;
    world = world.restart().await;
    let projections = world.open_projections(with(COPY, OnFailure::DeadLetter, true)).await;
    let rebuild = over(&projections).await;
    assert_eq!((rebuild.skipped, rebuild.equal), (1, Some(false)));
    assert_eq!(docs(&world, "docs").await.len(), 2);
    assert_eq!(letters(&world).await, [1]);
    let posted = payloads(&world, "in.dlq").await;
    assert!(posted[0]["reason"].as_str().unwrap().contains("unique"), "{}", posted[0]);
    let status = projections.projector(&group("p")).unwrap();
    assert!(status.last_error.unwrap().contains("at offset 1"));
    assert_eq!(status.dead_letters, 1);
    projections.close().await;
    // What was left out is known after a restart, and the letter is not made twice.
    world = world.restart().await;
    let projections = world.open_projections(with(COPY, OnFailure::DeadLetter, true)).await;
    assert_eq!(over(&projections).await, rebuild);
    projections.rebuild(&group("p"), false).await.unwrap();
    let again = over(&projections).await;
    assert_eq!((again.skipped, again.equal), (0, Some(true)), "the event is an open letter now");
    assert_eq!((letters(&world).await, payloads(&world, "in.dlq").await.len()), (vec![1], 1));
    projections.close().await;
}

async fn a_projector_that_halts_keeps_its_old_state(kind: StoreKind) {
    let mut world = World::running(kind).await;
    three_documents(&world, with(COPY, OnFailure::Halt, false)).await;
    for _ in 0..2 {
        world = world.restart().await;
        let projections = world.open_projections(with(COPY, OnFailure::Halt, true)).await;
        let status = until(&projections, "p", |status| status.activity == Activity::Halted).await;
        let reason = status.last_error.unwrap();
        assert!(reason.contains("indexes") && reason.contains("at offset 1"), "{reason}");
        assert!(status.rebuild.unwrap().error.unwrap().contains("at offset 1"));
        assert_eq!(docs(&world, "docs").await.len(), 3, "the old documents are served");
        assert_eq!(letters(&world).await, [0_u64; 0]);
        let refused = projections.resume(&group("p")).await.unwrap_err();
        assert_eq!(refused.code(), "rebuild_needed");
        projections.close().await;
    }
    // Without the index it goes on.
    world = world.restart().await;
    let projections = world.open_projections(with(COPY, OnFailure::Halt, false)).await;
    world.publish_json("in", "four", r#"{"a":"x"}"#).await;
    caught_up(&world, &projections, "p").await;
    assert_eq!(docs(&world, "docs").await.len(), 4);
    projections.close().await;
}

async fn a_rebuild_that_a_person_asked_for_ends_at_a_failure(kind: StoreKind) {
    let mut world = World::running(kind).await;
    three_documents(&world, with(COPY, OnFailure::Halt, false)).await;
    world = world.restart().await;
    let projections = world.open_projections(with(STRICT, OnFailure::Halt, false)).await;
    projections.rebuild(&group("p"), false).await.unwrap();
    let rebuild = over(&projections).await;
    assert!(rebuild.error.as_ref().unwrap().contains("at offset 0: "), "{rebuild:?}");
    assert_eq!(docs(&world, "docs").await.len(), 3, "the old documents are served");
    world.publish_json("in", "four", r#"{"a":"z"}"#).await;
    let status = caught_up(&world, &projections, "p").await;
    assert_eq!(status.activity, Activity::Running, "the served state is as good as before");
    projections.close().await;
    world = world.restart().await;
    let projections = world.open_projections(with(STRICT, OnFailure::Halt, false)).await;
    assert_eq!(over(&projections).await, rebuild, "the failure is known after a restart");
    projections.close().await;
}

/// The letters are durable and the swap is not: then the state still has what the letters say is not in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_between_letters_and_swap_is_made_good() {
    let (world, faults) = faulty().await;
    three_documents(&world, with(COPY, OnFailure::DeadLetter, false)).await;
    let projections = world.open_projections(with(STRICT, OnFailure::DeadLetter, false)).await;
    let is_swap = |call: &StoreCall<'_>| match call {
        StoreCall::Commit(batch) => {
            batch.state.iter().any(|op| matches!(op, StateOp::Collection(CollectionOp::Rename { .. })))
        }
        _ => false,
    };
    faults.rule(move |call| if is_swap(call) { Fault::Fail } else { Fault::None });
    projections.rebuild(&group("p"), false).await.unwrap();
    until(&projections, "p", |status| status.rebuild.as_ref().is_some_and(|it| it.error.is_some())).await;
    assert_eq!((letters(&world).await, docs(&world, "docs").await.len()), (vec![0, 1], 3));
    projections.close().await;
    faults.heal();
    let projections = world.open_projections(with(STRICT, OnFailure::DeadLetter, false)).await;
    until(&projections, "p", |status| is_over(status) && status.rebuild.as_ref().unwrap().equal.is_some())
        .await;
    assert_eq!((letters(&world).await, docs(&world, "docs").await.len()), (vec![0, 1], 1));
    projections.close().await;
}
