//! What the machine tells the owner task to do.

use std::sync::Arc;

use promethean_model::{Offset, OffsetRange, StoredEvent};

use crate::input::{FailureNote, LeaseRef, MemberNo, ReplyNo};

/// Something for the owner to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Read events. At most one read is out at a time.
    Read {
        /// Comes back in the answer; grows with each read.
        request: u64,
        /// The first offset to read.
        from: Offset,
        /// The most events to read.
        limit: usize,
    },
    /// Commit this progress. At most one commit is out at a time.
    Commit(Progress),
    /// Hand these deliveries to the member, in this order.
    Deliver(MemberNo, Vec<Delivery>),
    /// These leases of the member ended; an ack of them is stale.
    Revoke(MemberNo, Vec<LeaseRef>),
    /// The request is done.
    Reply {
        /// Which request.
        reply: ReplyNo,
        /// How many of its leases were stale.
        stale: usize,
    },
}

/// One lease together with its event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The lease.
    pub lease: LeaseRef,
    /// The number of the attempt; 1 is the first.
    pub attempt: u32,
    /// The event.
    pub event: StoredEvent,
}

/// The changes to commit in one batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Comes back in `Committed` or `CommitFailed`.
    pub token: u64,
    /// Every offset below it is finished.
    pub floor: Offset,
    /// The finished ranges above the floor, ascending, not touching each other.
    pub finished: Vec<OffsetRange>,
    /// Failed attempts to write.
    pub failed: Vec<Attempts>,
    /// Events whose failed attempts are to be deleted.
    pub forget: Vec<Offset>,
    /// Events that become dead letters; `floor` and `finished` count them as finished already.
    pub dead: Vec<DeadEvent>,
    /// Redriven dead letters to close: their events are finished, or are delivered anyway. A letter that was
    /// redriven more often than the machine knows stays as it is.
    pub redriven: Vec<LetterRef>,
    /// Redriven dead letters to open again: their events were gone before they could be delivered.
    pub reopened: Vec<Offset>,
    /// The target of a seek. Deletes all failed attempts of the claim. Closes the dead letters from here on,
    /// except those whose event is gone: they stay open.
    pub seek: Option<Offset>,
}

/// One open dead letter in the state in which the machine knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LetterRef {
    /// The offset of the event.
    pub offset: Offset,
    /// How often the letter was redriven to the group. A letter with a higher number is newer: the user has
    /// redriven it since.
    pub redrives: u32,
}

/// An event that becomes a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadEvent {
    /// The failed attempts of the event.
    pub attempts: Attempts,
    /// How often the letter of the event was redriven before it died, as far as the machine knows. If the
    /// letter was redriven more often, the event died before the last redrive: it is delivered again.
    pub redrives: u32,
    /// Why the last attempt failed, where that was said.
    pub note: Option<Arc<FailureNote>>,
}

/// The failed attempts of one event that is not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempts {
    /// The offset of the event.
    pub offset: Offset,
    /// How many attempts failed.
    pub failed: u32,
    /// Why the last attempt failed.
    pub last_failure: DeliveryFailure,
    /// When the first attempt failed, epoch ms.
    pub first_ms: i64,
    /// When the last attempt failed, epoch ms.
    pub last_ms: i64,
    /// The earliest time of the next attempt, epoch ms.
    pub due_ms: i64,
}

/// Why an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryFailure {
    /// The member nacked it.
    Nack,
    /// The lease expired.
    Expired,
    /// The member was lost.
    MemberLost,
    /// A projector failed on the event.
    Projection,
}
