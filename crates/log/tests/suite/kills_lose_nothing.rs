//! A real process is killed with SIGKILL at arbitrary moments, and its log compared with its ledger.
//!
//! `KILL_CYCLES=n` runs n cycles.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use promethean_log::state::NoState;
use promethean_log::{Log, LogBatch, LogOptions, NoObserver, OpenArgs, RealDisk};
use promethean_model::{Durability, SystemClock};
use promethean_testkit::ledger::{Invocation, LedgerEntry, payload_hash};
use promethean_testkit::{Ledger, SeededRng};

use super::simulation::observe;
use super::world::{event, id, name};

const CHILD_DIR: &str = "PROMETHEAN_KILL_CHILD";
const PUBLISHERS: u64 = 4;
/// The number of cycles on one directory before a new one is used.
const CYCLES_PER_DIR: u64 = 25;

fn options() -> LogOptions {
    LogOptions {
        journal_file_bytes: 64 * 1024,
        checkpoint_bytes: 128 * 1024,
        segment_bytes: 32 * 1024,
        tail_bytes: 16 * 1024,
        index_bytes: 256 * 1024,
        open_files: 16,
        reserve_bytes: 0,
        ..LogOptions::default()
    }
}

fn open(dir: &Path) -> Log {
    let args = OpenArgs {
        disk: Arc::new(RealDisk::new(dir.join("data")).unwrap()),
        clock: Arc::new(SystemClock::new()),
        state: Arc::new(NoState),
        observer: Arc::new(NoObserver),
        options: options(),
    };
    Log::open(args).unwrap().0
}

/// Publishes until it is killed. Every acknowledgement is a line on standard output.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let dir = Path::new(&dir);
    let log = open(dir);
    let base = log.topics().iter().map(promethean_log::Topic::end).sum::<u64>() + 1;
    std::thread::scope(|scope| {
        for publisher in 0..PUBLISHERS {
            let log = &log;
            scope.spawn(move || publish(log, dir, publisher, base));
        }
    });
}

fn publish(log: &Log, dir: &Path, publisher: u64, base: u64) {
    let path = dir.join(format!("ledger-{publisher}"));
    cut_torn_line(&path);
    let mut ledger = OpenOptions::new().append(true).create(true).open(path).unwrap();
    let mut rng = SeededRng::new(base * PUBLISHERS + publisher);
    for round in 0.. {
        // The number is unique over cycles, publishers and rounds.
        let first = ((base + round) * PUBLISHERS + publisher) * 1000;
        let count = rng.range(1..4);
        let mut batch = LogBatch::new();
        let mut ops = Vec::new();
        for number in first..first + count {
            let topic = ["a", "b", "c.d"][rng.range(0..3) as usize];
            let payload = format!("\"{}\"", "x".repeat(rng.range(0..400) as usize));
            let key = format!("k{}", rng.range(0..20));
            let handle = log.topic_or_create(&name(topic)).unwrap();
            batch.push(&handle, event(number, Some(&key), &payload)).unwrap();
            let invoked = Invocation {
                producer: format!("p{publisher}"),
                topic: topic.to_owned(),
                id: id(number).to_string(),
                key: Some(key),
                payload: payload_hash(payload.as_bytes()),
                batch: Some(format!("{first}")),
            };
            Ledger::write_json_line(&mut ledger, &LedgerEntry::Invoked { op: number, event: invoked })
                .unwrap();
            ops.push(number);
        }
        let receipt = log.append(batch, Durability::Fsync).unwrap();
        for (op, placed) in ops.into_iter().zip(receipt.events.iter()) {
            let ok = LedgerEntry::Ok { op, offset: placed.offset };
            Ledger::write_json_line(&mut ledger, &ok).unwrap();
        }
        println!("acknowledged");
    }
}

/// Removes a last line without its end: a kill may have torn it at a page boundary, and the next line must
/// not continue it.
fn cut_torn_line(path: &Path) {
    let Ok(bytes) = std::fs::read(path) else { return };
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    OpenOptions::new().write(true).open(path).unwrap().set_len(whole as u64).unwrap();
}

/// Starts the child and kills it after that many acknowledgements.
fn run_and_kill(dir: &Path, acknowledgements: u64) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "suite::kills_lose_nothing::child", "--nocapture", "--test-threads=1"])
        .env(CHILD_DIR, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let seen = lines.by_ref().map_while(Result::ok).filter(|line| line.contains("acknowledged"));
    assert_eq!(
        seen.take(acknowledgements as usize).count() as u64,
        acknowledgements,
        "the child ended by itself"
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

fn check(dir: &Path) -> u64 {
    let whole = Ledger::new();
    for publisher in 0..PUBLISHERS {
        let Ok(file) = File::open(dir.join(format!("ledger-{publisher}"))) else { continue };
        for entry in Ledger::from_json_lines(BufReader::new(file)).unwrap().entries() {
            whole.record(entry);
        }
    }
    let log = open(dir);
    let observed = observe(&log).unwrap();
    let summary = whole.check(&observed).unwrap_or_else(|violations| {
        panic!("{} violations, first: {:?}", violations.len(), violations[0]);
    });
    let report = log.verify(&mut |_, _| {});
    assert!(report.is_clean(), "{report:?}");
    summary.ok
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let cycles = std::env::var("KILL_CYCLES").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let mut rng = SeededRng::new(cycles);
    let mut dir = tempfile::tempdir().unwrap();
    let mut acknowledged = 0;
    for cycle in 0..cycles {
        if cycle % CYCLES_PER_DIR == 0 {
            dir = tempfile::tempdir().unwrap();
            acknowledged = 0;
        }
        run_and_kill(dir.path(), rng.range(1..120));
        let now = check(dir.path());
        assert!(now > acknowledged, "cycle {cycle} added nothing");
        acknowledged = now;
    }
}
