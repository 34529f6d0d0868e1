//! A store, a bus over it and a clock: the world of tests above the store.

#![expect(clippy::unwrap_used, reason = "a step of the harness that fails must fail its test")]

use std::ops::Range;
use std::sync::Arc;

use promethean_bus::groups::GroupProgress;
use promethean_bus::publish::{Publish, Published};
use promethean_bus::subscription::Subscribe;
use promethean_bus::{Bus, BusOptions, Subscription};
use promethean_model::{Clock, Offset};
use promethean_projections::{Declared, Projections};
use promethean_store::embedded::{self, EmbeddedStore};
use promethean_store::memory::{self, MemoryStore};
use promethean_store::port::{PageLimit, Store, StoredEvent, Table};
use tempfile::TempDir;

use crate::names::{group, topic};
use crate::patience::{PATIENCE, soon, until};
use crate::{FaultStore, ManualClock};

/// The wall time at which a world begins whose clock stands still.
pub const WALL_MS: i64 = 1_700_000_000_000;

/// Makes two tests of each function, which takes a [`StoreKind`]: one on each kind of store.
#[macro_export]
macro_rules! on_both_stores {
    ($($name:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $crate::soon(stringify!($name), super::$name($crate::StoreKind::Memory)).await
            })*
        }
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $crate::soon(stringify!($name), super::$name($crate::StoreKind::Embedded)).await
            })*
        }
    };
}

/// Which store a world has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// The store without files.
    Memory,
    /// The store over the log, in a directory that is removed with its world.
    Embedded,
}

/// A bus over a store. Its clock is under the test's control; bus and store can be closed and opened again.
pub struct World {
    /// The bus.
    pub bus: Bus,
    /// The clock of bus and store.
    pub clock: Arc<ManualClock>,
    /// The store of the bus.
    pub store: Arc<dyn Store>,
    options: BusOptions,
    embedded: Option<(Arc<EmbeddedStore>, TempDir)>,
}

impl World {
    /// A world whose clock stands still at [`WALL_MS`].
    pub async fn new(kind: StoreKind) -> Self {
        Self::with(kind, BusOptions::default()).await
    }

    /// As [`World::new`], with these options of the bus.
    pub async fn with(kind: StoreKind, options: BusOptions) -> Self {
        Self::open(kind, ManualClock::new(WALL_MS), options).await
    }

    /// A world whose clock runs, for what waits on timers of the runtime.
    pub async fn running(kind: StoreKind) -> Self {
        Self::open(kind, ManualClock::running(), BusOptions::default()).await
    }

    /// A world with this clock and these options of the bus.
    pub async fn open(kind: StoreKind, clock: ManualClock, options: BusOptions) -> Self {
        let clock = Arc::new(clock);
        match kind {
            StoreKind::Memory => {
                let store = MemoryStore::new(Arc::clone(&clock) as _, memory::MemoryOptions::default());
                Self::over(Arc::new(store), None, clock, options).await
            }
            StoreKind::Embedded => Self::in_dir(tempfile::tempdir().unwrap(), clock, options).await,
        }
    }

    /// As [`World::new`], with a store whose calls can be held back and failed.
    pub async fn gated(kind: StoreKind) -> (Self, Arc<FaultStore>) {
        Self::new(kind).await.with_gates().await
    }

    /// The same world, with a store whose calls can be held back and failed.
    pub async fn with_gates(mut self) -> (Self, Arc<FaultStore>) {
        soon("close", self.bus.close()).await;
        let gates = Arc::new(FaultStore::new(self.store));
        self.store = Arc::clone(&gates) as _;
        self.bus = open_bus(&self.store, &self.clock, self.options.clone()).await;
        (self, gates)
    }

    async fn in_dir(dir: TempDir, clock: Arc<ManualClock>, options: BusOptions) -> Self {
        let opened = EmbeddedStore::open(dir.path(), Arc::clone(&clock) as _, small_files()).await;
        let store = Arc::new(opened.unwrap().0);
        Self::over(Arc::clone(&store) as _, Some((store, dir)), clock, options).await
    }

    async fn over(
        store: Arc<dyn Store>,
        embedded: Option<(Arc<EmbeddedStore>, TempDir)>,
        clock: Arc<ManualClock>,
        options: BusOptions,
    ) -> Self {
        let bus = open_bus(&store, &clock, options.clone()).await;
        Self { bus, clock, store, options, embedded }
    }

    /// Closes the bus and opens it again. An embedded store is closed and opened too; gates around it are gone then.
    #[must_use]
    pub async fn restart(self) -> Self {
        soon("close", self.bus.close()).await;
        match self.embedded {
            None => Self::over(self.store, None, self.clock, self.options).await,
            Some((store, dir)) => {
                store.close().await;
                drop((store, self.store, self.bus));
                Self::in_dir(dir, self.clock, self.options).await
            }
        }
    }

    /// Closes the bus and the store.
    pub async fn close(self) {
        soon("close", self.bus.close()).await;
        self.store.close().await;
    }

