//! Work on schemas that others do not wait for, and that is done once for all who need it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use promethean_bus::BusOptions;

use super::super::bus::gate_store::GateStore;
use super::super::bus::harness::*;
use super::*;

on_both_stores!(
    many_publishers_compile_a_schema_once,
    a_publisher_that_gives_up_leaves_the_schema_to_others,
    a_schema_that_cannot_be_read_fails_all_who_wait,
);

const NUMBER: &str = r#"{"type":"number"}"#;

/// A version whose schema is not compiled, as after a restart.
async fn cold(kind: Kind) -> (World, Arc<GateStore>) {
    let (mut world, gate) = World::gated(kind).await;
    register(&world.bus, "t", NUMBER).await.unwrap();
    soon("close", world.bus.close()).await;
    let opened = Bus::open(Arc::clone(&world.store), Arc::clone(&world.clock) as _, BusOptions::default());
    world.bus = opened.await.unwrap();
    (world, gate)
}

type Publishing = Pin<Box<dyn Future<Output = Result<Published, BusError>>>>;

/// Publishers that have come as far as they do without help.
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

async fn many_publishers_compile_a_schema_once(kind: Kind) {
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

async fn a_publisher_that_gives_up_leaves_the_schema_to_others(kind: Kind) {
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

async fn a_schema_that_cannot_be_read_fails_all_who_wait(kind: Kind) {
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
