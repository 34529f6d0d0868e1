//! A bus over each kind of store, which can be closed and opened again.

use std::sync::Arc;
use std::time::Duration;

use promethean_bus::dead_letters::{LetterChoice, LetterInfo};
use promethean_bus::publish::Publish;
use promethean_bus::rows::{AskedOptions, StartPosition};
use promethean_bus::subscription::Subscribe;
use promethean_bus::{Bus, BusOptions, Lease, Subscription, SubscriptionItem};
use promethean_model::{GroupName, Millis, Offset, Retention, SystemClock, TopicName, TopicSettings};
use promethean_store::embedded::EmbeddedStore;
use promethean_store::memory::MemoryStore;
use promethean_store::port::{PageLimit, Store, StoredEvent};
use tempfile::TempDir;

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
        let store = Arc::new(MemoryStore::new(Arc::new(SystemClock::new()), Default::default()));
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

    /// Closes bus and store, as far as the store outlives that, and opens them again.
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

    /// Drops all but the latest few events of a topic.
    pub(crate) async fn expire(&self, on: &str) {
        let retention = Retention { count: Some(2), age: None, bytes: None };
        let dedupe_window = Millis::from_hours(1);
        let settings = TopicSettings { retention, dedupe_window, ..TopicSettings::default() };
        self.bus.set_topic(&topic(on), settings).await.unwrap();
        match &self.disk {
            None => drop(self.store.sweep(0).await.unwrap()),
            Some((store, _)) => store.maintain().await.unwrap(),
        }
    }

    pub(crate) async fn publish(&self, to: &str, count: u64) {
        let filler = "x".repeat(500);
        for n in 0..count {
            let event = Publish::new(topic(to), format!("{{\"n\":{n},\"filler\":\"{filler}\"}}"));
            let event = event.key(format!("k{n}")).header("x-kind", if n % 2 == 0 { "even" } else { "odd" });
            self.bus.publish(event).await.unwrap();
        }
    }

    /// Publishes events and lets the group give them all up.
    pub(crate) async fn kill(&self, on: &str, by: &str, count: u64) {
        let mut member = self.bus.subscribe(request(on, by, 1)).await.unwrap();
        self.publish(on, count).await;
        let given = leases(&mut member, count as usize).await;
        assert_eq!(member.nack(&given, Some(0)).await.unwrap().stale, 0);
        member.unsubscribe();
    }

    pub(crate) async fn letters(&self, on: &str, by: &str) -> Vec<LetterInfo> {
        let mut found: Vec<LetterInfo> = Vec::new();
        let mut after = None;
        loop {
            let page = self.bus.dead_letters(&topic(on), &group(by), after, 1000).await.unwrap();
            found.extend(page.letters);
            after = page.next;
            if after.is_none() {
                return found;
            }
        }
    }

    /// Open letters as the metrics have them.
    pub(crate) fn gauge(&self, on: &str, by: &str) -> i64 {
        let page = self.bus.metrics().render();
        let line = page.lines().find(|line| {
            line.contains("dead_letters_open{")
                && line.contains(&format!("\"{on}\""))
                && line.contains(&format!("\"{by}\""))
        });
        line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    }

    pub(crate) async fn events(&self, of: &str) -> Vec<StoredEvent> {
        let (mut found, mut from) = (Vec::new(), Offset::ZERO);
        loop {
            let page = self.store.read(&topic(of), from, PageLimit::default()).await.unwrap();
            if page.next == from {
                return found;
            }
            from = page.next;
            found.extend(page.events);
        }
    }
}

async fn open(store: Arc<dyn Store>) -> Bus {
    Bus::open(store, Arc::new(SystemClock::new()), BusOptions::default()).await.unwrap()
}

pub(crate) fn topic(name: &str) -> TopicName {
    name.parse().unwrap()
}

pub(crate) fn group(name: &str) -> GroupName {
    name.parse().unwrap()
}

pub(crate) fn offsets(of: &[u64]) -> LetterChoice {
    LetterChoice::Offsets(of.iter().copied().map(Offset).collect())
}

/// From the beginning, with so many attempts.
pub(crate) fn request(on: &str, by: &str, max_attempts: u32) -> Subscribe {
    let max_attempts = Some(max_attempts);
    let options =
        AskedOptions { from: Some(StartPosition::Earliest), max_attempts, ..AskedOptions::default() };
    Subscribe { options, ..Subscribe::new(on.parse().unwrap(), group(by)) }
}

pub(crate) async fn leases(member: &mut Subscription, count: usize) -> Vec<Lease> {
    let mut found = Vec::new();
    while found.len() < count {
        if let SubscriptionItem::Leases(leases) = member.next(count - found.len()).await.unwrap() {
            found.extend(leases);
        }
    }
    found
}
