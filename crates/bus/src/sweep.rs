//! The sweep: removes what time has ended from the store, and backups without readers, for as long as the bus is open.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};
use tracing::warn;

use crate::backups;
use crate::base::Base;

/// The time between two sweeps.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Starts a task that sweeps every minute, until the bus closes or is dropped. The first sweep is a minute after the open, so
/// that it does not slow down a start.
pub(crate) fn start(base: &Arc<Base>) {
    base.housekeeping.spawn(run(Arc::downgrade(base)));
}

/// Holds the base only while it sweeps: a bus that is dropped without a close ends the task too.
async fn run(base: Weak<Base>) {
    let Some(mut shutdown) = base.upgrade().map(|base| base.shutdown.subscribe()) else { return };
    let mut every = tokio::time::interval_at(Instant::now() + SWEEP_EVERY, SWEEP_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = shutdown.wait_for(|closing| *closing) => return,
            _ = every.tick() => {}
        }
        let Some(base) = base.upgrade() else { return };
        backups::end_unused(&base).await;
        tokio::select! {
            _ = shutdown.wait_for(|closing| *closing) => return,
            () = sweep(&base) => {}
        }
    }
}

/// Removes everything that has ended by now, a bounded step at a time.
async fn sweep(base: &Base) {
    loop {
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

    async fn open_over(store: &Arc<MemoryStore>) -> Bus {
        Bus::open(Arc::clone(store) as _, Arc::new(SystemClock::new()), BusOptions::default()).await.unwrap()
    }

    async fn mark_expired(store: &MemoryStore) {
        let mark = DedupeMark { scope: "t/g".into(), id: "x".into(), expires_at: 1, unless_seen_at: None };
        store.commit(Batch::new().with(mark)).await.unwrap();
        assert_eq!(store.marks("t/g", 10).await.unwrap(), ["x"]);
    }

    /// Lets the sweep's task run until it waits.
    async fn let_it_run() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_bus_removes_expired_marks_every_minute() {
        let store = Arc::new(MemoryStore::new(Arc::new(SystemClock::new()), Default::default()));
        let bus = open_over(&store).await;
        for _ in 0..2 {
            mark_expired(&store).await;
            let_it_run().await;
            assert_eq!(store.marks("t/g", 10).await.unwrap(), ["x"], "before the minute is over");
            tokio::time::advance(SWEEP_EVERY).await;
            let_it_run().await;
            assert!(store.marks("t/g", 10).await.unwrap().is_empty());
        }
        assert_eq!(bus.tasks(), 0);
        bus.close().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_bus_that_is_dropped_without_a_close_lets_its_store_go() {
        let store = Arc::new(MemoryStore::new(Arc::new(SystemClock::new()), Default::default()));
        let bus = open_over(&store).await;
        let_it_run().await;
        drop(bus);
        let_it_run().await;
        assert_eq!(Arc::strong_count(&store), 1);
    }
}
