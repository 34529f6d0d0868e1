//! Faults during maintenance: operations fail, space runs out, and work and maintenance continue.
//!
//! `TROUBLE_SEEDS=n` runs n seeds, `TROUBLE_FRESH=n` n fresh ones, `TROUBLE_SEED=s` one.

use promethean_log::Log;
use promethean_testkit::{DiskFailure, Matcher, OpKind, SeededRng, seeds};

use super::power_cuts_lose_nothing::panic_text;
use super::simulation::Simulation;

const ROUNDS: usize = 4;
const STEPS: usize = 40;
const KINDS: [OpKind; 10] = [
    OpKind::Create,
    OpKind::Write,
    OpKind::Write,
    OpKind::SetLen,
    OpKind::Sync,
    OpKind::SyncDir,
    OpKind::SyncAll,
    OpKind::Remove,
    OpKind::Open,
    OpKind::Read,
];
const PATHS: [&str; 7] = ["", "segments", "segments", "index", "index", "manifest", "journal"];

/// One run: faults, work, faults, a restart now and then, and a check whenever the log can be read.
fn run(seed: u64, met: &mut Met) -> Result<(), String> {
    let mut simulation = Simulation::new(seed);
    let mut rng = SeededRng::new(seed ^ 0x7b0b);
    let mut log = simulation.world.open();
    // Some runs take a checkpoint after nearly every step, others rely on the journal.
    let busy = [0, 10, 40, 90][(seed % 4) as usize];
    for round in 0..ROUNDS {
        for step in 0..STEPS {
            if rng.chance(12) {
                brew(&simulation, &mut rng);
            }
            if rng.chance(5) {
                simulation.world.disk.clear_faults();
                simulation.world.disk.set_capacity(None);
            }
            simulation.step(&log);
            // Failed work is repeated, as the log's threads do.
            if rng.chance(busy) {
                let _ = (log.maintain(), log.checkpoint(), log.maintain());
            }
            met.full += u64::from(log.health().full);
            if log.health().poisoned.is_some() {
                met.poisoned += 1;
                nothing_is_written(&mut simulation, &log)?;
                break;
            }
            if step % 10 == 9 {
                settle(&simulation);
                let _ = log.maintain();
                if log.health().poisoned.is_none() {
                    simulation.check(&log).map_err(|what| format!("round {round} step {step}: {what}"))?;
                }
            }
        }
        settle(&simulation);
        drop(log);
        restart(&mut simulation, &mut rng, seed + round as u64);
        let (reopened, _) = simulation.world.try_open().map_err(|error| format!("open: {error}"))?;
        log = reopened;
        simulation.check(&log).map_err(|what| format!("after restart {round}: {what}"))?;
        simulation.set_policies(&log);
        log.maintain().map_err(|error| format!("maintenance after restart {round}: {error}"))?;
        simulation.check(&log).map_err(|what| format!("after maintenance {round}: {what}"))?;
    }
    met.holes += simulation.holes;
    Ok(())
}

/// The faults and restarts that the runs went through, so that the test can assert that there were some.
#[derive(Debug, Default)]
struct Met {
    poisoned: u64,
    full: u64,
    holes: u64,
}

/// Makes one of the next operations fail, or the space run out.
fn brew(simulation: &Simulation, rng: &mut SeededRng) {
    let disk = &simulation.world.disk;
    let any = |rng: &mut SeededRng, count: usize| rng.range(0..count as u64) as usize;
    match rng.range(0..10) {
        0 => {
            let used: u64 = disk.files().iter().map(|file| disk.len(file).unwrap_or(0)).sum();
            disk.set_capacity(Some(used + rng.range(0..6000)));
        }
        1 if rng.chance(30) => simulation.world.state.fail_next_sync(),
        _ => {
            let (kind, path) = (KINDS[any(rng, KINDS.len())], PATHS[any(rng, PATHS.len())]);
            let failure = if rng.chance(70) { DiskFailure::ENOSPC } else { DiskFailure::EIO };
            disk.fail_next(Matcher::op(kind).path(path).nth(rng.range(1..6)), failure);
        }
    }
}

fn settle(simulation: &Simulation) {
    simulation.world.disk.clear_faults();
    simulation.world.disk.set_capacity(None);
}

fn nothing_is_written(simulation: &mut Simulation, log: &Log) -> Result<(), String> {
    let before = simulation.world.disk.ops();
    for _ in 0..3 {
        simulation.step(log);
    }
    let _ = (log.checkpoint(), log.maintain(), log.sync());
    if simulation.world.disk.ops() != before {
        return Err(format!(
            "written after {:?}: {:?}",
            log.health().poisoned,
            simulation.world.disk.trace().last()
        ));
    }
    Ok(())
}

fn restart(simulation: &mut Simulation, rng: &mut SeededRng, seed: u64) {
    if rng.chance(60) { simulation.cut_power(seed) } else { simulation.kill() }
}

#[test]
fn nothing_acknowledged_is_lost_when_faults_meet_maintenance() {
    let seeds = seeds("TROUBLE", 60, &[], 20);
    let mut failed = Vec::new();
    let mut met = Met::default();
    let few = seeds.len() < 10;
    for seed in seeds {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed, &mut met)));
        if let Err(what) = outcome.unwrap_or_else(|panic| Err(panic_text(&*panic))) {
            failed.push(format!("TROUBLE_SEED={seed}: {what}"));
        }
    }
    assert!(failed.is_empty(), "{} seeds failed\n{}", failed.len(), failed.join("\n"));
    println!("{met:?}");
    assert!(few || (met.poisoned > 10 && met.full > 10 && met.holes > 10), "{met:?}");
}
