//! After a power cut, which also tears what the state engine has not synced, a registration is there whole or not at all, and
//! so is an event with its old form.

use std::sync::Arc;

use promethean_bus::publish::Publish;
use promethean_bus::schemas::WhichSchema;
use promethean_bus::{Bus, BusOptions};
use promethean_store::embedded::{EmbeddedOptions, EmbeddedStore};
use promethean_store::port::{PageLimit, Store};
use promethean_testkit::{FaultDisk, ManualClock, SyncedFolder};

use super::super::bus::harness::{WALL_MS, copy_folder, small_files, topic};
use super::dual_write_publishes_old_forms::dual;
use super::old_events_are_lifted::upcaster;
use super::*;

/// All work runs on the caller's thread, so that the number of an operation means the same in every run.
fn options() -> EmbeddedOptions {
    let mut options = small_files();
    options.log.threads = false;
    options.log.journal_file_bytes = 64 << 10;
    options
}

async fn open(disk: &FaultDisk, dir: &std::path::Path) -> Option<(Arc<EmbeddedStore>, Bus)> {
    let clock = Arc::new(ManualClock::new(WALL_MS));
    let opened =
        EmbeddedStore::open_on(Arc::new(disk.clone()), dir, Arc::clone(&clock) as _, options()).await;
    let store = Arc::new(opened.ok()?.0);
    let bus = Bus::open(Arc::clone(&store) as _, clock, BusOptions::default()).await.ok()?;
    Some((store, bus))
}

/// The versions and events that were acknowledged.
async fn script(bus: &Bus) -> (usize, usize) {
    let (mut versions, mut events) = (0, 0);
    if bus
        .set_topic(
            &topic("t"),
            promethean_model::TopicSettings { compat: Compat::None, ..Default::default() },
        )
        .await
        .is_err()
    {
        return (0, 0);
    }
    for schema in [V1, V2] {
        if register(bus, "t", schema).await.is_err() {
            return (versions, events);
        }
        versions += 1;
    }
    bus.set_dual_write(&topic("t"), Some(dual("{n: .count}"))).unwrap();
    for n in 0..3 {
        let event = Publish::new(topic("t"), format!(r#"{{"count":{n}}}"#));
        if bus.publish(event).await.is_err() {
            return (versions, events);
        }
        events += 1;
    }
    if register(bus, "t", V3).await.is_ok() {
        versions += 1;
    }
    (versions, events)
}

async fn payloads(store: &dyn Store, of: &str) -> Vec<String> {
    let page = store.read(&topic(of), promethean_model::Offset::ZERO, PageLimit::default()).await.unwrap();
    page.events.iter().map(|event| payload(event).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_point_leaves_whole_versions_and_whole_pairs() {
    let ops = {
        let (disk, dir) = (FaultDisk::new(), tempfile::tempdir().unwrap());
        let (_store, bus) = open(&disk, dir.path()).await.unwrap();
        let from = disk.ops();
        assert_eq!(script(&bus).await, (3, 3));
        from..disk.ops()
    };
    assert!(!ops.is_empty());
    let mut torn = 0;
    for op in ops.start + 1..=ops.end {
        torn += u64::from(cut(op, op).await);
    }
    assert!(torn > 5, "{torn} torn states");
}

/// Returns whether the state was torn.
async fn cut(op: u64, seed: u64) -> bool {
    let (disk, dir, cut) = (FaultDisk::new(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let state = dir.path().join("state");
    let (store, bus) = open(&disk, dir.path()).await.unwrap();
    let synced = SyncedFolder::of(&state);
    disk.stop_at(op, seed);
    let (versions, events) = script(&bus).await;
    // Closing writes to the folder, which a machine without power cannot.
    copy_folder(&state, cut.path());
    bus.close().await;
    store.close().await;
    drop((bus, store));
    std::fs::remove_dir_all(&state).unwrap();
    copy_folder(cut.path(), &state);
    let torn = synced.tear(&state, seed);
    let disk = disk.crash(seed);
    let (store, bus) = open(&disk, dir.path()).await.unwrap_or_else(|| panic!("op {op}: does not open"));
    let known = bus.schemas(&topic("t"));
    assert!((versions..=versions + 1).contains(&known.len()), "op {op}: {versions} acknowledged, {known:?}");
    for (info, text) in known.iter().zip([V1, V2, V3]) {
        let stored = bus.schema(&topic("t"), WhichSchema::Version(info.version)).await.unwrap();
        assert_eq!(stored.schema, text, "op {op}");
    }
    let (new, old) = (payloads(&*store, "t").await, payloads(&*store, "t.v1").await);
    assert!((events..=events + 1).contains(&new.len()), "op {op}: {events} acknowledged, {new:?}");
    let expected: Vec<_> = new.iter().map(|payload| payload.replace("count", "n")).collect();
    assert_eq!(old, expected, "op {op}: an event without its old form, or the other way round");
    // The bus goes on working.
    if known.len() == 3 {
        bus.set_upcasters(&topic("t"), vec![upcaster(2, 3, r#". + {unit: "kg"}"#)]).unwrap();
        bus.publish(Publish::new(topic("t"), r#"{"count":9,"unit":"x"}"#)).await.unwrap();
    }
    torn
}
