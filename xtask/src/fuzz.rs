//! Random input for everything that reads what clients send, for a while, with a new seed each time.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use crate::repo::Repo;

/// Targets of the suite; they run one after the other.
const TARGETS: u64 = 6;
/// Seconds of all targets together, if the command does not say how many.
const SECONDS_DEFAULT: u64 = 60;

/// Runs the targets, for so many seconds together.
pub(crate) fn run(repo: &Repo, seconds: Option<u64>) -> Result<()> {
    let each = (seconds.unwrap_or(SECONDS_DEFAULT) / TARGETS).max(1);
    let seed = match std::env::var("FUZZ_SEED") {
        Ok(seed) => seed,
        Err(_) => new_seed()?.to_string(),
    };
    println!("fuzz: FUZZ_SEED={seed}, {each} s for each target");
    let status = repo
        .cargo()
        // The whole workspace, as the step before it is built: one crate alone would be built anew with fewer features.
        .args(["test", "--locked", "--workspace", "--test", "main", "suite::fuzz::"])
        // Memory is measured for the whole process.
        .args(["--", "--test-threads=1", "--nocapture"])
        .env("FUZZ_SECONDS", each.to_string())
        .env("FUZZ_SEED", &seed)
        .status()
        .context("run the fuzz targets")?;
    ensure!(status.success(), "a fuzz target failed; `FUZZ_SEED={seed} cargo xtask fuzz` repeats the run");
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a new seed for every run")]
fn new_seed() -> Result<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    Ok(now.as_secs())
}
