//! Projectors for tests, and the documents and events that they have made.

use promethean_jq::Program;
use promethean_model::{CollectionName, Offset};
use promethean_projections::{
    CollectionDeclared, Declared, Field, FieldType, Logic, Projections, Projector, ProjectorStatus,
};
use promethean_store::port::PageLimit;
use promethean_testkit::patience::soon_or;
use serde_json::Value;

pub(crate) use promethean_testkit::{
    FaultStore, StoreKind, World, collection, group, on_both_stores, soon, topic,
};

/// A world in memory whose clock runs and whose store fails where a test wants it to.
pub(crate) async fn faulty() -> (World, std::sync::Arc<FaultStore>) {
    World::running(StoreKind::Memory).await.with_gates().await
}

/// Drops events of a topic by its retention, also events that this reader still needs: as if the space had run out.
pub(crate) async fn lose(world: &World, of: &str, reader: &str) {
    world.store.hold(&topic(of), &group(reader), None);
    world.maintain().await;
}

/// The payloads of a topic.
pub(crate) async fn payloads(world: &World, of: &str) -> Vec<Value> {
    let page = world.store.read(&topic(of), Offset::ZERO, PageLimit::default()).await.unwrap();
    page.events.iter().map(|event| serde_json::from_slice(event.payload()).unwrap()).collect()
}

/// The documents of a collection by key, without the fields that say which event they come from.
pub(crate) async fn docs(world: &World, of: &str) -> Vec<Value> {
    let docs = world.store.docs_by_key(&collection(of), None, 10_000).await.unwrap();
    let plain = |body: &str| {
        let mut doc: Value = serde_json::from_str(body).unwrap();
        let fields = doc.as_object_mut().unwrap();
        assert!(fields.remove("_ts").unwrap().is_i64());
        assert!(fields.remove("_offset").unwrap().is_u64());
        doc
    };
    docs.iter().map(|doc| plain(&doc.body)).collect()
}

/// The names of all collections that the store has, also of those that users do not see.
pub(crate) async fn stored_collections(world: &World) -> Vec<String> {
    let all = world.store.collections(None, 10).await.unwrap();
    all.iter().map(|info| info.collection.name.to_string()).collect()
}

/// Waits until a projector has projected all events of its topic.
pub(crate) async fn caught_up(world: &World, projections: &Projections, name: &str) -> ProjectorStatus {
    until(projections, name, |status| status.position == world.store.durable_end(&status.topic).get()).await
}

/// Waits until the status of a projector is as the test wants it.
pub(crate) async fn until(
    projections: &Projections,
    name: &str,
    is_so: impl Fn(&ProjectorStatus) -> bool,
) -> ProjectorStatus {
    let wait = async {
        loop {
            let status = projections.projector(&group(name)).unwrap();
            if is_so(&status) {
                return status;
            }
            tokio::task::yield_now().await;
        }
    };
    soon_or(wait, || format!("{:?}", projections.projectors())).await
}

pub(crate) fn jq(text: &str) -> Logic {
    Logic::Jq(Program::compile(text).unwrap())
}

/// A projector `p` of topic `in` that writes the collections.
pub(crate) fn projector(logic: Logic, collections: &[&str]) -> Projector {
    let collections = collections.iter().map(|name| collection(name));
    Projector { retries: 0, ..Projector::new(group("p"), topic("in"), logic).writes(collections) }
}

/// Declares a projector and its collections, each with a text field `a` and a number field `n`.
pub(crate) fn declared(projector: Projector) -> Declared {
    let field = |name: &str, kind| Field { name: name.to_owned(), kind };
    let fields = vec![field("a", FieldType::Text), field("n", FieldType::Number)];
    let of = |name: &CollectionName| CollectionDeclared {
        fields: fields.clone(),
        ..CollectionDeclared::new(name.clone())
    };
    Declared {
        collections: projector.collections.iter().map(of).collect(),
        projectors: vec![projector],
        ..Declared::default()
    }
}
