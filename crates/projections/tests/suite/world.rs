//! Projections over each kind of store, which can be closed and opened again.

use std::sync::Arc;
use std::time::Duration;

use promethean_bus::publish::Publish;
use promethean_bus::{Bus, BusOptions};
use promethean_jq::Program;
use promethean_model::{CollectionName, GroupName, Offset, SystemClock, TopicName};
use promethean_projections::{
    CollectionDeclared, Declared, Field, FieldType, Logic, Projections, Projector, ProjectorStatus,
};
use promethean_store::embedded::EmbeddedStore;
use promethean_store::memory::MemoryStore;
use promethean_store::port::{PageLimit, Store};
use serde_json::Value;
use tempfile::TempDir;

use super::shaky::Shaky;

pub(crate) struct World {
    pub(crate) bus: Bus,
    pub(crate) store: Arc<dyn Store>,
    disk: Option<(Arc<EmbeddedStore>, TempDir)>,
}

/// Runs a test on both stores.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            use super::super::world::{World, within};

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn memory() {
                within(async { super::$name(World::memory().await).await }).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn embedded() {
                within(async { super::$name(World::embedded().await).await }).await;
            }
        })*
    };
}
pub(crate) use on_both;

/// Long enough for a slow machine, short enough to say what hangs.
pub(crate) async fn within<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), test).await.unwrap_or_else(|_| panic!("the test hangs"))
}

pub(crate) async fn pass_ms(ms: u64) {
    let _ = tokio::time::timeout(Duration::from_millis(ms), std::future::pending::<()>()).await;
}

impl World {
    pub(crate) async fn memory() -> Self {
        Self::over(Arc::new(MemoryStore::new(Arc::new(SystemClock::new()), Default::default()))).await
    }

    /// In memory, over a store that fails where a test wants it to.
    pub(crate) async fn shaky() -> (Self, Arc<Shaky>) {
        let shaky = Shaky::new(Self::memory().await.store);
        (Self::over(shaky.clone()).await, shaky)
    }

    async fn over(store: Arc<dyn Store>) -> Self {
        Self { bus: open(store.clone()).await, store, disk: None }
    }

    pub(crate) async fn embedded() -> Self {
        Self::on_disk(tempfile::tempdir().unwrap()).await
    }

    async fn on_disk(dir: TempDir) -> Self {
        let mut options = promethean_store::embedded::Options::default();
        // Small files, so that retention finds whole ones to drop.
        options.log.segment_bytes = 8 << 10;
        options.log.reserve_bytes = 0;
        let opened = EmbeddedStore::open(dir.path(), Arc::new(SystemClock::new()), options).await;
        let store = Arc::new(opened.unwrap().0);
        Self { bus: open(store.clone()).await, store: store.clone(), disk: Some((store, dir)) }
    }

    pub(crate) async fn restart(self) -> Self {
        self.bus.close().await;
        match self.disk {
            None => Self { bus: open(self.store.clone()).await, store: self.store, disk: None },
            Some((store, dir)) => {
                store.close().await;
                drop((self.bus, self.store, store));
                Self::on_disk(dir).await
            }
        }
    }

    pub(crate) async fn open(&self, declared: Declared) -> Projections {
        let clock = Arc::new(SystemClock::new());
        Projections::open(self.bus.clone(), self.store.clone(), clock, declared).await.unwrap()
    }

    /// Removes from a topic what its retention no longer keeps.
    pub(crate) async fn expire(&self) {
        match &self.disk {
            None => drop(self.store.sweep(0).await.unwrap()),
            Some((store, _)) => store.maintain().await.unwrap(),
        }
    }

    /// The same as if space had run out before a projector got on.
    pub(crate) async fn lose(&self, of: &str, reader: &str) {
        self.store.hold(&topic(of), &group(reader), None);
        self.expire().await;
    }

    pub(crate) async fn publish(&self, to: &str, key: &str, payload: &str) -> Offset {
        self.bus.publish(Publish::new(topic(to), payload.to_owned()).key(key)).await.unwrap().offset
    }

    /// The payloads of a topic.
    pub(crate) async fn payloads(&self, of: &str) -> Vec<Value> {
        let page = self.store.read(&topic(of), Offset::ZERO, PageLimit::default()).await.unwrap();
        page.events.iter().map(|event| serde_json::from_slice(event.payload()).unwrap()).collect()
    }

    /// The documents of a collection without what is said of where they come from, by key.
    pub(crate) async fn docs(&self, of: &str) -> Vec<Value> {
        let docs = self.store.docs_by_key(&collection(of), None, 10_000).await.unwrap();
        let plain = |body: &str| {
            let mut doc: Value = serde_json::from_str(body).unwrap();
            let fields = doc.as_object_mut().unwrap();
            assert!(fields.remove("_ts").unwrap().is_i64());
            assert!(fields.remove("_offset").unwrap().is_u64());
            doc
        };
        docs.iter().map(|doc| plain(&doc.body)).collect()
    }
}

async fn open(store: Arc<dyn Store>) -> Bus {
    Bus::open(store, Arc::new(SystemClock::new()), BusOptions::default()).await.unwrap()
}

/// Waits until a projector has done all there is.
pub(crate) async fn caught_up(world: &World, projections: &Projections, name: &str) -> ProjectorStatus {
    until(projections, name, |status| status.position == world.store.durable_end(&status.topic).get()).await
}

/// Waits until a projector's status is as it should be.
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
            pass_ms(2).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(120), wait).await;
    waited.unwrap_or_else(|_| panic!("it stays so: {:?}", projections.projectors()))
}

pub(crate) fn jq(text: &str) -> Logic {
    Logic::Jq(Program::compile(text).unwrap())
}

/// A projector `p` of topic `in` that writes the collections.
pub(crate) fn projector(logic: Logic, collections: &[&str]) -> Projector {
    let collections = collections.iter().map(|name| collection(name));
    Projector { retries: 0, ..Projector::new(group("p"), topic("in"), logic).writes(collections) }
}

/// One projector, and the collections it writes with a text field `a` and a number field `n` each.
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

pub(crate) fn topic(name: &str) -> TopicName {
    name.parse().unwrap()
}

pub(crate) fn group(name: &str) -> GroupName {
    name.parse().unwrap()
}

pub(crate) fn collection(name: &str) -> CollectionName {
    name.parse().unwrap()
}
