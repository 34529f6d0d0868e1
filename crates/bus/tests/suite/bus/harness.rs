//! A bus on either store, with a clock moved by hand, and short ways to use it.

use std::sync::Arc;
use std::time::Duration;

use promethean_bus::groups::GroupProgress;
use promethean_bus::publish::{Publish, Published};
use promethean_bus::rows::{AskedOptions, StartPosition};
use promethean_bus::subscription::Subscribe;
use promethean_bus::{Bus, BusError, BusOptions, Lease, Subscription, SubscriptionItem};
use promethean_model::{GroupName, Offset, TopicName};
use promethean_store::embedded::{self, EmbeddedStore};
use promethean_store::memory::{self, MemoryStore};
use promethean_store::port::{PageLimit, Store, StoredEvent, Table};
use promethean_testkit::ManualClock;
use tempfile::TempDir;

use super::gate_store::GateStore;

/// Makes each function a test on both stores.
macro_rules! on_both_stores {
    ($($name:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(crate::suite::bus::harness::Kind::Memory).await })*
        }
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(crate::suite::bus::harness::Kind::Embedded).await })*
        }
    };
}
pub(crate) use on_both_stores;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    Embedded,
}

/// Long enough that only a stall takes longer.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("stalled: {what}"),
    }
}

pub(crate) struct World {
    pub(crate) bus: Bus,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: Arc<dyn Store>,
    options: BusOptions,
    embedded: Option<(Arc<EmbeddedStore>, TempDir)>,
}

pub(crate) const WALL_MS: i64 = 1_700_000_000_000;

impl World {
    pub(crate) async fn new(kind: Kind) -> Self {
        Self::with(kind, BusOptions::default()).await
    }

    pub(crate) async fn with(kind: Kind, options: BusOptions) -> Self {
        let clock = Arc::new(ManualClock::new(WALL_MS));
        match kind {
            Kind::Memory => {
                let store = Arc::new(MemoryStore::new(Arc::clone(&clock) as _, memory::Options::default()));
                Self::on(store, None, clock, options).await
            }
            Kind::Embedded => Self::in_dir(tempfile::tempdir().unwrap(), clock, options).await,
        }
    }

    /// With a store whose commits can be held.
    pub(crate) async fn gated(kind: Kind) -> (Self, Arc<GateStore>) {
        let mut world = Self::new(kind).await;
        let gate = Arc::new(GateStore::new(Arc::clone(&world.store)));
        world.store = Arc::clone(&gate) as _;
        let opened =
            Bus::open(Arc::clone(&world.store), Arc::clone(&world.clock) as _, world.options.clone());
        world.bus = opened.await.unwrap();
        (world, gate)
    }

    async fn in_dir(dir: TempDir, clock: Arc<ManualClock>, options: BusOptions) -> Self {
        let (store, _) = EmbeddedStore::open(dir.path(), Arc::clone(&clock) as _, small()).await.unwrap();
        let store = Arc::new(store);
        Self::on(Arc::clone(&store) as _, Some((store, dir)), clock, options).await
    }

    async fn on(
        store: Arc<dyn Store>,
        embedded: Option<(Arc<EmbeddedStore>, TempDir)>,
        clock: Arc<ManualClock>,
        options: BusOptions,
    ) -> Self {
        let bus = Bus::open(Arc::clone(&store), Arc::clone(&clock) as _, options.clone()).await.unwrap();
        Self { bus, clock, store, options, embedded }
    }

    /// Closes the bus, and the store where it can be opened again, and opens them anew.
    pub(crate) async fn restart(self) -> Self {
        soon("close", self.bus.close()).await;
        match self.embedded {
            None => Self::on(self.store, None, self.clock, self.options).await,
            Some((store, dir)) => {
                store.close().await;
                drop((store, self.store, self.bus));
                Self::in_dir(dir, self.clock, self.options).await
            }
        }
    }

    /// Time passes, and everyone notices.
    pub(crate) fn pass(&self, ms: u64) {
        self.clock.advance(ms);
        self.bus.wake();
    }

    pub(crate) async fn subscribe(&self, request: Subscribe) -> Subscription {
        soon("subscribe", self.bus.subscribe(request)).await.unwrap()
    }

    pub(crate) async fn publish(&self, to: &str, payload: u64) -> Published {
        self.bus.publish(Publish::new(topic(to), payload.to_string())).await.unwrap()
    }

    pub(crate) async fn publish_key(&self, to: &str, key: &str, payload: u64) -> Published {
        self.bus.publish(Publish::new(topic(to), payload.to_string()).key(key)).await.unwrap()
    }

    /// Publishes the numbers.
    pub(crate) async fn fill(&self, to: &str, payloads: std::ops::Range<u64>) {
        for payload in payloads {
            self.publish(to, payload).await;
        }
    }

    pub(crate) async fn seen(&self, on: &str, by: &str) -> GroupProgress {
        soon("look", self.bus.group(&topic(on), &group(by))).await.unwrap()
    }

