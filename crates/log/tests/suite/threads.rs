//! Power cuts while many publishers and all of the log's threads are at work.
//!
//! `THREAD_CRASHES=n` runs n cuts. Threads make the moment of a cut random, so a seed does not replay exactly.

use std::sync::Arc;

use promethean_log::{AppendError, Batch, Log, Options};
use promethean_model::Durability;
use promethean_testkit::ledger::{Invocation, payload_hash};
use promethean_testkit::{Ledger, SeededRng};

use super::simulation::observe;
use super::world::*;

const PUBLISHERS: u64 = 4;

fn publish(log: &Log, ledger: &Ledger, publisher: u64, seed: u64) {
    let mut rng = SeededRng::new(seed * PUBLISHERS + publisher);
    for round in 0..200u64 {
        let first = ((seed * PUBLISHERS + publisher) * 1000 + round) * 10;
        let mut batch = Batch::new();
        let mut ops = Vec::new();
        for number in first..first + rng.range(1..4) {
            let topic = ["a", "b", "c.d"][rng.range(0..3) as usize];
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
        match log.append(batch, Durability::Fsync) {
            Ok(receipt) => {
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

fn cut_power_once(world: &mut World, ledger: &Ledger, seed: u64) {
    world.disk.stop_at(1 + (seed * 37) % 700, seed);
    if let Ok((log, _)) = world.try_open() {
        std::thread::scope(|scope| {
            for publisher in 0..PUBLISHERS {
                let log = &log;
                scope.spawn(move || publish(log, ledger, publisher, seed));
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
        let mut world = World::with(Options { threads: true, index_bytes: 256 * 1024, ..small() });
        let ledger = Ledger::new();
        for seed in start..start + 3 {
            cut_power_once(&mut world, &ledger, seed);
            let log = world.try_open().unwrap_or_else(|error| panic!("seed {seed}: {error}")).0;
            let observed = observe(&log).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            if let Err(violations) = ledger.check(&observed) {
                panic!("seed {seed}: {} violations, first: {:?}", violations.len(), violations[0]);
            }
            let report = log.verify(&mut |_, _| {});
            assert!(report.is_clean(), "seed {seed}: {report:?}");
        }
    }
}