    /// Opens the declared projectors, compactors and collections over the bus.
    pub async fn open_projections(&self, declared: Declared) -> Projections {
        let (bus, store) = (self.bus.clone(), Arc::clone(&self.store));
        Projections::open(bus, store, Arc::clone(&self.clock) as _, declared).await.unwrap()
    }

    /// Moves the clock, and makes all groups look at it.
    pub fn pass(&self, ms: u64) {
        self.clock.advance(ms);
        self.bus.wake();
    }

    /// Moves the clock by this step again and again, and lets other tasks run in between. It never returns.
    pub async fn keep_passing(&self, step_ms: u64) {
        loop {
            self.pass(step_ms);
            tokio::task::yield_now().await;
        }
    }

    /// Subscribes.
    pub async fn subscribe(&self, request: Subscribe) -> Subscription {
        soon("subscribe", self.bus.subscribe(request)).await.unwrap()
    }

    /// Publishes an event whose payload is a number.
    pub async fn publish(&self, to: &str, payload: u64) -> Published {
        self.bus.publish(Publish::new(topic(to), payload.to_string())).await.unwrap()
    }

    /// Publishes an event with a key whose payload is a number.
    pub async fn publish_key(&self, to: &str, key: &str, payload: u64) -> Published {
        self.publish_json(to, key, &payload.to_string()).await
    }

    /// Publishes an event with a key and this payload.
    pub async fn publish_json(&self, to: &str, key: &str, payload: &str) -> Published {
        self.bus.publish(Publish::new(topic(to), payload.to_owned()).key(key)).await.unwrap()
    }

    /// Publishes an event for each of these numbers.
    pub async fn fill(&self, to: &str, payloads: Range<u64>) {
        for payload in payloads {
            self.publish(to, payload).await;
        }
    }

    /// The progress of a group on a topic.
    pub async fn seen(&self, on: &str, by: &str) -> GroupProgress {
        soon("the progress of a group", self.bus.group(&topic(on), &group(by))).await.unwrap()
    }

    /// The progress of a group once it can say why it waits.
    pub async fn settled(&self, on: &str, by: &str) -> GroupProgress {
        self.until(on, by, |seen| seen.reason.is_some()).await
    }

    /// The word for why a group waits.
    pub async fn word(&self, on: &str, by: &str) -> &'static str {
        self.settled(on, by).await.reason.unwrap().as_str()
    }

    /// Waits until the progress of a group is as the test wants it.
    ///
    /// # Panics
    /// If that takes longer than two minutes, with the last progress seen.
    pub async fn until(
        &self,
        on: &str,
        by: &str,
        is_wanted: impl Fn(&GroupProgress) -> bool,
    ) -> GroupProgress {
        let mut last = None;
        let wait = async {
            loop {
                let seen = self.seen(on, by).await;
                if is_wanted(&seen) {
                    return seen;
                }
                last = Some(seen);
                tokio::task::yield_now().await;
            }
        };
        match tokio::time::timeout(PATIENCE, wait).await {
            Ok(seen) => seen,
            Err(_) => panic!("{by} on {on} stays so: {last:?}"),
        }
    }

    /// Waits until the bus has this many tasks.
    pub async fn until_tasks(&self, count: usize) {
        until("the number of tasks", async || self.bus.tasks() == count).await;
    }

    /// All events of a topic.
    pub async fn events(&self, of: &str) -> Vec<StoredEvent> {
        let (mut found, mut from) = (Vec::new(), Offset::ZERO);
        // A page may end before its limit, where a file of the topic does.
        while from < self.store.durable_end(&topic(of)) {
            let page = self.store.read(&topic(of), from, PageLimit::default()).await.unwrap();
            found.extend(page.events);
            from = page.next;
        }
        found
    }

    /// How many rows a table has.
    pub async fn rows(&self, table: Table) -> usize {
        self.store.rows(table, b"", None, 10_000).await.unwrap().len()
    }

    /// Applies retention and compaction.
    pub async fn maintain(&self) {
        match &self.embedded {
            Some((store, _)) => store.maintain().await.unwrap(),
            None => drop(self.store.sweep(self.clock.wall_ms()).await.unwrap()),
        }
    }
}

/// Options of an embedded store with small files, so that retention finds whole ones to drop.
#[must_use]
pub fn small_files() -> embedded::EmbeddedOptions {
    let mut options = embedded::EmbeddedOptions::default();
    options.log.journal_file_bytes = 1 << 20;
    options.log.checkpoint_bytes = 2 << 20;
    options.log.segment_bytes = 8 << 10;
    options.log.reserve_bytes = 0;
    options.log.reserve_files = 0;
    options
}

async fn open_bus(store: &Arc<dyn Store>, clock: &Arc<ManualClock>, options: BusOptions) -> Bus {
    Bus::open(Arc::clone(store), Arc::clone(clock) as _, options).await.unwrap()
}