    /// How the group stands once nothing moves any more.
    pub(crate) async fn settled(&self, on: &str, by: &str) -> GroupProgress {
        soon("settle", async {
            loop {
                let seen = self.seen(on, by).await;
                if seen.reason.is_some() {
                    return seen;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }

    /// Waits until the group stands so.
    pub(crate) async fn until(
        &self,
        on: &str,
        by: &str,
        so: impl Fn(&GroupProgress) -> bool,
    ) -> GroupProgress {
        let mut last = None;
        let wait = async {
            loop {
                let seen = self.seen(on, by).await;
                if so(&seen) {
                    return seen;
                }
                last = Some(seen);
                tokio::task::yield_now().await;
            }
        };
        match tokio::time::timeout(PATIENCE, wait).await {
            Ok(seen) => seen,
            Err(_) => panic!("never so: {last:?}"),
        }
    }

    pub(crate) async fn word(&self, on: &str, by: &str) -> &'static str {
        self.settled(on, by).await.reason.unwrap().as_str()
    }

    pub(crate) async fn events(&self, of: &str) -> Vec<StoredEvent> {
        let (mut found, mut from) = (Vec::new(), Offset::ZERO);
        // A page may end before its limit, where files do.
        while from < self.store.durable_end(&topic(of)) {
            let page = self.store.read(&topic(of), from, PageLimit::default()).await.unwrap();
            found.extend(page.events);
            from = page.next;
        }
        found
    }

    pub(crate) async fn rows(&self, table: Table) -> usize {
        self.store.rows(table, b"", None, 10_000).await.unwrap().len()
    }

    /// Applies retention.
    pub(crate) async fn maintain(&self) {
        match &self.embedded {
            Some((store, _)) => store.maintain().await.unwrap(),
            None => {
                use promethean_model::Clock as _;
                self.store.sweep(self.clock.wall_ms()).await.unwrap();
            }
        }
    }

    pub(crate) async fn until_tasks(&self, count: usize) {
        soon("tasks", async {
            while self.bus.tasks() != count {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

pub(crate) fn small() -> embedded::Options {
    let mut options = embedded::Options::default();
    options.log.journal_file_bytes = 1 << 20;
    options.log.checkpoint_bytes = 2 << 20;
    options.log.segment_bytes = 8 << 10;
    options.log.reserve_bytes = 0;
    options
}

pub(crate) fn topic(name: &str) -> TopicName {
    name.parse().unwrap()
}

pub(crate) fn group(name: &str) -> GroupName {
    name.parse().unwrap()
}

/// From the earliest event on, with all other defaults.
pub(crate) fn request(subject: &str, group: &str) -> Subscribe {
    request_from(subject, group, StartPosition::Earliest)
}

pub(crate) fn request_from(subject: &str, group: &str, from: StartPosition) -> Subscribe {
    let options = AskedOptions { from: Some(from), ..AskedOptions::default() };
    Subscribe { options, ..Subscribe::new(subject.parse().unwrap(), group.parse().unwrap()) }
}

/// With a bound on what is in flight.
pub(crate) fn bounded(mut request: Subscribe, max_in_flight: usize) -> Subscribe {
    request.member.max_in_flight = max_in_flight;
    request
}

pub(crate) fn attempts(mut request: Subscribe, max_attempts: u32) -> Subscribe {
    request.options.max_attempts = Some(max_attempts);
    request
}

/// The next `count` leases.
pub(crate) async fn take(subscription: &mut Subscription, count: usize) -> Vec<Lease> {
    let mut found = Vec::new();
    while found.len() < count {
        let given = soon("next", subscription.next(count - found.len())).await.unwrap();
        if let SubscriptionItem::Leases(leases) = given {
            found.extend(leases);
        }
    }
    found
}

pub(crate) async fn take_one(subscription: &mut Subscription) -> Lease {
    take(subscription, 1).await.pop().unwrap()
}

/// Payloads are numbers in most tests.
pub(crate) fn number(event: &StoredEvent) -> u64 {
    str::from_utf8(event.payload()).unwrap().parse().unwrap()
}

pub(crate) fn numbers(leases: &[Lease]) -> Vec<u64> {
    leases.iter().map(|lease| number(&lease.event)).collect()
}

pub(crate) fn offsets(leases: &[Lease]) -> Vec<u64> {
    leases.iter().map(|lease| lease.event.offset.get()).collect()
}

/// Whether nothing is there to be taken. To be asked when the group has settled.
pub(crate) fn is_idle(subscription: &mut Subscription) -> bool {
    subscription.try_take(1).is_none()
}

/// How the subscription ended.
pub(crate) async fn end_of(subscription: &mut Subscription) -> BusError {
    soon("end", async {
        loop {
            if let Err(error) = subscription.next(100).await {
                return error;
            }
        }
    })
    .await
}

/// For what takes seconds: others need the machine meanwhile.
pub(crate) async fn a_moment() {
    let _ = tokio::time::timeout(Duration::from_millis(10), std::future::pending::<()>()).await;
}
