//! The compactor: keeps the latest state of each key of a topic in a snapshot topic.
//!
//! A round goes through the topic in spans, from the cursor to where the topic ended when the round began. In
//! a span it publishes a snapshot for each key at the last event that the key has there, in offset order;
//! then the cursor moves. Memory holds one page of events, whatever the number of keys.
//!
//! | module | holds |
//! | --- | --- |
//! | `options` | the options of a compactor |
//! | `round` | a round: where it begins, and the cursor after each span |
//! | `span` | from the events of a span to snapshots |
//!
//! Invariants:
//! - **C1** When the cursor is at C, for each key the last event below C is in a published snapshot.
//!   Snapshots are published before the cursor moves, under ids that follow from their source event, so that
//!   a span that is done again adds none.
//! - **C2** A consumer that has read the snapshot topic to its end and goes on in the topic from the highest
//!   `x-snapshot-offset` P misses no latest state. Let `z` be the last event of a key below P. The round
//!   passed `z` before it published P, in a span that ends at E. If `z` was the last of its key below E, its
//!   snapshot is there too. Otherwise the key has an event between `z` and E; by the choice of `z` it is not
//!   below P, so the consumer is given it.
//! - **C3** A consumer that folds would miss `z` in the second case. It goes on from the start of that span,
//!   which is in the header `x-snapshot-floor`, and passes over the events that its key's snapshot has
//!   already: by C1 nothing below the span's start is missing.
//! - **C4** Where events are gone before the compactor read them, `x-snapshot-since` moves behind them, and
//!   the cursor waits for a snapshot with that header. Folded states that would need them have no
//!   `x-snapshot-max-ts`, until a tombstone.

mod options;
mod round;
mod span;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use promethean_bus::Bus;
use promethean_bus::groups::Follower;
use promethean_bus::rows::StartPosition;
use promethean_model::{Clock, GroupName, Offset, TopicName};
use promethean_store::port::Store;
use tokio::sync::watch;

pub use self::options::CompactorOptions;
pub use self::round::CompactorRound;
use crate::error::ProjectionError;
use crate::snapshot;
use crate::status::{CompactorStatus, CompactorView};

/// The first wait after a failure; it doubles up to the last.
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_LAST: Duration = Duration::from_secs(30);

/// Follows one topic and writes its snapshots.
pub struct Compactor {
    follower: Follower,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    options: CompactorOptions,
    snapshots: TopicName,
    /// The label of this compactor in its snapshots.
    by: String,
    /// The number of offsets between two moves of the cursor.
    span: u64,
    /// The offset where the next round begins; `None` before the first.
    position: Option<Offset>,
    /// Every event from this offset on was read.
    since: Offset,
    /// Whether a published snapshot has this `since`.
    since_told: bool,
    /// Whether there were snapshots when the compactor looked last.
    had_snapshots: bool,
    status: watch::Sender<CompactorStatus>,
}

/// How the handle and the retention alarm see a compactor.
#[derive(Clone)]
pub(crate) struct CompactorHandle {
    pub(crate) group: GroupName,
    /// The topic it reads.
    pub(crate) topic: TopicName,
    /// The topic it writes snapshots to.
    pub(crate) snapshots: TopicName,
    pub(crate) status: watch::Receiver<CompactorStatus>,
}

impl CompactorHandle {
    /// Whether the last round failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.status.borrow().last_error.is_some()
    }

    pub(crate) fn view(&self) -> CompactorView {
        CompactorView {
            topic: self.topic.clone(),
            snapshots: self.snapshots.clone(),
            status: self.status.borrow().clone(),
        }
    }
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

    /// The status, now and whenever it changes.
    pub fn status(&self) -> watch::Receiver<CompactorStatus> {
        self.status.subscribe()
    }

    pub(crate) fn handle(&self) -> CompactorHandle {
        CompactorHandle {
            group: self.follower.group().clone(),
            topic: self.follower.topic().clone(),
            snapshots: self.snapshots.clone(),
            status: self.status(),
        }
    }

    /// The topic it writes snapshots to.
    pub fn snapshots(&self) -> &TopicName {
        &self.snapshots
    }

    /// Runs rounds until told to stop, or until the store closes. A round that fails is tried again, after
    /// longer and longer waits. To stop in the midst of a round loses nothing: the next round does the same
    /// again.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut retry = RETRY_FIRST;
        loop {
            let round = tokio::select! {
                round = self.run_round() => round,
                // Also if the sender is dropped: then no caller waits for the compactor any more.
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
