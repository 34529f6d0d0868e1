//! The compactor: keeps the latest state of each key of a topic in a snapshot topic.
//!
//! A round walks the topic from the cursor to where the topic ended when the round began, in spans. Within a span it
//! publishes a snapshot for each key at the last event that the key has there, in offset order; then the cursor moves.
//! Memory holds one page of events, whatever the number of keys.
//!
//! | module | holds |
//! | --- | --- |
//! | `options`, `status` | what it is told, and what it tells |
//! | `round` | where a round begins |
//! | `span` | from events to snapshots |
//! | `state` | the state of a key as of an event |
//!
//! Invariants:
//! - **C1** When the cursor is at C, for each key the last event below C is in a published snapshot. Snapshots are
//!   published before the cursor moves, under ids that follow from their source event, so that doing it again adds none.
//! - **C2** A consumer that has read the snapshot topic to its end and goes on in the topic from the highest
//!   `x-snapshot-offset` P misses no latest state. Let `z` be the last event of a key below P. The walk passed `z` before
//!   it published P, in a span that ends at E. Was `z` the last of its key below E, its snapshot is there too. Otherwise
//!   the key has an event between `z` and E; by the choice of `z` it is not below P, so the consumer is given it.
//! - **C3** For those who fold, `z` would be missed in the second case. They go on from the start of that span, which is
//!   in the header `x-snapshot-floor`, and pass over what their key's snapshot has already: by C1 nothing below the
//!   span's start is missing.
//! - **C4** Where events are gone before they were seen, `x-snapshot-since` moves behind them, and the cursor waits for a
//!   snapshot that says so. Folded states that would need them have no `x-snapshot-max-ts`, until a tombstone.

mod options;
mod round;
mod span;
mod state;
mod status;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use promethean_bus::Bus;
use promethean_bus::groups::Follower;
use promethean_bus::rows::StartPosition;
use promethean_model::{Clock, GroupName, Offset, TopicName};
use promethean_store::port::{Batch, Cursor, CursorOp, Store};
use tokio::sync::watch;

pub use self::options::CompactorOptions;
use self::span::Span;
pub use self::status::CompactorStatus;
use crate::error::ProjectionError;
use crate::snapshot;

/// The first wait after a failure; it doubles up to the last.
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_LAST: Duration = Duration::from_secs(30);
/// The shortest span: so few events can always be folded at once.
const SPAN_MIN: u64 = 64;

/// Follows one topic and writes its snapshots.
pub struct Compactor {
    follower: Follower,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    options: CompactorOptions,
    snapshots: TopicName,
    /// What names this compactor in its snapshots.
    by: String,
    /// Offsets walked between two moves of the cursor.
    span: u64,
    /// Where the next round begins; `None` before the first.
    position: Option<Offset>,
    /// From here on every event was seen.
    since: Offset,
    /// Whether a published snapshot says so.
    since_told: bool,
    /// Whether there were snapshots when last looked.
    had_snapshots: bool,
    status: watch::Sender<CompactorStatus>,
}

/// What a round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Round {
    /// Events walked over.
    pub events: u64,
    /// Snapshots that were published, not counting those that were there already.
    pub published: u64,
}

impl Compactor {
    /// Takes the group of the compactor; it runs nothing yet.
    pub async fn open(
        bus: &Bus,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        options: CompactorOptions,
    ) -> Result<Self, ProjectionError> {
        let snapshots = options.snapshot_topic()?;
        options.check(&snapshots)?;
        let group = snapshot::group(&options.topic, &snapshots)?;
        let follower = bus.follow(&group, &options.topic, StartPosition::Earliest).await?;
        if store.cursor(&group, &options.topic).await?.is_none() {
            follower.hold_from(Offset::ZERO);
        }
        Ok(Self {
            follower,
            store,
            clock,
            by: options.label(),
            span: options.span.max(1),
            options,
            snapshots,
            position: None,
            since: Offset::ZERO,
            since_told: true,
            had_snapshots: false,
            status: watch::Sender::default(),
        })
    }

