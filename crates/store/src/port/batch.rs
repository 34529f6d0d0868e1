//! A batch: changes as data, written all or nothing.

use promethean_model::{Durability, EventId, GroupName, Offset, TopicName, TopicSettings};

use super::{CollectionOp, Cursor, DocOp, DocPut, OutboxStatus, Table};

/// Writes that happen together. State changes take effect in the order given, each seeing those before it.
///
/// A duplicate event does not stop the rest of its batch: a retried batch applies its state changes again. So a state
/// change must have the same result when it is applied twice, as whole values, expectations and epochs do.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// How the batch is kept.
    pub class: Class,
    /// Events to append, in this order.
    pub events: Vec<AppendEvent>,
    /// Topics, each with the next offset that it must have.
    pub expected_ends: Vec<(TopicName, Offset)>,
    /// Topics and keys, each with the offset that the latest event of the key must have.
    pub expected_keys: Vec<(TopicName, String, Option<Offset>)>,
    /// State changes.
    pub state: Vec<StateOp>,
}

/// How a batch is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Through the journal. `None` takes the store's default.
    Durable(Option<Durability>),
    /// Skips journal and sync; has no events; can be computed again from the log. A power cut may undo the latest derived
    /// batches: never a part of a batch, and never a batch without all later ones.
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
    /// Made by the server for this event: new for certain, so it is not looked up.
    Minted(EventId),
    /// Given by the publisher: it is looked up, and the event is a duplicate if the topic has an event with this id, key and
    /// payload.
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
    /// The removal of a dedupe mark.
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
        /// The epoch it must have; `None` removes it at any epoch.
        expected_epoch: Option<u64>,
    },
}

/// A mark that says that the work for an id is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DedupeMark {
    /// The owner of the work, such as topic and group.
    pub scope: String,
    /// The id of the work.
    pub id: String,
    /// When the mark ends, epoch ms.
    pub expires_at: i64,
    /// Refuses the batch if the id is already marked at this time.
    pub unless_seen_at: Option<i64>,
}

/// The removal of a mark. Removing a mark that does not exist does nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DedupeForget {
    /// Its scope.
    pub scope: String,
    /// The id that was marked.
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
    /// Creates it empty; a topic that exists stays as it is.
    Create(TopicName),
    /// Deletes it with its events (also events of the same batch), settings and cursors. Deleting a topic that does not
    /// exist does nothing.
    Delete(TopicName),
}

/// A change of the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutboxOp {
    /// Adds a pending row. Adding the same row again does nothing.
    Add {
        /// The id of the event, which is also the id of the row.
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
    /// Sets the status of a row.
    Status {
        /// The row.
        id: EventId,
        /// Its new status.
        status: OutboxStatus,
        /// Why it was refused.
        error: Option<String>,
    },
    /// Removes a row. Removing a row that does not exist does nothing.
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
        /// Refuses the batch if the row exists.
        must_be_new: bool,
    },
    /// Removes it. Removing a row that does not exist does nothing.
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

    /// Adds an event.
    #[must_use]
    pub fn event(mut self, event: AppendEvent) -> Self {
        self.events.push(event);
        self
    }

    /// Adds an expectation of a topic's next offset.
    #[must_use]
    pub fn expect_end(mut self, topic: TopicName, next: Offset) -> Self {
        self.expected_ends.push((topic, next));
        self
    }

    /// Adds an expectation of the latest event of a key; `None`: the key has no event.
    #[must_use]
    pub fn expect_key(mut self, topic: TopicName, key: impl Into<String>, latest: Option<Offset>) -> Self {
        self.expected_keys.push((topic, key.into(), latest));
        self
    }

    /// Adds a state change.
    #[must_use]
    pub fn with(mut self, op: impl Into<StateOp>) -> Self {
        self.state.push(op.into());
        self
    }

    /// Whether it writes nothing.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.state.is_empty()
    }

    /// Whether it expects anything of topics or keys.
    pub fn has_expectations(&self) -> bool {
        !self.expected_ends.is_empty() || !self.expected_keys.is_empty()
    }

    /// Whether it writes nothing and expects nothing.
    pub fn asks_nothing(&self) -> bool {
        self.is_empty() && !self.has_expectations()
    }

    /// About the bytes of memory that it takes, for admission.
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
