//! Every shipped format must stay readable. `WRITE_FIXTURE=DIR` makes a new fixture.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use promethean_log::state::NoState;
use promethean_log::{Log, NoObserver, OpenArgs, RealDisk};
use promethean_testkit::ManualClock;

use super::world::{append, event, id, name, payloads, small};

const EVENTS: u64 = 90;

fn open(dir: &Path) -> Log {
    let args = OpenArgs {
        disk: Arc::new(RealDisk::new(dir).unwrap()),
        clock: Arc::new(ManualClock::new(1_700_000_000_000)),
        state: Arc::new(NoState),
        observer: Arc::new(NoObserver),
        options: small(),
    };
    Log::open(args).unwrap().0
}

fn expected(number: u64) -> (&'static str, String, String) {
    (["a", "b.c"][(number % 2) as usize], format!("key-{}", number % 7), format!("{{\"number\":{number}}}"))
}

#[test]
fn write_fixture() {
    let Some(dir) = std::env::var_os("WRITE_FIXTURE") else { return };
    let log = open(Path::new(&dir));
    for number in 0..EVENTS {
        let (topic, key, payload) = expected(number);
        append(&log, topic, event(number, Some(&key), &payload)).unwrap();
        if number == EVENTS * 2 / 3 {
            log.checkpoint().unwrap();
        }
    }
    // As a killed process leaves it: segments, runs, and frames that are only in the journal.
    assert!(log.health().checkpoints > 0 && log.health().tail_bytes > 0);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn format_1_opens_with_all_its_events() {
    let fixture = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/disk/v1");
    let dir = tempfile::tempdir().unwrap();
    copy(&fixture, dir.path());
    let log = open(dir.path());
    for topic in ["a", "b.c"] {
        let numbers: Vec<u64> = (0..EVENTS).filter(|number| expected(*number).0 == topic).collect();
        let found = payloads(&log, topic, 0);
        assert_eq!(found.len(), numbers.len());
        let handle = log.topic(&name(topic)).unwrap();
        for ((offset, payload), number) in found.into_iter().zip(numbers) {
            assert_eq!(payload, expected(number).2);
            let by_id = log.find_id(&handle, id(number)).unwrap().expect("by id");
            assert_eq!(by_id.view().offset, offset);
            assert_eq!(by_id.view().key, Some(expected(number).1.as_bytes()));
        }
    }
    assert!(log.verify(&mut |_, _| {}).is_clean());
}
