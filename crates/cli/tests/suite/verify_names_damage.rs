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

use super::running_server::RunningServer;
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
fn a_repair_sets_damage_aside_and_loses_one_event() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).close().unwrap();
    let data = dir.path().join("data");
    // The header of a record.
    let segment = only_segment(&data);
    let bytes = fs::read(&segment).unwrap();
    let at = bytes.windows(9).position(|window| window == b"{\"n\":250}").unwrap();
    flip(&segment, at - 30);
    for file in fs::read_dir(data.join("journal")).unwrap() {
        // Whether a copy is still in the journal is not what this test is about.
        let path = file.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        bytes[512..].fill(0);
        fs::write(path, bytes).unwrap();
    }
    let output = promethean(dir.path(), &["verify", "--data", "data"]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    let planned = "would be lost: topic `orders.placed`: offsets 250..251";
    assert!(stdout(&output).contains(planned), "{}", stdout(&output));
    assert!(stdout(&output).contains("--repair") && only_segment(&data) == segment);
    let output = promethean(dir.path(), &["verify", "--data", "data", "--repair"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let text = stdout(&output);
    assert!(
        text.contains("lost: topic `orders.placed`: offsets 250..251") && text.contains("everything fits"),
        "{text}"
    );
    let kept: Vec<_> =
        fs::read_dir(data.join("quarantine")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let original = |path: &PathBuf| fs::read(path).unwrap().len() == bytes.len();
    assert!(kept.iter().any(original), "the original bytes are kept: {kept:?}");
    let output = promethean(dir.path(), &["verify", "--data", "data", "--json"]);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((&report["clean"], &report["records"]), (&Value::from(true), &Value::from(EVENTS - 1)));
}

#[test]
fn a_directory_in_use_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let log = filled(dir.path());
    let output = promethean(dir.path(), &["verify", "--data", "data"]);
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert!(stderr(&output).contains("in use by another process"), "{}", stderr(&output));
    let output = promethean(dir.path(), &["verify", "--data", "data", "--repair"]);
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
        let options = embedded::EmbeddedOptions::default();
        let (store, _) = EmbeddedStore::open(dir.path().join("data"), clock, options).await.unwrap();
        store.close().await;
    });
    let output = promethean(dir.path(), &["verify", "--data", "data", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(report["state_entries"].is_u64(), "{report}");
}

/// The files of a folder and of those below it.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn a_server_refuses_damaged_state_until_it_is_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let server = RunningServer::start(dir.path(), &["--data", "data"]);
    for n in 0..20 {
        server.ask("PUT", &format!("/topics/a.t{n}"), "{\"max_attempts\": 3}");
        server.ask("POST", &format!("/publish/a.t{n}"), "{}");
    }
    server.stop();
    let state = dir.path().join("data/state");
    let journal =
        files(&state).into_iter().find(|path| path.extension().is_some_and(|ext| ext == "jnl")).unwrap();
    let used = fs::read(&journal).unwrap().iter().rposition(|byte| *byte != 0).unwrap();
    flip(&journal, used / 2);
    let refused = promethean(dir.path(), &["serve", "--listen", "127.0.0.1:0", "--data", "data"]);
    let said = stderr(&refused);
    assert!(!refused.status.success() && said.contains("promethean verify --repair --data data"), "{said}");
    let planned = stdout(&promethean(dir.path(), &["verify", "--data", "data"]));
    assert!(planned.contains("would be set aside: state"), "{planned}");
    let repaired = promethean(dir.path(), &["verify", "--repair", "--data", "data"]);
    let said = stdout(&repaired);
    assert_eq!(repaired.status.code(), Some(0), "{said}{}", stderr(&repaired));
    assert!(
        said.contains("set aside: state as quarantine/state-1") && said.contains("everything fits"),
        "{said}"
    );
    for line in planned.lines().chain(said.lines()) {
        assert!(!line.contains("would: ") && !line.contains("\\x"), "{line}");
    }
    let server = RunningServer::start(dir.path(), &["--data", "data"]);
    for n in 0..20 {
        assert!(server.ask("GET", &format!("/topics/a.t{n}"), "").contains("\"end\":1"));
    }
    server.stop();
}
