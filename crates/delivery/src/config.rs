//! What a machine is built from.

use std::collections::BTreeSet;

use promethean_model::{Offset, OffsetRange, StoredEvent, partition_of};

use crate::effect::{Attempts, LetterRef};

/// Tells whether a group wants an event.
pub type EventTest = Box<dyn Fn(&StoredEvent) -> bool + Send>;

/// The options of a group that the machine needs.
pub struct MachineConfig {
    /// The claim's part of the topic.
    pub scope: Scope,
    /// An event that fails this test is finished at once; `None`: the group wants all events.
    pub filter: Option<EventTest>,
    /// The order in which events reach members.
    pub order: Order,
    /// The number of partitions of a partitioned group.
    pub partitions: Option<u32>,
    /// Failed attempts after which an event becomes a dead letter. Default: 5. Minimum: 1.
    pub max_attempts: u32,
    /// Whether the group has dead letters. Without them an event is redelivered until it is acked.
    pub dead_letters: bool,
    /// The seed of the backoff's jitter.
    pub seed: u64,
    /// How long acks without a reply may wait to share a commit with others. Default: 0, not at all.
    pub commit_every_ms: u64,
    /// The bounds of what the machine keeps in memory.
    pub bounds: MachineBounds,
}

impl MachineConfig {
    /// An unordered group of the whole topic, with the defaults.
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
            bounds: MachineBounds::default(),
        }
    }

    pub(crate) fn wants(&self, event: &StoredEvent) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter(event))
    }

    pub(crate) fn in_scope(&self, event: &StoredEvent) -> bool {
        self.scope.range.contains(event.offset)
            && self
                .scope
                .partitions
                .as_ref()
                .is_none_or(|(count, inside)| inside.contains(&partition_of(event.key(), &event.id, *count)))
    }

    /// The partition whose owner receives the event; 0 where the group is not partitioned.
    pub(crate) fn partition(&self, event: &StoredEvent) -> u32 {
        self.partitions.map_or(0, |count| partition_of(event.key(), &event.id, count))
    }
}

impl Default for MachineConfig {
    fn default() -> Self {
        Self::new()
    }
}

/// The part of a topic that a machine delivers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The offsets inside.
    pub range: OffsetRange,
    /// The number of virtual partitions, and those inside; `None` is all.
    pub partitions: Option<(u32, BTreeSet<u32>)>,
}

impl Scope {
    /// The whole topic.
    pub const fn everything() -> Self {
        Self { range: OffsetRange::new(Offset::ZERO, Offset::MAX), partitions: None }
    }
}

/// The order in which events reach members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// By offset, except for redelivered events.
    #[default]
    None,
    /// By offset within each key: an event waits until all earlier events of its key are finished.
    Key,
}

/// The bounds of what a machine keeps in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineBounds {
    /// Events that are known and not leased: blocked by key, by partition or by backoff. Default: 10,000.
    pub look_ahead: usize,
    /// Finished ranges above the floor plus failed events that are not finished. Events that are known when
    /// the bound is reached may still add to them. Default: 65,536.
    pub window: usize,
    /// The most events per read. Default: 1,000.
    pub page: usize,
    /// Dead letters per commit. They hold whole events, so the owner may ask for fewer. Default: 16.
    /// Minimum: 1.
    pub letters: usize,
}

impl Default for MachineBounds {
    fn default() -> Self {
        Self { look_ahead: 10_000, window: 65_536, page: 1_000, letters: 16 }
    }
}

/// The progress of a claim as it was persisted, from which a machine goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SavedProgress {
    /// Every offset below it is finished.
    pub floor: Offset,
    /// The finished ranges above the floor.
    pub finished: Vec<OffsetRange>,
    /// The failed attempts of events that are not finished, or are redriven.
    pub attempts: Vec<Attempts>,
    /// Dead letters whose events are being delivered again.
    pub redriven: Vec<LetterRef>,
    /// Dead letters that are open although their events are not finished, because a seek could not close them.
    pub unclosed: Vec<LetterRef>,
    /// Dead letters that were redriven and whose event is gone.
    pub reopened: Vec<LetterRef>,
    /// Whether the group is paused.
    pub paused: bool,
    /// The serial of the first lease. It must be above every serial of an earlier machine whose members may
    /// still be connected, so that their late acks are stale.
    pub first_serial: u64,
}
