//! A batch is data: what is to be written, all or nothing.

use promethean_model::{Durability, EventId, GroupName, Offset, TopicName, TopicSettings};

use super::{CollectionOp, Cursor, DocOp, DocPut, OutboxStatus, Table};

/// Writes that happen together. State changes take effect in the order given, each seeing those before it.
///
/// An event that turns out to be a duplicate does not stop the rest of its batch: a retried batch applies its state
/// changes again, so those must be fit for that, as whole values, expectations and epochs are.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// How it is kept.
    pub class: Class,
    /// Events to append, in this order.
    pub events: Vec<AppendEvent>,
    /// Topics and what their next offset must be.
    pub expected_ends: Vec<(TopicName, Offset)>,
    /// Topics, keys, and what the offset of the key's latest event must be.
    pub expected_keys: Vec<(TopicName, String, Option<Offset>)>,
    /// State changes.
    pub state: Vec<StateOp>,
}

/// How a batch is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Through the journal. `None` takes the store's default.
    Durable(Option<Durability>),
    /// Computed from the log and able to be again: no events, no journal, no sync. A power cut may undo the latest
    /// derived batches, never a part of one, and never one without those after it.
    Derived,
}

/// An event to append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendEvent {
    /// The topic; created if it does not exist.
    pub topic: TopicName,
    /// Its id.
    pub id: EventIdSource,
    /// Its time; the store's clock, never decreasing within the topic, if not given.
    pub ts: Option<i64>,
    /// Its key.
    pub key: Option<String>,
    /// Encoded meta.
    pub meta: Vec<u8>,
    /// JSON text without insignificant whitespace; `null` is a tombstone.
    pub payload: String,
}

/// Where an event's id came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventIdSource {
    /// Made for this event just now: surely new, not looked up.
    Minted(EventId),
    /// From the publisher: looked up, and a duplicate if it is there with the same key and payload.
    Given(EventId),
}

/// One change of state.
#[derive(Debug, Clone, PartialEq)]
pub enum StateOp {
    /// A cursor.
    Cursor(CursorOp),
    /// A document.
    Doc(DocOp),
    /// A collection.
    Collection(CollectionOp),
    /// A dedupe mark.
    Dedupe(DedupeMark),
    /// A dedupe mark goes.
    Forget(DedupeForget),
    /// Topic settings.
    Settings(SettingsOp),
    /// A topic.
    Topic(TopicOp),
    /// An outbox row.
    Outbox(OutboxOp),
    /// A row of a small table.
    Row(RowOp),
}

/// A change of a cursor. `expected_epoch` must be the stored epoch; a cursor that does not exist has epoch 0. Taking a
/// cursor over is a put whose cursor has a higher epoch than it expects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CursorOp {
    /// Writes it.
    Put {
        /// The group.
        group: GroupName,
        /// The topic.
        topic: TopicName,
        /// The new value.
        cursor: Cursor,
        /// The epoch it must have.
        expected_epoch: u64,
    },
    /// Removes it.
    Delete {
        /// The group.
        group: GroupName,
        /// The topic.
        topic: TopicName,
        /// The epoch it must have; `None` removes it whoever owns it.
        expected_epoch: Option<u64>,
    },
}

/// Marks an id as done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DedupeMark {
    /// Whose work it was, such as topic and group.
    pub scope: String,
    /// What was done.
    pub id: String,
    /// When the mark ends, epoch ms.
    pub expires_at: i64,
    /// Refuse the batch if the id is marked already at this time.
    pub unless_seen_at: Option<i64>,
}

/// Removes a mark; one that is not there stays so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DedupeForget {
    /// Its scope.
    pub scope: String,
    /// What was marked.
    pub id: String,
}

/// A change of topic settings.
#[derive(Debug, Clone, PartialEq)]
pub enum SettingsOp {
    /// Replaces them.
    Put(TopicName, TopicSettings),
    /// Back to defaults.
    Delete(TopicName),
}

/// A change of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TopicOp {
    /// Creates it empty; one that exists stays as it is.
    Create(TopicName),
    /// Deletes it with its events (those of the same batch too), settings and cursors. One that is not there stays
    /// so.
    Delete(TopicName),
}

