//! The lag of a projector that does not go on grows with its topic, wherever it is shown.

use promethean_projections::{Activity, OnFailure, Projector};

use super::world::*;

on_both_stores!(a_halted_projector_shows_its_lag, a_projector_that_retries_shows_its_lag);

const STRICT: &str =
    r#"if .payload.bad then error("bad") else {upsert: {collection: "docs", key: .key}} end"#;

fn lag_metric(world: &World) -> f64 {
    let page = world.bus.metrics_page();
    let line = page.lines().find(|line| line.starts_with("events_lag{") && line.contains(r#"group="p""#));
    line.and_then(|line| line.rsplit_once(' ')).map_or(-1.0, |(_, value)| value.parse().unwrap())
}

async fn a_halted_projector_shows_its_lag(kind: StoreKind) {
    let world = World::running(kind).await;
    let halting = Projector { on_failure: OnFailure::Halt, ..projector(jq(STRICT), &["docs"]) };
    let projections = world.open_projections(declared(halting)).await;
    world.publish_json("in", "a", "{}").await;
    world.publish_json("in", "b", r#"{"bad":true}"#).await;
    until(&projections, "p", |status| status.activity == Activity::Halted).await;
    shows(&world, &projections, "halted").await;
    projections.close().await;
}

async fn a_projector_that_retries_shows_its_lag(kind: StoreKind) {
    let world = World::running(kind).await;
    let patient = Projector { retries: u32::MAX, ..projector(jq(STRICT), &["docs"]) };
    let projections = world.open_projections(declared(patient)).await;
    world.publish_json("in", "a", "{}").await;
    world.publish_json("in", "b", r#"{"bad":true}"#).await;
    until(&projections, "p", |status| status.activity == Activity::Retrying).await;
    shows(&world, &projections, "retrying").await;
    projections.close().await;
}

/// Publishes 50 events more, and compares all that shows the lag.
async fn shows(world: &World, projections: &promethean_projections::Projections, word: &str) {
    for _ in 0..50 {
        world.publish_json("in", "c", "{}").await;
    }
    let status = projections.projector(&group("p")).unwrap();
    assert_eq!((status.position, status.end, status.lag), (1, 52, 51));
    let listed = projections.projectors();
    assert_eq!((listed[0].position, listed[0].end, listed[0].lag), (1, 52, 51));
    let shown = world.bus.group(&topic("in"), &group("p")).await.unwrap();
    assert_eq!((shown.floor.get(), shown.lag), (1, 51));
    assert_eq!(shown.reason.map(promethean_delivery::Reason::as_str), Some(word));
    assert!((lag_metric(world) - 51.0).abs() < 0.5, "{}", lag_metric(world));
}
