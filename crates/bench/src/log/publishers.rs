//! Publishers of the log: each is a task that keeps a window of unacknowledged batches.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use promethean_log::{AppendError, Log, LogReceipt, LogSubmission, Topic};
use promethean_model::IgnorePoison;
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::load::{EventMaker, Load};
use crate::timing::{Samples, now, processor_time, timed};

/// The latency of one in this many batches is measured.
const SAMPLED_ONE_IN: u64 = 32;

/// What publishing a load cost.
#[derive(Debug)]
pub(crate) struct AppendCost {
    pub(crate) elapsed: Duration,
    pub(crate) events: u64,
    pub(crate) syncs: u64,
    /// Processor time of publishers and log together.
    pub(crate) processor: Duration,
    /// Time from submitting a batch to its acknowledgement.
    pub(crate) latency: Samples,
}

impl AppendCost {
    pub(crate) fn events_per_s(&self) -> f64 {
        self.events as f64 / self.elapsed.as_secs_f64()
    }
}

/// Publishes the load and waits until all of it is acknowledged.
pub(crate) fn publish(log: &Arc<Log>, topics: &Arc<[Topic]>, load: Load) -> Result<AppendCost> {
    let syncs_before = log.health().syncs;
    let processor_before = processor_time();
    let runtime = Builder::new_multi_thread().build().context("start the publishers' runtime")?;
    let (results, elapsed) = timed(|| runtime.block_on(run_publishers(log, topics, load)));
    let mut latency = Samples::default();
    for samples in results? {
        latency.append(samples);
    }
    let syncs = log.health().syncs - syncs_before;
    let processor = processor_time().saturating_sub(processor_before);
    Ok(AppendCost { elapsed, events: load.events, syncs, processor, latency })
}

async fn run_publishers(log: &Arc<Log>, topics: &Arc<[Topic]>, load: Load) -> Result<Vec<Samples>> {
    let mut publishers = JoinSet::new();
    for publisher in 0..load.publishers {
        publishers.spawn(run_publisher(Arc::clone(log), Arc::clone(topics), load, publisher));
    }
    let mut samples = Vec::with_capacity(load.publishers);
    while let Some(result) = publishers.join_next().await {
        samples.push(result.context("a publisher panicked")??);
    }
    Ok(samples)
}

/// State that a publisher shares with its acknowledgements, which run on threads of the log and must be
/// cheap.
struct AckWindow {
    outstanding: AtomicUsize,
    empty: Notify,
    outcome: Mutex<PublisherOutcome>,
}

#[derive(Default)]
struct PublisherOutcome {
    latency: Samples,
    failure: Option<AppendError>,
}

impl AckWindow {
    fn acknowledged(&self, room: usize, submitted: Option<Instant>, result: Result<LogReceipt, AppendError>) {
        let result = result.and_then(|mut receipt| match receipt.refused.pop() {
            Some((_, refusal)) => Err(refusal),
            None => Ok(()),
        });
        if submitted.is_some() || result.is_err() {
            let mut outcome = self.outcome.lock().ignore_poison();
            if let Some(submitted) = submitted {
                outcome.latency.push(submitted.elapsed());
            }
            outcome.failure = outcome.failure.take().or(result.err());
        }
        let left = self.outstanding.fetch_sub(room, Ordering::AcqRel) - room;
        if left == 0 {
            self.empty.notify_one();
        }
    }

    /// Waits until no batch is outstanding.
    async fn drained(&self) {
        while self.outstanding.load(Ordering::Acquire) > 0 {
            self.empty.notified().await;
        }
    }
}

async fn run_publisher(log: Arc<Log>, topics: Arc<[Topic]>, load: Load, publisher: usize) -> Result<Samples> {
    let mut maker = EventMaker::new(&topics, load, publisher)?;
    let window = Arc::new(AckWindow {
        outstanding: AtomicUsize::new(0),
        empty: Notify::new(),
        outcome: Mutex::default(),
    });
    let (mut left, number) = (load.share_of(publisher), publisher as u64);
    let mut batches = 0;
    while left > 0 {
        window.drained().await;
        let mut submissions = Vec::with_capacity(load.outstanding);
        while left > 0 && window.outstanding.load(Ordering::Relaxed) < load.outstanding {
            let count = left.min(if load.one_call { load.outstanding } else { load.batch_events } as u64);
            let room = if load.one_call { count as usize } else { 1 };
            let batch = maker.batch(count as usize)?;
            left -= count;
            let submitted = (batches % SAMPLED_ONE_IN == number % SAMPLED_ONE_IN).then(now);
            batches += 1;
            window.outstanding.fetch_add(room, Ordering::Relaxed);
            let shared = Arc::clone(&window);
            let done = Box::new(move |result| shared.acknowledged(room, submitted, result));
            submissions.push(LogSubmission { batch, durability: load.durability, done });
        }
        log.submit_all(submissions);
    }
    window.drained().await;
    let outcome = std::mem::take(&mut *window.outcome.lock().ignore_poison());
    match outcome.failure {
        Some(failure) => Err(failure).context("publish"),
        None => Ok(outcome.latency),
    }
}
