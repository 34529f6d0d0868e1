//! A schema is compiled once for all publishers that need it, and other publishers do not wait for it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use promethean_bus::BusOptions;
use tokio::task::JoinSet;

use super::super::bus::harness::*;
use super::*;
use promethean_testkit::FaultStore;

on_both_stores!(
    many_publishers_compile_a_schema_once,
    a_publisher_that_gives_up_leaves_the_schema_to_others,
    a_schema_that_cannot_be_read_fails_all_who_wait,
    settings_change_while_versions_are_compared,
    versions_come_while_others_are_compared,
    close_does_not_wait_for_comparisons,
);

const NUMBER: &str = r#"{"type":"number"}"#;

/// A version whose schema is not compiled, as after a restart.
async fn cold(kind: StoreKind) -> (World, Arc<FaultStore>) {
    let (mut world, gate) = World::gated(kind).await;
    register(&world.bus, "t", NUMBER).await.unwrap();
    soon("close", world.bus.close()).await;
    let opened = Bus::open(Arc::clone(&world.store), Arc::clone(&world.clock) as _, BusOptions::default());
    world.bus = opened.await.unwrap();
    (world, gate)
}

type Publishing = Pin<Box<dyn Future<Output = Result<Published, BusError>>>>;

/// Publishers that wait for the schema.
fn publishers(bus: &Bus, count: usize) -> Vec<Publishing> {
    let one = |n: usize| {
        let bus = bus.clone();
        let mut publishing: Publishing =
            Box::pin(async move { bus.publish(Publish::new(topic("t"), n.to_string())).await });
        assert!(publishing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        publishing
    };
    (0..count).map(one).collect()
}

async fn many_publishers_compile_a_schema_once(kind: StoreKind) {
    let (world, gate) = cold(kind).await;
    let held = gate.hold_schema();
    let publishing = publishers(&world.bus, 8);
    held.reached().await;
    held.release();
    for one in publishing {
        soon("publish", one).await.unwrap();
    }
    assert_eq!((gate.schemas_read(), world.events("t").await.len()), (1, 8));
    assert_eq!(code(publish(&world.bus, "t", "\"x\"").await), "schema_rejected");
}

async fn a_publisher_that_gives_up_leaves_the_schema_to_others(kind: StoreKind) {
    let (world, gate) = cold(kind).await;
    let held = gate.hold_schema();
    let mut publishing = publishers(&world.bus, 4);
    held.reached().await;
    drop(publishing.remove(0));
    for one in publishing {
        soon("publish", one).await.unwrap();
    }
    assert_eq!((gate.schemas_read(), world.events("t").await.len()), (2, 3));
}

async fn a_schema_that_cannot_be_read_fails_all_who_wait(kind: StoreKind) {
    let (world, gate) = cold(kind).await;
    let held = gate.hold_schema();
    let publishing = publishers(&world.bus, 3);
    held.reached().await;
    let key = promethean_bus::rows::SchemaKey::encode(&topic("t"), 1);
    let op = promethean_store::port::RowOp::Delete { table: promethean_store::port::Table::Schemas, key };
    world.store.commit(promethean_store::port::Batch::new().with(op)).await.unwrap();
    held.release();
    for one in publishing {
        assert_eq!(code(soon("publish", one).await), "unknown_schema");
    }
    assert_eq!(gate.schemas_read(), 1);
}

/// A registration of a second version, which waits for the text of the first.
async fn comparing(
    kind: StoreKind,
) -> (World, Arc<promethean_testkit::fault_store::StoreGate>, JoinSet<Result<Registered, BusError>>) {
    let (world, gate) = World::gated(kind).await;
    register(&world.bus, "t", r#"{"type":"integer"}"#).await.unwrap();
    let held = gate.hold_schema();
    let (bus, mut registering) = (world.bus.clone(), JoinSet::new());
    registering.spawn(async move { register(&bus, "t", NUMBER).await });
    held.reached().await;
    (world, held, registering)
}

async fn settings_change_while_versions_are_compared(kind: StoreKind) {
    let (world, held, mut registering) = comparing(kind).await;
    let forward = TopicSettings { compat: Compat::Forward, ..TopicSettings::default() };
    soon("set", world.bus.set_topic(&topic("t"), forward)).await.unwrap();
    held.release();
    let refused = soon("register", registering.join_next()).await.unwrap().unwrap();
    assert_eq!(code(refused), "schema_incompatible", "it is compared by the rule that is set now");
}

async fn versions_come_while_others_are_compared(kind: StoreKind) {
    let (world, held, mut registering) = comparing(kind).await;
    let wider = r#"{"type":["number","null"]}"#;
    assert_eq!(register(&world.bus, "t", wider).await.unwrap().version, 2);
    held.release();
    let refused = soon("register", registering.join_next()).await.unwrap().unwrap();
    assert_eq!(code(refused), "schema_incompatible", "it is compared with the version that came");
    assert_eq!(world.bus.schemas(&topic("t")).len(), 2);
}

async fn close_does_not_wait_for_comparisons(kind: StoreKind) {
    let (world, gate) = World::gated(kind).await;
    versions(&world.bus, "t", &[V1, V2, V3]).await;
    let all = TopicSettings { compat: Compat::BackwardTransitive, ..TopicSettings::default() };
    world.bus.set_topic(&topic("t"), all).await.unwrap();
    let held = gate.hold_schema();
    let (bus, mut registering) = (world.bus.clone(), JoinSet::new());
    registering.spawn(async move { register(&bus, "t", "true").await });
    held.reached().await;
    soon("close", world.bus.close()).await;
    held.release();
    let refused = soon("register", registering.join_next()).await.unwrap().unwrap();
    assert_eq!(code(refused), "closed");
    assert_eq!(gate.schemas_read(), 1, "the rest is not compared");
}
