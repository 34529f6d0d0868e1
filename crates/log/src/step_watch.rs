//! The watch over steps that are normally short, so that `health` can say that one hangs.

use std::sync::Mutex;

use promethean_model::Clock;

use crate::poison::lock;

/// A step that takes longer than this hangs, as far as health can tell.
const HANGS_AFTER_MS: u64 = 5_000;

/// The steps of one kind that are under way. Several threads may be in such a step.
#[derive(Debug, Default)]
pub struct StepWatch(Mutex<Vec<u64>>);

impl StepWatch {
    /// Begins a step, which ends when the guard is dropped.
    pub fn enter(&self, clock: &dyn Clock) -> Step<'_> {
        let began = clock.monotonic_ms();
        lock(&self.0).push(began);
        Step { watch: self, began }
    }

    /// How long the oldest step has been under way, in milliseconds, if it takes too long.
    pub fn hangs_for_ms(&self, clock: &dyn Clock) -> Option<u64> {
        let oldest = lock(&self.0).iter().min().copied()?;
        let passed = clock.monotonic_ms().saturating_sub(oldest);
        (passed >= HANGS_AFTER_MS).then_some(passed)
    }
}

/// A step under way.
#[derive(Debug)]
pub struct Step<'a> {
    watch: &'a StepWatch,
    began: u64,
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        let mut steps = lock(&self.watch.0);
        if let Some(at) = steps.iter().position(|began| *began == self.began) {
            steps.swap_remove(at);
        }
    }
}
