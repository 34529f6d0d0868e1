//! The seeds of random runs: fixed ones, ones that found a bug once, and fresh ones.

use std::collections::hash_map::RandomState;
use std::env;
use std::hash::BuildHasher;
use std::io::{self, Write};

/// The seeds of a suite of random runs.
///
/// With the variable `{prefix}_SEED` it is that seed alone. Otherwise it is the first `{prefix}_SEEDS` numbers from 0 on,
/// or `fixed` of them, then the seeds that found a bug once, and then fresh seeds: `{prefix}_FRESH` of them, or `fresh`
/// where `CI` is set. Fresh seeds differ in each process; the first one is printed. They are below 2^33, so that a suite may
/// add to them and multiply them. The suite must print the seed of a run that fails.
///
/// # Panics
/// If the fresh seeds cannot be printed.
#[must_use]
pub fn seeds(prefix: &str, fixed: u64, found: &[u64], fresh: u64) -> Vec<u64> {
    let number = |name: &str| env::var(format!("{prefix}_{name}")).ok()?.parse::<u64>().ok();
    if let Some(seed) = number("SEED") {
        return vec![seed];
    }
    let in_ci = env::var_os("CI").is_some();
    let fresh = number("FRESH").unwrap_or(if in_ci { fresh } else { 0 });
    let fixed = 0..number("SEEDS").unwrap_or(fixed);
    let first = first_fresh();
    if fresh > 0 {
        // Not by `println`, whose text is shown only for tests that fail.
        let shown = writeln!(io::stderr(), "{fresh} fresh seeds from {prefix}_SEED={first} on");
        assert!(shown.is_ok(), "the fresh seeds cannot be printed: {shown:?}");
    }
    fixed.chain(found.iter().copied()).chain((0..fresh).map(|n| first.wrapping_add(n))).collect()
}

/// A number that differs in each process: the standard library draws the keys of its hash maps at random.
fn first_fresh() -> u64 {
    RandomState::new().hash_one(0_u64) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_and_found_seeds_come_first() {
        assert_eq!(seeds("NO_SUCH_SUITE", 3, &[77], 0), [0, 1, 2, 77]);
    }

    #[test]
    fn fresh_seeds_differ() {
        assert_ne!(first_fresh(), first_fresh());
    }
}
