//! Crashes at any point: each event counts once.

use std::path::Path;
use std::sync::Arc;

use promethean_bus::publish::Publish;
use promethean_bus::{Bus, BusOptions};
use promethean_model::{EventId, SystemClock};
use promethean_projections::{Declared, Projections};
use promethean_store::embedded::{EmbeddedOptions, EmbeddedStore};
use promethean_store::port::{PageLimit, Store};
use promethean_testkit::{FaultDisk, SyncedFolder};
use serde_json::Value;

use super::world::*;

const EVENTS: u64 = 60;

fn counting() -> Declared {
    let logic = jq(r#"
        {upsert: {collection: "docs", key: .key, set: .payload}},
        {upsert: {collection: "stats", key: "all", inc: {seen: 1}}},
        {publish: {topic: "out", key: .key, payload: .payload}}
    "#);
    let mut all = declared(projector(logic, &["docs", "stats"]));
    all.projectors[0].batch = 7;
    all.collections[1].history = true;
    all
}

struct Running {
    store: Arc<dyn Store>,
    bus: Bus,
    projections: Projections,
}

async fn start(disk: &FaultDisk, dir: &Path) -> Option<Running> {
    let mut options = EmbeddedOptions::default();
    options.log.reserve_bytes = 0;
    options.log.journal_file_bytes = 64 << 10;
    let clock = Arc::new(SystemClock::new());
    let opened = EmbeddedStore::open_on(Arc::new(disk.clone()), dir, clock.clone(), options).await;
    let store: Arc<dyn Store> = Arc::new(opened.ok()?.0);
    let bus = Bus::open(store.clone(), clock.clone(), BusOptions::default()).await.ok()?;
    let projections = Projections::open(bus.clone(), store.clone(), clock, counting()).await.ok()?;
    Some(Running { store, bus, projections })
}

impl Running {
    /// Publishes events from this number on until one is refused.
    async fn publish(&self, from: u64) {
        for n in from..EVENTS {
            let id = EventId::derive(b"test", &n.to_be_bytes());
            let event =
                Publish::new(topic("in"), format!(r#"{{"n":{n}}}"#)).key(format!("k{}", n % 5)).id(id);
            if self.bus.publish(event).await.is_err() {
                return;
            }
        }
    }

    async fn stop(self) {
        self.projections.close().await;
        self.bus.close().await;
        self.store.close().await;
    }

    /// Waits until all events are projected, and checks that each was projected once.
    async fn check(&self, seed: u64) -> u64 {
        let ended = self.store.durable_end(&topic("in")).get();
        until(&self.projections, "p", |status| status.position == ended).await;
        let stats = self.store.doc(&collection("stats"), "all").await.unwrap();
        let seen = stats
            .map_or(0, |doc| serde_json::from_str::<Value>(&doc.body).unwrap()["seen"].as_u64().unwrap());
        assert_eq!(seen, ended, "seed {seed}: events counted");
        for of in ["out", "stats.changed"] {
            let limit = PageLimit { events: 1_000, bytes: 1 << 20 };
            let page = self.store.read(&topic(of), promethean_model::Offset::ZERO, limit).await;
            let events = page.unwrap().events;
            assert_eq!(events.len() as u64, ended, "seed {seed}: events in {of}");
            for (n, event) in events.iter().enumerate() {
                let payload: Value = serde_json::from_slice(event.payload()).unwrap();
                let shown = if of == "out" { &payload["n"] } else { &payload["_offset"] };
                assert_eq!(shown, &Value::from(n), "seed {seed}: order in {of}");
            }
        }
        ended
    }
}

/// The log and the state engine lose bytes that they have not synced. Derived state is never ahead of the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn power_cuts_at_any_operation() {
    let mut torn = 0;
    for seed in 0..100_u64 {
        let (mut disk, dir) = (FaultDisk::new(), tempfile::tempdir().unwrap());
        let state = dir.path().join("state");
        let mut done = 0;
        for cut in 0..3 {
            let running =
                start(&disk, dir.path()).await.unwrap_or_else(|| panic!("seed {seed}: does not open"));
            let synced = SyncedFolder::of(&state);
            disk.stop_at(disk.ops() + 1 + (seed * 7 + cut * 13) % 90, seed + cut);
            running.publish(done).await;
            // The state is copied first: what it holds is in the log, and closing writes more.
            let kept = tempfile::tempdir().unwrap();
            copy(&state, kept.path());
            disk = disk.crash(seed + cut);
            running.stop().await;
            std::fs::remove_dir_all(&state).unwrap();
            copy(kept.path(), &state);
            torn += u64::from(synced.tear(&state, seed + cut));
            let running =
                start(&disk, dir.path()).await.unwrap_or_else(|| panic!("seed {seed}: does not open"));
            done = soon("the projector", running.check(seed)).await;
            running.stop().await;
        }
        let running = start(&disk, dir.path()).await.unwrap();
        running.publish(done).await;
        assert_eq!(soon("the projector", running.check(seed)).await, EVENTS);
        let hash = running.projections.state_hash(&[collection("docs"), collection("stats")]).await.unwrap();
        running.projections.rebuild(&group("p"), false).await.unwrap();
        let rebuilt = until(&running.projections, "p", |status| {
            status.rebuild.as_ref().is_some_and(|rebuild| !rebuild.running)
        });
        let rebuilt = soon("the projector", rebuilt).await.rebuild.unwrap();
        assert_eq!(
            (rebuilt.equal, rebuilt.hash.unwrap()),
            (Some(true), format!("{hash:032x}")),
            "seed {seed}"
        );
        running.stop().await;
    }
    assert!(torn > 100, "{torn} torn states");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to)
        } else {
            assert!(std::fs::copy(entry.path(), to).is_ok())
        }
    }
}

/// Derived commits are not synced: a power cut undoes the latest of them, documents and cursor together, while the log
/// keeps all acknowledged events.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_derived_last_is_undone_and_done_again() {
    for seed in 0..20_u64 {
        let (disk, dir) = (FaultDisk::new(), tempfile::tempdir().unwrap());
        let earlier = tempfile::tempdir().unwrap();
        let running = start(&disk, dir.path()).await.unwrap();
        for n in 0..10 + seed {
            let event = Publish::new(topic("in"), format!(r#"{{"n":{n}}}"#)).key("k");
            running.bus.publish(event).await.unwrap();
        }
        soon("the projector", running.check(seed)).await;
        // No write is under way, so this copy is a state that a disk could have kept.
        copy(dir.path(), earlier.path());
        for n in 10 + seed..40 {
            let event = Publish::new(topic("in"), format!(r#"{{"n":{n}}}"#)).key("k");
            running.bus.publish(event).await.unwrap();
        }
        soon("the projector", running.check(seed)).await;
        let after = disk.crash(seed);
        running.stop().await;
        let running =
            start(&after, earlier.path()).await.unwrap_or_else(|| panic!("seed {seed}: does not open"));
        assert_eq!(soon("the projector", running.check(seed)).await, 40);
        running.stop().await;
    }
}
