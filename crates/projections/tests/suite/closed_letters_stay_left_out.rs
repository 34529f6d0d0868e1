//! Events that were dead letters once are left out of every rebuild, whatever became of their letters.

use promethean_bus::dead_letters::{LetterChoice, RedriveTo};
use promethean_model::Offset;
use promethean_projections::{Projections, ProjectorStatus, RebuildStatus};
use serde_json::json;

use super::world::*;

on_both_stores!(
    an_event_that_was_redriven_to_the_topic_counts_once,
    an_event_whose_letter_was_dropped_does_not_count,
    a_topic_of_the_same_name_begins_anew,
);

const STRICT: &str =
    r#"if .payload.bad then error("bad") else {upsert: {collection: "docs", key: "all", inc: {n: 1}}} end"#;
const LENIENT: &str = r#"{upsert: {collection: "docs", key: "all", inc: {n: 1}}}"#;

async fn rebuilt(projections: &Projections) -> RebuildStatus {
    projections.rebuild(&group("p"), false).await.unwrap();
    let is_over = |status: &ProjectorStatus| status.rebuild.as_ref().is_some_and(|rebuild| !rebuild.running);
    until(projections, "p", is_over).await.rebuild.unwrap()
}

/// Five events, of which the second and the fourth are dead letters.
async fn with_two_letters(mut world: World) -> World {
    let projections = world.open_projections(declared(projector(jq(STRICT), &["docs"]))).await;
    for payload in ["{}", r#"{"bad":1}"#, "{}", r#"{"bad":2}"#, "{}"] {
        world.publish_json("in", "k", payload).await;
    }
    let status = caught_up(&world, &projections, "p").await;
    assert_eq!(status.dead_letters, 2);
    projections.close().await;
    world = world.restart().await;
    world
}

async fn an_event_that_was_redriven_to_the_topic_counts_once(kind: StoreKind) {
    let mut world = with_two_letters(World::running(kind).await).await;
    let projections = world.open_projections(declared(projector(jq(LENIENT), &["docs"]))).await;
    let report = world.bus.redrive(&topic("in"), &group("p"), LetterChoice::All, RedriveTo::Topic).await;
    assert_eq!(report.unwrap().redriven, 2);
    caught_up(&world, &projections, "p").await;
    let counted = [json!({"_key": "all", "n": 5})];
    assert_eq!(docs(&world, "docs").await, counted);
    let status = rebuilt(&projections).await;
    assert_eq!((status.equal, status.skipped), (Some(true), 0));
    assert_eq!(docs(&world, "docs").await, counted);
    projections.close().await;
    // Also after a restart.
    world = world.restart().await;
    let projections = world.open_projections(declared(projector(jq(LENIENT), &["docs"]))).await;
    assert_eq!(rebuilt(&projections).await.equal, Some(true));
    assert_eq!(docs(&world, "docs").await, counted);
    projections.close().await;
}

async fn an_event_whose_letter_was_dropped_does_not_count(kind: StoreKind) {
    let world = with_two_letters(World::running(kind).await).await;
    let projections = world.open_projections(declared(projector(jq(LENIENT), &["docs"]))).await;
    let one = LetterChoice::Offsets(vec![Offset(1)]);
    assert_eq!(world.bus.drop_letters(&topic("in"), &group("p"), one).await.unwrap().dropped, 1);
    let status = rebuilt(&projections).await;
    assert_eq!((status.equal, status.skipped), (Some(true), 0));
    assert_eq!(docs(&world, "docs").await, [json!({"_key": "all", "n": 3})]);
    projections.close().await;
}

async fn a_topic_of_the_same_name_begins_anew(kind: StoreKind) {
    let mut world = with_two_letters(World::running(kind).await).await;
    world.bus.drop_letters(&topic("in"), &group("p"), LetterChoice::All).await.unwrap();
    world.bus.delete_topic(&topic("in")).await.unwrap();
    for _ in 0..5 {
        world.publish_json("in", "k", "{}").await;
    }
    world = world.restart().await;
    let projections = world.open_projections(declared(projector(jq(LENIENT), &["docs"]))).await;
    rebuilt(&projections).await;
    assert_eq!(docs(&world, "docs").await, [json!({"_key": "all", "n": 5})], "no event of it was a letter");
    projections.close().await;
}
