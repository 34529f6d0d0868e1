//! `promethean verify` on whole, damaged and busy directories.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use promethean_log::state::NoState;
use promethean_log::{Log, LogBatch, LogOptions, NewEvent, NewId, NoObserver, OpenArgs, RealDisk};
use promethean_model::{Durability, IdMint, SystemClock};
use promethean_store::embedded::{self, EmbeddedStore};
use promethean_store::port::Store;
use serde_json::Value;

use super::{promethean, stderr, stdout};

const EVENTS: u64 = 500;

fn open(data: &Path) -> Log {
    let args = OpenArgs {
        disk: Arc::new(RealDisk::new(data).unwrap()),
        clock: Arc::new(SystemClock::new()),
        state: Arc::new(NoState),
        observer: Arc::new(NoObserver),
        options: LogOptions::default(),
    };
    Log::open(args).unwrap().0
}

/// A data directory `data` with one topic; the log is still open.
fn filled(dir: &Path) -> Log {
    let log = open(&dir.join("data"));
    let topic = log.topic_or_create(&"orders.placed".parse().unwrap()).unwrap();
    let mint = IdMint::with_seed(1);
    let mut batch = LogBatch::new();
    for number in 0..EVENTS {
        let (id, payload) = (NewId::Minted(mint.mint(number)), format!("{{\"n\":{number}}}"));
        let (key, payload) = (Some(&b"k"[..]), payload.as_bytes());
        batch.push(&topic, NewEvent { id, ts: None, key, meta: &[], payload, tombstone: false }).unwrap();
    }
    log.append(batch, Durability::Fsync).unwrap();
    log
}

fn only_segment(data: &Path) -> PathBuf {
    let files = fs::read_dir(data.join("segments")).unwrap().map(|entry| entry.unwrap().path());
    let segments: Vec<_> = files.filter(|path| path.extension().is_some_and(|ext| ext == "seg")).collect();
    assert_eq!(segments.len(), 1);
    segments.into_iter().next().unwrap()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_whole_directory_is_clean() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).close().unwrap();
    let output = promethean(dir.path(), &["verify", "--data", "data"]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    assert!(stdout(&output).contains("everything fits"));
    let output = promethean(dir.path(), &["verify", "--data", "data", "--json"]);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((&report["clean"], &report["records"]), (&Value::from(true), &Value::from(EVENTS)));
}

#[test]
fn a_flipped_bit_is_named() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).close().unwrap();
    let segment = only_segment(&dir.path().join("data"));
    flip(&segment, 5_000);
    let file = format!("segments/{}", segment.file_name().unwrap().to_str().unwrap());
    let output = promethean(dir.path(), &["verify", "--data", "data"]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stdout(&output).contains(&file) && stdout(&output).contains("orders.placed"));
    let output = promethean(dir.path(), &["verify", "--data", "data", "--json"]);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let damage = &report["damage"][0];
    assert_eq!(damage["file"], Value::from(file));
    assert!(damage["from_byte"].as_u64().unwrap() <= 5_000 && damage["to_byte"].as_u64().unwrap() > 5_000);
    assert!(damage["to_offset"].as_u64().unwrap() > damage["from_offset"].as_u64().unwrap());
}

#[test]
fn damage_that_stops_the_open_is_named_too() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).close().unwrap();
    flip(&dir.path().join("data/manifest"), 20);
    let output = promethean(dir.path(), &["verify", "--data", "data"]);
    assert_eq!(output.status.code(), Some(1), "{}{}", stdout(&output), stderr(&output));
    assert!(stdout(&output).contains("manifest"), "{}", stdout(&output));
}

#[test]
fn a_directory_in_use_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let log = filled(dir.path());
    let output = promethean(dir.path(), &["verify", "--data", "data"]);
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert!(stderr(&output).contains("in use by another process"), "{}", stderr(&output));
    log.close().unwrap();
}

#[test]
fn other_directories_are_refused_and_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    for data in ["missing", "."] {
        let output = promethean(dir.path(), &["verify", "--data", data]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("not a data directory"), "{}", stderr(&output));
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn state_is_verified_if_there_is_any() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let clock = Arc::new(SystemClock::new());
        let options = embedded::Options::default();
        let (store, _) = EmbeddedStore::open(dir.path().join("data"), clock, options).await.unwrap();
        store.close().await;
    });
    let output = promethean(dir.path(), &["verify", "--data", "data", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(report["state_entries"].is_u64(), "{report}");
}
