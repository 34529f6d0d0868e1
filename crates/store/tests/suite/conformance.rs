//! Every adapter passes the conformance suite.

use std::sync::Arc;

use promethean_store::memory::{MemoryOptions, MemoryStore};
use promethean_store::port::Store;
use promethean_testkit::ManualClock;
use promethean_testkit::conformance::{self, StoreUnderTest};

use crate::suite::support::Embedded;

struct Memory {
    store: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
}

impl StoreUnderTest for Memory {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    fn clock(&self) -> Arc<ManualClock> {
        Arc::clone(&self.clock)
    }

    async fn reopen(self) -> Option<Self> {
        None
    }

    async fn maintain(&self) {
        use promethean_model::Clock;
        self.store.sweep(self.clock.wall_ms()).await.unwrap();
    }
}

async fn memory() -> Memory {
    let clock = Arc::new(ManualClock::new(promethean_testkit::world::WALL_MS));
    let store = Arc::new(MemoryStore::new(Arc::<ManualClock>::clone(&clock), MemoryOptions::default()));
    Memory { store, clock }
}

impl StoreUnderTest for Embedded {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    fn clock(&self) -> Arc<ManualClock> {
        Arc::clone(&self.clock)
    }

    async fn reopen(self) -> Option<Self> {
        let Embedded { store, clock, dir } = self;
        let report = store.verify(|_, _| {}).await.unwrap();
        assert!(report.is_clean(), "{report:?}");
        store.close().await;
        Some(Embedded::open(dir, clock).await)
    }

    async fn maintain(&self) {
        self.store.checkpoint().await.unwrap();
        self.store.maintain().await.unwrap();
    }
}

async fn embedded() -> Embedded {
    Embedded::new().await
}

macro_rules! conformance_tests {
    ($adapter:ident, $make:expr) => {
        mod $adapter {
            use super::*;

            conformance_tests!(@each $make, events, events_lookup, events_kept, cursors, docs, docs_query, catalog,
                dedupe, outbox, rows, atomicity, watch);
        }
    };
    (@each $make:expr, $($port:ident),*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $port() {
            conformance::$port::all(&$make).await;
        })*
    };
}

conformance_tests!(memory_store, memory);
conformance_tests!(embedded_store, embedded);