/// A change of the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutboxOp {
    /// Adds a pending row. The same row again does nothing.
    Add {
        /// The event's id and the row's.
        id: EventId,
        /// When it is added.
        ts: i64,
        /// Where the event goes.
        topic: TopicName,
        /// The event's key.
        key: Option<String>,
        /// The event's encoded meta.
        meta: Vec<u8>,
        /// The event's payload.
        payload: String,
    },
    /// Says where a row stands.
    Status {
        /// The row.
        id: EventId,
        /// Where it stands.
        status: OutboxStatus,
        /// Why it was refused.
        error: Option<String>,
    },
    /// Removes a row; one that is not there stays so.
    Delete {
        /// The row.
        id: EventId,
    },
}

/// A change of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowOp {
    /// Writes it.
    Put {
        /// The table.
        table: Table,
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
        /// Refuse the batch if the row exists.
        must_be_new: bool,
    },
    /// Removes it; one that is not there stays so.
    Delete {
        /// The table.
        table: Table,
        /// The key.
        key: Vec<u8>,
    },
}

impl Batch {
    /// An empty durable batch with the store's default durability.
    pub fn new() -> Self {
        Self::of(Class::Durable(None))
    }

    /// An empty derived batch.
    pub fn derived() -> Self {
        Self::of(Class::Derived)
    }

    /// An empty batch.
    pub fn of(class: Class) -> Self {
        Self {
            class,
            events: Vec::new(),
            expected_ends: Vec::new(),
            expected_keys: Vec::new(),
            state: Vec::new(),
        }
    }

    /// With an event.
    #[must_use]
    pub fn event(mut self, event: AppendEvent) -> Self {
        self.events.push(event);
        self
    }

    /// With an expectation of a topic's next offset.
    #[must_use]
    pub fn expect_end(mut self, topic: TopicName, next: Offset) -> Self {
        self.expected_ends.push((topic, next));
        self
    }

    /// With an expectation of the latest event of a key; `None`: the key has none.
    #[must_use]
    pub fn expect_key(mut self, topic: TopicName, key: impl Into<String>, latest: Option<Offset>) -> Self {
        self.expected_keys.push((topic, key.into(), latest));
        self
    }

    /// With a change of state.
    #[must_use]
    pub fn with(mut self, op: impl Into<StateOp>) -> Self {
        self.state.push(op.into());
        self
    }

    /// Whether it would write nothing.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.state.is_empty()
    }

    /// Whether it expects anything of topics or keys.
    pub fn has_expectations(&self) -> bool {
        !self.expected_ends.is_empty() || !self.expected_keys.is_empty()
    }

    /// Whether it would write nothing and expects nothing.
    pub fn asks_nothing(&self) -> bool {
        self.is_empty() && !self.has_expectations()
    }

    /// About how much memory it takes, for admission.
    pub fn bytes(&self) -> usize {
        64 + self.events.iter().map(|event| 96 + event.bytes()).sum::<usize>()
            + self.state.iter().map(StateOp::bytes).sum::<usize>()
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl AppendEvent {
    /// Bytes of key, meta and payload.
    pub fn bytes(&self) -> usize {
        self.key.as_ref().map_or(0, String::len) + self.meta.len() + self.payload.len()
    }
}

impl EventIdSource {
    /// The id.
    pub const fn id(self) -> EventId {
        match self {
            Self::Minted(id) | Self::Given(id) => id,
        }
    }
}

impl StateOp {
    fn bytes(&self) -> usize {
        128 + match self {
            Self::Cursor(CursorOp::Put { cursor, .. }) => cursor.data.len(),
            Self::Doc(DocOp::Put(put)) => put.key.len() + put.body.len(),
            Self::Dedupe(mark) => mark.scope.len() + mark.id.len(),
            Self::Forget(mark) => mark.scope.len() + mark.id.len(),
            Self::Outbox(OutboxOp::Add { meta, payload, .. }) => meta.len() + payload.len(),
            Self::Row(RowOp::Put { key, value, .. }) => key.len() + value.len(),
            _ => 0,
        }
    }
}

macro_rules! into_state_op {
    ($($op:ident => $variant:ident),* $(,)?) => {
        $(impl From<$op> for StateOp {
            fn from(op: $op) -> Self {
                Self::$variant(op)
            }
        })*
    };
}

into_state_op!(
    CursorOp => Cursor, DocOp => Doc, CollectionOp => Collection, DedupeMark => Dedupe,
    DedupeForget => Forget,
    SettingsOp => Settings, TopicOp => Topic, OutboxOp => Outbox, RowOp => Row,
);

impl From<DocPut> for StateOp {
    fn from(put: DocPut) -> Self {
        Self::Doc(DocOp::Put(put))
    }
}
