//! Publishers, a thread each, that keep a window of unacknowledged batches.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use promethean_log::{AppendError, Log, Receipt, Submission, Topic};

use super::load::{Load, Maker};
use super::timing::{Samples, now, timed};

/// One in this many batches has its latency taken.
const SAMPLED_ONE_IN: u64 = 32;

/// What publishing came to.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) elapsed: Duration,
    pub(crate) events: u64,
    pub(crate) syncs: u64,
    /// From handing a batch over to its acknowledgement.
    pub(crate) latency: Samples,
}

impl Published {
    pub(crate) fn events_per_s(&self) -> f64 {
        self.events as f64 / self.elapsed.as_secs_f64()
    }
}

/// Publishes the load and waits until all of it is acknowledged.
pub(crate) fn publish(log: &Log, topics: &[Topic], load: Load) -> Result<Published> {
    let syncs_before = log.health().syncs;
    let (results, elapsed) = timed(|| {
        thread::scope(|scope| {
            let threads: Vec<_> = (0..load.publishers)
                .map(|publisher| scope.spawn(move || run_publisher(log, topics, load, publisher)))
                .collect();
            threads.into_iter().map(thread::ScopedJoinHandle::join).collect::<Vec<_>>()
        })
    });
    let mut latency = Samples::default();
    for result in results {
        latency.append(result.map_err(|_| anyhow!("a publisher panicked"))??);
    }
    let syncs = log.health().syncs - syncs_before;
    Ok(Published { elapsed, events: load.events, syncs, latency })
}

/// What a publisher shares with its acknowledgements, which run on the log's threads and must be cheap.
struct Window {
    outstanding: AtomicUsize,
    refill_at: usize,
    publisher: Thread,
    outcome: Mutex<Outcome>,
}

#[derive(Default)]
struct Outcome {
    latency: Samples,
    failure: Option<AppendError>,
}

impl Window {
    fn acknowledged(&self, submitted: Option<Instant>, result: Result<Receipt, AppendError>) {
        if submitted.is_some() || result.is_err() {
            let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(submitted) = submitted {
                outcome.latency.push(submitted.elapsed());
            }
            outcome.failure = outcome.failure.take().or(result.err());
        }
        let left = self.outstanding.fetch_sub(1, Ordering::AcqRel) - 1;
        if left == self.refill_at || left == 0 {
            self.publisher.unpark();
        }
    }

    /// Parks until at most this many are outstanding; it must be what `acknowledged` unparks at.
    fn wait_for(&self, most: usize) {
        while self.outstanding.load(Ordering::Acquire) > most {
            thread::park();
        }
    }
}

fn run_publisher(log: &Log, topics: &[Topic], load: Load, publisher: usize) -> Result<Samples> {
    let mut maker = Maker::new(topics, load, publisher)?;
    let window = Arc::new(Window {
        outstanding: AtomicUsize::new(0),
        refill_at: 0,
        publisher: thread::current(),
        outcome: Mutex::default(),
    });
    let (publishers, number) = (load.publishers as u64, publisher as u64);
    let mut left = load.events / publishers + u64::from(number < load.events % publishers);
    let mut batches = 0;
    while left > 0 {
        window.wait_for(window.refill_at);
        let mut submissions = Vec::with_capacity(load.outstanding);
        while left > 0 && window.outstanding.load(Ordering::Relaxed) < load.outstanding {
            let count = left.min(load.batch_events as u64);
            let batch = maker.batch(count as usize)?;
            left -= count;
            let submitted = (batches % SAMPLED_ONE_IN == number % SAMPLED_ONE_IN).then(now);
            batches += 1;
            window.outstanding.fetch_add(1, Ordering::Relaxed);
            let shared = Arc::clone(&window);
            let done = Box::new(move |result| shared.acknowledged(submitted, result));
            submissions.push(Submission { batch, durability: load.durability, done });
        }
        log.submit_all(submissions);
    }
    window.wait_for(0);
    let outcome = std::mem::take(&mut *window.outcome.lock().unwrap_or_else(PoisonError::into_inner));
    match outcome.failure {
        Some(failure) => Err(failure).context("publish"),
        None => Ok(outcome.latency),
    }
}
