//! Power cuts while many publishers and all of the log's threads are at work.
//!
//! `THREAD_CRASHES=n` runs n cuts. Threads make the moment of a cut random, so a seed does not replay
//! exactly.

use std::sync::{Arc, Mutex};

use promethean_log::{AppendError, Log, LogBatch, LogOptions, TopicPolicy};
use promethean_model::Durability;
use promethean_testkit::fault_state::encode_puts;
use promethean_testkit::ledger::{Invocation, payload_hash};
use promethean_testkit::{Ledger, SeededRng};

use super::simulation::{COMPACTED, observe};
use super::world::*;

const PUBLISHERS: u64 = 4;

/// Keys that acknowledged batches have put into the state.
type Redone = Mutex<Vec<String>>;

fn set_policies(log: &Log) {
    let policy = |name: &str| match name {
        "short" => TopicPolicy { count: Some(20), ..TopicPolicy::default() },
        COMPACTED => TopicPolicy { compacted: true, ..TopicPolicy::default() },
        _ => TopicPolicy::default(),
    };
    for topic in log.topics() {
        log.set_policy(&topic, policy(topic.name().as_str()));
    }
}

fn publish(log: &Log, ledger: &Ledger, redone: &Redone, publisher: u64, seed: u64) {
    let mut rng = SeededRng::new(seed * PUBLISHERS + publisher);
    for round in 0..200u64 {
        let first = ((seed * PUBLISHERS + publisher) * 1000 + round) * 10;
        let mut batch = LogBatch::new();
        let mut ops = Vec::new();
        for number in first..first + rng.range(1..4) {
            let topic = ["a", "b", "short", COMPACTED][rng.range(0..4) as usize];
            let payload = "x".repeat(rng.range(0..400) as usize);
            let key = format!("k{}", rng.range(0..9));
            let Ok(handle) = log.topic_or_create(&name(topic)) else { return };
            batch.push(&handle, event(number, Some(&key), &payload)).unwrap();
            ops.push(ledger.record_invoked(Invocation {
                producer: format!("p{seed}-{publisher}"),
                topic: topic.to_owned(),
                id: id(number).to_string(),
                key: Some(key),
                payload: payload_hash(payload.as_bytes()),
                batch: Some(format!("{first}")),
            }));
        }
        let with_redo = rng.chance(30).then(|| format!("{first}"));
        if let Some(key) = &with_redo {
            batch.redo(&encode_puts(&[(key.as_bytes(), b"done")]));
        }
        match log.append(batch, Durability::Fsync) {
            Ok(receipt) => {
                redone.lock().unwrap().extend(with_redo);
                for (op, placed) in ops.iter().zip(receipt.events.iter()) {
                    ledger.record_ok(*op, placed.offset);
                }
            }
            Err(AppendError::UnknownOutcome { .. }) => {
                return ops.iter().for_each(|op| ledger.record_unknown(*op));
            }
            Err(_) => return ops.iter().for_each(|op| ledger.record_fail(*op)),
        }
    }
}

fn cut_power_once(world: &mut World, ledger: &Ledger, redone: &Redone, seed: u64) {
    world.disk.stop_at(1 + (seed * 37) % 900, seed);
    if let Ok((log, _)) = world.try_open() {
        std::thread::scope(|scope| {
            let start = |publisher| {
                let log = &log;
                scope.spawn(move || publish(log, ledger, redone, publisher, seed))
            };
            let publishers: Vec<_> = (0..PUBLISHERS).map(start).collect();
            // The work that the maintenance threads do once a second, here all the time.
            while publishers.iter().any(|publisher| !publisher.is_finished()) {
                set_policies(&log);
                let _ = log.maintain();
            }
        });
    }
    world.disk = world.disk.crash(seed);
    world.state = Arc::new(world.state.crash(seed));
}

#[test]
fn nothing_acknowledged_is_lost_with_all_threads_at_work() {
    let cuts = std::env::var("THREAD_CRASHES").ok().and_then(|text| text.parse().ok()).unwrap_or(150u64);
    for start in (0..cuts).step_by(3) {
        let mut world = World::with(LogOptions { threads: true, index_bytes: 256 * 1024, ..small() });
        let (ledger, redone) = (Ledger::new(), Redone::default());
        for seed in start..start + 3 {
            cut_power_once(&mut world, &ledger, &redone, seed);
            let log = world.try_open().unwrap_or_else(|error| panic!("seed {seed}: {error}")).0;
            let observed = observe(&log).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            if let Err(violations) = ledger.check(&observed) {
                panic!("seed {seed}: {} violations, first: {:?}", violations.len(), violations[0]);
            }
            for key in redone.lock().unwrap().iter() {
                assert!(world.state.get(key.as_bytes()).is_some(), "seed {seed}: state of {key} is gone");
            }
            let report = log.verify(&mut |_, _| {});
            assert!(report.is_clean(), "seed {seed}: {report:?}");
        }
    }
}
