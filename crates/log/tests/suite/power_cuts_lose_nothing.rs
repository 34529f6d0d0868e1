//! Power cuts at every disk operation, during work and during recovery.
//!
//! `CRASH_SEEDS=n` runs n seeds, `CRASH_FRESH=n` n fresh ones, `CRASH_SEED=s` one; a failure prints its seed and operation.

use promethean_testkit::seeds;

use super::simulation::Simulation;

const STEPS: usize = 60;

/// The number of disk operations of a run without a power cut.
fn operations(seed: u64) -> u64 {
    let mut simulation = Simulation::new(seed);
    let log = simulation.world.open();
    simulation.work(&log, STEPS);
    drop(log);
    simulation.world.disk.ops()
}

/// Cuts the power at one operation, then perhaps again during recovery, and checks the log.
fn cut_at(seed: u64, operation: u64) -> Result<(), String> {
    let mut simulation = Simulation::new(seed);
    simulation.world.disk.stop_at(operation, seed);
    if let Ok((log, _)) = simulation.world.try_open() {
        simulation.work(&log, STEPS);
    }
    for again in 0..(seed + operation) % 3 {
        if operation.is_multiple_of(2) {
            simulation.kill();
        } else {
            simulation.cut_power(seed.wrapping_mul(31) + operation + again);
        }
        simulation.world.disk.stop_at(1 + (operation * 7 + again * 3) % 25, seed + again);
        if let Ok((log, _)) = simulation.world.try_open() {
            simulation.work(&log, 10);
        }
    }
    simulation.cut_power(seed.wrapping_mul(17) + operation);
    let (log, _) = simulation.world.try_open().map_err(|error| format!("open: {error}"))?;
    simulation.check(&log).map_err(|what| format!("after the cut: {what}"))?;
    simulation.work(&log, 15);
    log.close().map_err(|error| error.to_string())?;
    drop(log);
    let (log, report) = simulation.world.try_open().map_err(|error| format!("second open: {error}"))?;
    if report.torn_bytes > 0 {
        return Err(format!("a torn tail after a clean close: {report:?}"));
    }
    simulation.check(&log).map_err(|what| format!("after going on: {what}"))
}

/// Finds the first failure over the seeds, with about `cuts_per_seed` power cuts each.
pub(super) fn hunt(seeds: impl IntoIterator<Item = u64>, cuts_per_seed: u64) -> Option<String> {
    for seed in seeds {
        let total = operations(seed);
        let step = (total / cuts_per_seed).max(1);
        let mut operation = 1 + seed % step;
        while operation <= total {
            let outcome = std::panic::catch_unwind(|| cut_at(seed, operation));
            let outcome = outcome.unwrap_or_else(|panic| Err(panic_text(&*panic)));
            if let Err(what) = outcome {
                return Some(format!("CRASH_SEED={seed} operation {operation} of {total}: {what}"));
            }
            operation += step;
        }
    }
    None
}

pub(super) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

#[test]
fn nothing_acknowledged_is_lost_at_any_operation() {
    assert_eq!(hunt(0..1, u64::MAX), None);
}

#[test]
fn nothing_acknowledged_is_lost_over_many_seeds() {
    assert_eq!(hunt(seeds("CRASH", 40, &[], 10), 50), None);
}
