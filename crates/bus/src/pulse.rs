//! The pulse of a bus: it notices time that the process itself missed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tracing::warn;

use crate::tasks::Tasks;

/// How often the pulse beats.
const BEAT_EVERY_MS: u64 = 250;
/// How late a beat may be before the process has missed time.
const LATE_MS_MAX: u64 = 500;
/// The longest grace after the process missed time.
const GRACE_MS_MAX: u64 = 5_000;

/// Notices that the process stood still: it was stopped, its machine was suspended, or it got no processor. Acks
/// that were sent meanwhile wait in the buffers of sockets. So such a gap is followed by a grace, in which no lease
/// expires: as long as the gap was, at most five seconds. In that time the connections read what has arrived.
///
/// The times are of the runtime, not of the bus's clock: the question is whether tasks could run.
#[derive(Debug)]
pub(crate) struct Pulse {
    start: Instant,
    /// The last beat, in milliseconds since `start`, as all times here.
    beat_ms: AtomicU64,
    grace_until_ms: AtomicU64,
    /// Whether the pulse beats no more, because the bus closes. Then a late beat says nothing about the process.
    stopped: AtomicBool,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            beat_ms: AtomicU64::new(0),
            grace_until_ms: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        }
    }

    /// How much longer no lease may expire; `None`: leases expire. The caller may be the first that runs after a gap.
    pub(crate) fn grace_ms(&self) -> Option<u64> {
        self.look(self.now_ms())
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn beat(&self, now_ms: u64) {
        self.look(now_ms);
        self.beat_ms.fetch_max(now_ms, Ordering::SeqCst);
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    fn look(&self, now_ms: u64) -> Option<u64> {
        let beat_ms = self.beat_ms.load(Ordering::SeqCst);
        let missed_ms = now_ms.saturating_sub(beat_ms + BEAT_EVERY_MS);
        if missed_ms > LATE_MS_MAX && !self.stopped.load(Ordering::SeqCst) {
            // Before the beat: a caller that sees the new beat also sees the grace.
            self.grace_until_ms.fetch_max(now_ms + missed_ms.min(GRACE_MS_MAX), Ordering::SeqCst);
            if self.beat_ms.fetch_max(now_ms, Ordering::SeqCst) == beat_ms {
                warn!(
                    missed_ms,
                    "the process was paused for a while; no lease expires until the messages that arrived in that time are read"
                );
            }
        }
        let left_ms = self.grace_until_ms.load(Ordering::SeqCst).saturating_sub(now_ms);
        (left_ms > 0).then_some(left_ms)
    }
}

/// Starts the task that beats until the bus closes or is dropped.
pub(crate) fn start(pulse: &Arc<Pulse>, tasks: &Tasks, shutdown: watch::Receiver<bool>) {
    tasks.spawn(run(Arc::downgrade(pulse), shutdown));
}

/// Holds the pulse only while it beats: a bus that is dropped without a close ends the task too.
async fn run(pulse: Weak<Pulse>, mut shutdown: watch::Receiver<bool>) {
    let mut every = tokio::time::interval(Duration::from_millis(BEAT_EVERY_MS));
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = shutdown.wait_for(|closing| *closing) => {
                pulse.upgrade().iter().for_each(|pulse| pulse.stop());
                return;
            }
            _ = every.tick() => {}
        }
        let Some(pulse) = pulse.upgrade() else { return };
        pulse.beat(pulse.now_ms());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regular_pulse_gives_no_grace() {
        let pulse = Pulse::new();
        for beat in 1..40 {
            pulse.beat(beat * BEAT_EVERY_MS);
            assert_eq!(pulse.look(beat * BEAT_EVERY_MS + 200), None);
        }
        // A late beat is no gap yet.
        let last = 39 * BEAT_EVERY_MS;
        assert_eq!(pulse.look(last + BEAT_EVERY_MS + LATE_MS_MAX), None);
    }

    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "the clock is paused, and moves when all tasks wait")]
    async fn a_bus_that_closes_for_long_has_missed_no_time() {
        let (pulse, tasks) = (Arc::new(Pulse::new()), Tasks::default());
        let closing = watch::channel(false).0;
        start(&pulse, &tasks, closing.subscribe());
        tokio::time::sleep(Duration::from_millis(10 * BEAT_EVERY_MS)).await;
        assert_eq!(pulse.grace_ms(), None);
        closing.send_replace(true);
        tasks.join().await;
        // Owners that commit their last acks still ask.
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(pulse.grace_ms(), None);
    }

    #[test]
    fn the_grace_is_as_long_as_the_gap_at_most_five_seconds() {
        for (gap_ms, grace_ms) in [(501, 501), (3_000, 3_000), (5_000, 5_000), (30_000, 5_000)] {
            for first_is_beat in [true, false] {
                let pulse = Pulse::new();
                pulse.beat(1_000);
                let back = 1_000 + BEAT_EVERY_MS + gap_ms;
                if first_is_beat {
                    pulse.beat(back);
                }
                assert_eq!(pulse.look(back), Some(grace_ms));
                pulse.beat(back + BEAT_EVERY_MS);
                assert_eq!(pulse.look(back + BEAT_EVERY_MS), Some(grace_ms - BEAT_EVERY_MS), "the same gap");
                for beat in 2..grace_ms.div_ceil(BEAT_EVERY_MS) {
                    pulse.beat(back + beat * BEAT_EVERY_MS);
                }
                assert_eq!(pulse.look(back + grace_ms - 1), Some(1));
                assert_eq!(pulse.look(back + grace_ms), None);
            }
        }
    }
}
