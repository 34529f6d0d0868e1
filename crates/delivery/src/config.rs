//! What a machine is built from.

use promethean_model::{Offset, OffsetRange, StoredEvent};

use super::types::{Attempts, Order, Scope};

/// Whether a group wants an event.
pub type EventTest = Box<dyn Fn(&StoredEvent) -> bool + Send>;

/// The options of the group, as they concern delivery.
pub struct Config {
    /// The claim's part of the topic.
    pub scope: Scope,
    /// Events it says `false` to are finished at once; `None` wants all.
    pub filter: Option<EventTest>,
    /// In which order events reach members.
    pub order: Order,
    /// For a partitioned group, into how many.
    pub partitions: Option<u32>,
    /// Failed attempts after which an event is a dead letter. Default: 5. Minimum: 1.
    pub max_attempts: u32,
    /// Whether there are dead letters; without, an event is redelivered until it is acked.
    pub dead_letters: bool,
    /// Seed of the backoff's jitter.
    pub seed: u64,
    /// How long acks that nobody waits for may wait for others to be committed with. Default: 0, not at all.
    pub commit_every_ms: u64,
    /// What the machine may keep.
    pub bounds: Bounds,
}

impl Config {
    /// An unordered group of everything, with the defaults.
    pub fn new() -> Self {
        Self {
            scope: Scope::everything(),
            filter: None,
            order: Order::None,
            partitions: None,
            max_attempts: 5,
            dead_letters: true,
            seed: 0,
            commit_every_ms: 0,
            bounds: Bounds::default(),
        }
    }

    pub(super) fn wants(&self, event: &StoredEvent) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter(event))
    }

    pub(super) fn in_scope(&self, event: &StoredEvent) -> bool {
        self.scope.range.contains(event.offset)
            && self.scope.partitions.as_ref().is_none_or(|(count, inside)| {
                inside.contains(&promethean_model::partition_of(event.key(), &event.id, *count))
            })
    }

    /// The partition that decides who gets an event; 0 where members share everything.
    pub(super) fn partition(&self, event: &StoredEvent) -> u32 {
        self.partitions.map_or(0, |count| promethean_model::partition_of(event.key(), &event.id, count))
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

/// What a machine may keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Events known but not in flight: blocked by key, by partition or by backoff. Default: 10,000.
    pub look_ahead: usize,
    /// Finished ranges above the floor plus failed events that are not finished. What is known already when the bound
    /// is reached may still add to them. Default: 65,536.
    pub window: usize,
    /// Events per read, and events kept for want of credit. Default: 1,000.
    pub page: usize,
    /// Dead letters per commit. They hold whole events, and a commit must fit a journal file. Default: 16. Minimum: 1.
    pub letters: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { look_ahead: 10_000, window: 65_536, page: 1_000, letters: 16 }
    }
}

/// What was persisted of the claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Start {
    /// Every offset below is finished.
    pub floor: Offset,
    /// What is finished above.
    pub finished: Vec<OffsetRange>,
    /// Noted attempts of events that are not finished, or are redriven.
    pub attempts: Vec<Attempts>,
    /// Dead letters that are being delivered again.
    pub redriven: Vec<Offset>,
    /// Dead letters that were to be delivered again, and whose event is gone.
    pub reopened: Vec<Offset>,
    /// Whether the group is paused.
    pub paused: bool,
    /// Leases are numbered from here. To be higher than any lease of an earlier machine whose members may still be
    /// there, so that their late acks are stale.
    pub first_serial: u64,
}