    /// How it is doing, now and whenever that changes.
    pub fn status(&self) -> watch::Receiver<CompactorStatus> {
        self.status.subscribe()
    }

    /// Its group, the topic it reads, and how it is.
    pub(crate) fn reads(&self) -> (GroupName, TopicName, watch::Receiver<CompactorStatus>) {
        (self.follower.group().clone(), self.follower.topic().clone(), self.status())
    }

    /// Where it writes.
    pub fn snapshots(&self) -> &TopicName {
        &self.snapshots
    }

    /// Runs rounds until told to stop, or until the store closes. A round that fails is tried again, ever more slowly.
    /// Stopping in the midst of a round loses nothing: the next one does it again.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut retry = RETRY_FIRST;
        loop {
            let round = tokio::select! {
                round = self.run_round() => round,
                // One whose sender is gone will not be told to stop any more; nobody is left to wait for it either.
                _ = stop.wait_for(|stop| *stop) => return,
            };
            let wait = match round {
                Ok(_) => {
                    retry = RETRY_FIRST;
                    self.options.every
                }
                Err(error) if error.code() == "closed" => return,
                Err(_) => {
                    let wait = retry;
                    retry = (retry * 2).min(RETRY_LAST);
                    wait
                }
            };
            if tokio::time::timeout(wait, stop.wait_for(|stop| *stop)).await.is_ok() {
                return;
            }
        }
    }

    /// Publishes what changed since the last round.
    pub async fn run_round(&mut self) -> Result<Round, ProjectionError> {
        let began = self.clock.monotonic_ms();
        let outcome = self.walk().await;
        let failure = outcome.as_ref().err().map(ToString::to_string);
        if let Some(failure) = &failure {
            tracing::warn!(topic = %self.options.topic, %failure, "a round of the compactor failed");
        }
        self.follower.set_failure(failure.clone());
        let took = self.clock.monotonic_ms().saturating_sub(began);
        self.status.send_modify(|status| {
            status.last_error = failure;
            status.last_round_ms = Some(took);
            status.rounds += 1;
        });
        outcome
    }

    async fn walk(&mut self) -> Result<Round, ProjectionError> {
        let (mut at, end) = self.place().await?;
        if !self.had_snapshots && at < end {
            // They may have been deleted. Nobody is to take the old cursor for what the new ones have.
            self.move_to(at).await?;
        }
        let mut round = Round::default();
        while at < end {
            let stop = at.checked_add(self.span).unwrap_or(end).min(end);
            match self.walk_span(Span { start: at, end: stop }, &mut round).await {
                Ok(()) => {}
                // Fewer events have fewer bytes.
                Err(ProjectionError::TooLarge { .. }) if self.span > SPAN_MIN => {
                    self.span = (self.span / 4).max(SPAN_MIN);
                    continue;
                }
                Err(error) => return Err(error),
            }
            self.move_to(stop).await?;
            at = stop;
        }
        self.span = self.options.span.max(1);
        Ok(round)
    }

    /// Everything below is in snapshots that are durable.
    async fn move_to(&mut self, floor: Offset) -> Result<(), ProjectionError> {
        let (group, topic) = (self.follower.group().clone(), self.follower.topic().clone());
        if self.since_told {
            let epoch = self.store.cursor(&group, &topic).await?.map_or(0, |cursor| cursor.epoch);
            let cursor = Cursor { floor, epoch, data: Vec::new() };
            let put = CursorOp::Put { group, topic, cursor, expected_epoch: epoch };
            self.store.commit(Batch::derived().with(put)).await?;
            self.follower.hold_from(floor);
        }
        let walked = floor.since(self.position.unwrap_or(floor));
        self.follower.count(walked, self.store.durable_end(&self.options.topic).since(floor));
        self.position = Some(floor);
        self.status.send_modify(|status| status.position = floor);
        Ok(())
    }
}

impl fmt::Debug for Compactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compactor")
            .field("topic", &self.options.topic)
            .field("snapshots", &self.snapshots)
            .field("by", &self.by)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}
