//! The sweep: removes what time has ended from the store, for as long as the bus is open.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};
use tracing::warn;

use crate::base::Base;

/// The time between two sweeps.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Sweeps again and again until the bus closes.
pub(crate) async fn run(base: Arc<Base>) {
    let mut shutdown = base.shutdown.subscribe();
    let mut every = tokio::time::interval_at(Instant::now() + SWEEP_EVERY, SWEEP_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = shutdown.wait_for(|closing| *closing) => return,
            _ = every.tick() => {}
        }
        sweep(&base).await;
    }
}

/// Removes everything that has ended by now, a bounded step at a time.
async fn sweep(base: &Base) {
    while !*base.shutdown.borrow() {
        match base.store.sweep(base.clock.wall_ms()).await {
            Ok(true) => tokio::task::yield_now().await,
            Ok(false) => return,
            Err(error) => {
                warn!(%error, "could not remove expired dedupe marks and dropped collections");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use promethean_model::SystemClock;
    use promethean_store::memory::MemoryStore;
    use promethean_store::port::{Batch, DedupeMark, DedupeReads, Store};

    use super::*;
    use crate::{Bus, BusOptions};

    #[tokio::test(start_paused = true)]
    async fn an_open_bus_removes_expired_marks() {
        let clock = Arc::new(SystemClock::new());
        let store = Arc::new(MemoryStore::new(clock.clone(), Default::default()));
        let mark = DedupeMark { scope: "t/g".into(), id: "x".into(), expires_at: 1, unless_seen_at: None };
        store.commit(Batch::new().with(mark)).await.unwrap();
        let bus = Bus::open(store.clone(), clock, BusOptions::default()).await.unwrap();
        assert_eq!(store.marks("t/g", 10).await.unwrap(), ["x"]);
        // The first round lets the task set its timer, the second lets it sweep.
        for advance in [Duration::ZERO, SWEEP_EVERY] {
            tokio::time::advance(advance).await;
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        }
        assert!(store.marks("t/g", 10).await.unwrap().is_empty());
        assert_eq!(bus.tasks(), 0);
        bus.close().await;
    }
}
