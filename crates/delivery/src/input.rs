//! What the owner task tells the machine.

use std::sync::Arc;

use promethean_model::{Offset, StoredEvent};

use crate::credit::Allowance;
use crate::effect::LetterRef;

/// Both clocks, read once per step. Deadlines within a process use the monotonic clock; persisted times use
/// the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// Monotonic milliseconds; never go back.
    pub monotonic_ms: u64,
    /// Epoch milliseconds; may jump.
    pub wall_ms: i64,
}

/// The number of a member's session within this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberNo(pub u64);

/// One lease. An offset can be leased many times; the serial tells its leases apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseRef {
    /// The offset of the event.
    pub offset: Offset,
    /// Unique within the machine.
    pub serial: u64,
}

/// The number of a request that the owner wants answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplyNo(pub u64);

/// Why an attempt failed, in the words of the one who gave the event back. Its length is bounded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureNote {
    reason: String,
    by: Option<String>,
}

impl FailureNote {
    /// The most bytes of a reason. A longer one is cut.
    pub const REASON_BYTES_MAX: usize = 1024;
    /// The most bytes of the name of the one who gave it. A longer one is cut.
    pub const BY_BYTES_MAX: usize = 255;

    /// A note with a reason and the name of the one who gave it; `None` if the reason is empty.
    pub fn new(reason: &str, by: Option<&str>) -> Option<Self> {
        let by = by.map(|by| cut(by, Self::BY_BYTES_MAX)).filter(|by| !by.is_empty());
        let reason = cut(reason, Self::REASON_BYTES_MAX);
        (!reason.is_empty()).then_some(Self { reason, by })
    }

    /// The reason.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The name of the one who gave it.
    pub fn by(&self) -> Option<&str> {
        self.by.as_deref()
    }
}

/// The beginning of a text, at most so many bytes of whole characters.
fn cut(text: &str, bytes_max: usize) -> String {
    text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default().to_owned()
}

/// How a member left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// Its connection broke. Deliveries that were written to it count as failed; the others never reached it
    /// and do not.
    Lost,
    /// It unsubscribed, moved to another owner, or the server shuts down. None of its deliveries counts as
    /// failed.
    Released,
}

/// The limits of one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberLimits {
    /// The most deliveries in one `Deliver` effect.
    pub batch_size: usize,
    /// How long a lease lasts.
    pub ack_timeout_ms: u64,
    /// Whether a delivery is acked when it is written.
    pub auto_ack: bool,
    /// Whether the member starts paused.
    pub paused: bool,
}

/// Something that happened, for the machine to react to.
#[derive(Debug, Clone)]
pub enum Input {
    /// The durable end of the topic, at the start and whenever it moves.
    End(Offset),
    /// The answer to a `Read`.
    Page {
        /// The request of the `Read`. The machine ignores the answer to an abandoned request.
        request: u64,
        /// Events at or after the requested offset, ascending.
        events: Vec<StoredEvent>,
        /// Where to read on. Offsets below it without an event are holes: finished.
        next: Offset,
        /// How many of the skipped offsets retention dropped.
        expired: u64,
    },
    /// A `Read` failed.
    ReadFailed {
        /// The request of the `Read`.
        request: u64,
        /// When to read again, monotonic.
        retry_at_ms: u64,
    },
    /// A member joins.
    Join {
        /// Its number, never used before.
        member: MemberNo,
        /// Its limits.
        limits: MemberLimits,
        /// The credit and the rate that it shares between all the topics it is subscribed to.
        allowance: Allowance,
    },
    /// A member leaves.
    Leave {
        /// Its number.
        member: MemberNo,
        /// How it left.
        how: Leaving,
    },
    /// Deliveries were written to the member. Their ack timeout starts; with `auto_ack` they are acked.
    Written {
        /// The member.
        member: MemberNo,
        /// The leases.
        leases: Vec<LeaseRef>,
    },
    /// A member finished events.
    Ack {
        /// The member.
        member: MemberNo,
        /// The leases.
        leases: Vec<LeaseRef>,
        /// Answered after the commit, or at once if all leases are stale.
        reply: Option<ReplyNo>,
    },
    /// A member failed to handle events.
    Nack {
        /// The member.
        member: MemberNo,
        /// The leases.
        leases: Vec<LeaseRef>,
        /// How long to wait before the next attempt; `None`: the server's backoff.
        delay_ms: Option<u64>,
        /// Why, in the words of the member; kept in the dead letter if this was the last attempt.
        note: Option<Arc<FailureNote>>,
        /// Answered after the commit, or at once if all leases are stale.
        reply: Option<ReplyNo>,
    },
    /// A member needs more time.
    Extend {
        /// The member.
        member: MemberNo,
        /// The leases.
        leases: Vec<LeaseRef>,
        /// The new length of the leases from now on, at least 1000; `None`: the member's ack timeout.
        by_ms: Option<u64>,
        /// Answered at once.
        reply: Option<ReplyNo>,
    },
    /// Stop new deliveries to this member; `None`: to all members.
    Pause(Option<MemberNo>),
    /// Start deliveries again.
    Resume(Option<MemberNo>),
    /// The partitions of a partitioned group have new owners. The leases of a partition end that its last
    /// owner held.
    Assign {
        /// The owner of each partition.
        owners: Vec<Option<MemberNo>>,
        /// The members that lost their partitions because they are lost themselves. Deliveries that were
        /// written to them count as failed; a partition that just moved on counts as nothing.
        lost: Vec<MemberNo>,
    },
    /// Move the cursor: every offset below `to` is finished, none above. All leases end without a failed
    /// attempt.
    Seek {
        /// The new floor.
        to: Offset,
        /// Answered after the commit.
        reply: ReplyNo,
    },
    /// Deliver the events of these dead letters again, with no failed attempts. The owner has persisted the
    /// redrive.
    Redrive(Vec<LetterRef>),
    /// The `Commit` with this token is durable.
    Committed(u64),
    /// The `Commit` that is out is durable, but some dead letters that it closes are still open. Comes before
    /// its `Committed`.
    Unclosed {
        /// The letters as the commit found them.
        letters: Vec<LetterRef>,
        /// When to close them again, monotonic.
        retry_at_ms: u64,
    },
    /// A `Commit` must be split: together its dead letters are too much for one commit. Nothing of it is
    /// durable.
    CommitSplit {
        /// The token of the `Commit`.
        token: u64,
        /// The most dead letters of the next `Commit`; fewer than this one had, and at least 1.
        letters: usize,
    },
    /// The store refused a `Commit` for now.
    CommitFailed {
        /// The token of the `Commit`.
        token: u64,
        /// When to commit again, monotonic.
        retry_at_ms: u64,
    },
    /// Commit at once what a refused commit has left, without waiting for the time of its retry.
    CommitNow,
    /// Another machine gave back credit that this machine shares.
    Credit,
    /// Whether leases have a grace: none of them expires meanwhile. The owner gives it after the process missed
    /// time, until it has read what arrived in that time.
    Grace(bool),
    /// Time has passed.
    Tick,
}
