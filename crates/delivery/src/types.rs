//! What goes into the machine and what comes out of it.

use std::collections::BTreeSet;

use promethean_model::{Offset, OffsetRange, StoredEvent};

use super::credit::Allowance;

/// Both clocks, read once per step. Deadlines within a process use the monotonic one; what is persisted uses the wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// Never goes back.
    pub monotonic_ms: u64,
    /// Epoch milliseconds; may jump.
    pub wall_ms: i64,
}

/// A member of the group in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberNo(pub u64);

/// One lease. An offset is leased again and again; the serial tells the leases apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseRef {
    /// The event.
    pub offset: Offset,
    /// Unique within the machine.
    pub serial: u64,
}

/// What the owner wants to hear about later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplyNo(pub u64);

/// The part of a topic that a machine delivers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Offsets inside.
    pub range: OffsetRange,
    /// Virtual partitions inside: how many there are, and which; `None` is all.
    pub partitions: Option<(u32, BTreeSet<u32>)>,
}

impl Scope {
    /// The whole topic.
    pub const fn everything() -> Self {
        Self { range: OffsetRange::new(Offset::ZERO, Offset::MAX), partitions: None }
    }
}

/// In which order events reach members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// By offset, and out of order where an event is redelivered.
    #[default]
    None,
    /// No event before an earlier one of its key is finished.
    Key,
}

/// A delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The lease.
    pub lease: LeaseRef,
    /// 1 for the first.
    pub attempt: u32,
    /// The event.
    pub event: StoredEvent,
}

/// Why an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The member said so.
    Nack,
    /// The lease ran out.
    Expired,
    /// The member went away.
    MemberLost,
    /// A projector could not make anything of it.
    Projection,
}

/// How a member left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// Its connection broke: what had been written to it failed. What had not never reached it and did not.
    Lost,
    /// It unsubscribed, was moved away or the server shuts down: what it held did not fail.
    Released,
}

/// What failed so far at one event that is not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempts {
    /// The event.
    pub offset: Offset,
    /// Attempts that failed.
    pub failed: u32,
    /// Why the last one did.
    pub last_failure: Failure,
    /// When the first one did, epoch ms.
    pub first_ms: i64,
    /// When the last one did, epoch ms.
    pub last_ms: i64,
    /// Not to be delivered before, epoch ms.
    pub due_ms: i64,
}

/// What must be committed, in one batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Comes back in `Committed` or `CommitFailed`.
    pub token: u64,
    /// Every offset below is finished.
    pub floor: Offset,
    /// What is finished above the floor, ascending, not touching each other.
    pub finished: Vec<OffsetRange>,
    /// Attempts to note.
    pub failed: Vec<Attempts>,
    /// Events whose noted attempts are to be forgotten.
    pub forget: Vec<Offset>,
    /// Events that go to the dead letters; `floor` and `finished` already count them as finished.
    pub dead: Vec<Attempts>,
    /// Redriven dead letters that are finished now: their entries are to be closed.
    pub redriven: Vec<Offset>,
    /// Redriven dead letters whose event was gone before it was delivered: they are open as before.
    pub reopened: Vec<Offset>,
    /// A seek: every noted attempt of the claim is to be forgotten, and the letters from here on are to be closed, but
    /// for those whose event is gone. Those are open as before.
    pub seek: Option<Offset>,
}

/// What happens to a machine.
#[derive(Debug, Clone)]
pub enum Input {
    /// The durable end of the topic, at start and whenever it moves.
    End(Offset),
    /// The answer to a `Read`.
    Page {
        /// The request it answers; an answer to an abandoned request is ignored.
        request: u64,
        /// Events at or after the requested offset, ascending.
        events: Vec<StoredEvent>,
        /// Where to read on. Offsets below without an event are holes: finished.
        next: Offset,
        /// How many of the offsets passed over are gone because retention dropped them.
        expired: u64,
    },
    /// A `Read` failed; to be asked again at `retry_at_ms` (monotonic).
    ReadFailed {
        /// The request.
        request: u64,
        /// When to ask again.
        retry_at_ms: u64,
    },
    /// A member joins.
    Join {
        /// Its number, never used before.
        member: MemberNo,
        /// What it may hold.
        limits: MemberLimits,
        /// What it shares with its subscriptions to other topics.
        allowance: Allowance,
    },
    /// A member leaves.
    Leave {
        /// Its number.
        member: MemberNo,
        /// How.
        how: Leaving,
    },
    /// Deliveries reached the member: their clock starts. Those of members with `auto_ack` are acked by it.
    Written {
        /// The member.
        member: MemberNo,
        /// The leases.
        leases: Vec<LeaseRef>,
    },
    /// Events are done.
    Ack {
        /// The member.
        member: MemberNo,
        /// The leases.
        leases: Vec<LeaseRef>,
        /// Answered after the commit, or at once if all are stale.
        reply: Option<ReplyNo>,
    },
    /// Attempts failed.
    Nack {
        /// The member.
        member: MemberNo,
        /// The leases.
        leases: Vec<LeaseRef>,
        /// When to try again; `None`: the server's backoff.
        delay_ms: Option<u64>,
        /// Answered after the commit, or at once if all are stale.
        reply: Option<ReplyNo>,
    },
    /// Leases last longer.
    Extend {
        /// The member.
        member: MemberNo,
        /// The leases.
        leases: Vec<LeaseRef>,
        /// From now on, at least 1000; `None`: the member's ack timeout.
        by_ms: Option<u64>,
        /// Answered at once.
        reply: Option<ReplyNo>,
    },
    /// No new deliveries to this member, or to any.
    Pause(Option<MemberNo>),
    /// Deliveries again.
    Resume(Option<MemberNo>),
    /// Who owns the partitions of a partitioned group now. Leases of partitions a member lost end, without failing.
    Assign(Vec<Option<MemberNo>>),
    /// Everything below is finished and nothing above. All leases end, without failing.
    Seek {
        /// The new floor.
        to: Offset,
        /// Answered after the commit.
        reply: ReplyNo,
    },
    /// Dead letters of these offsets are to be delivered again, with attempts reset. Already persisted by the owner.
    Redrive(Vec<Offset>),
    /// A `Commit` is durable.
    Committed(u64),
    /// Letters that the commit on its way is to close, and could not, though it is durable: to be closed at `retry_at_ms`
    /// (monotonic). Told before its `Committed`.
    Unclosed {
        /// Their events.
        letters: Vec<Offset>,
        /// When to try again.
        retry_at_ms: u64,
    },
    /// A `Commit` was refused for now; to be asked again at `retry_at_ms` (monotonic).
    CommitFailed {
        /// Its token.
        token: u64,
        /// When to ask again.
        retry_at_ms: u64,
    },
    /// Shared credit was given back elsewhere.
    Credit,
    /// Time has passed.
    Tick,
}

/// What a member may hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberLimits {
    /// Deliveries handed over at once.
    pub batch_size: usize,
    /// A lease's length.
    pub ack_timeout_ms: u64,
    /// Acked when written.
    pub auto_ack: bool,
    /// Starts paused.
    pub paused: bool,
}

/// What a machine wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Read events from an offset on. At most one is out at a time.
    Read {
        /// Comes back in the answer; growing.
        request: u64,
        /// From here.
        from: Offset,
        /// At most so many.
        limit: usize,
    },
    /// Commit this. At most one is out at a time.
    Commit(Progress),
    /// Hand these to the member, in this order.
    Deliver(MemberNo, Vec<Delivery>),
    /// These leases ended without the member's doing: its ack would be stale.
    Revoke(MemberNo, Vec<LeaseRef>),
    /// What was asked for is done.
    Reply {
        /// Which question.
        reply: ReplyNo,
        /// How many of its leases were not in flight.
        stale: usize,
    },
}

/// Why a group delivers nothing at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// Everything is finished.
    CaughtUp,
    /// Members hold all they may.
    Credit,
    /// Every member, or the group, is paused.
    Paused,
    /// What is left waits for an earlier event of its key.
    BlockedKey,
    /// The delivery rate is reached.
    Rate,
    /// What is left failed and waits for its time.
    Backoff,
    /// What is left is in flight.
    Leased,
    /// Too many finished ranges or waiting failures above the floor.
    Window,
    /// Nobody is there.
    NoMembers,
}

impl Reason {
    /// The word users see.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CaughtUp => "caught_up",
            Self::Credit => "credit",
            Self::Paused => "paused",
            Self::BlockedKey => "blocked_key",
            Self::Rate => "rate",
            Self::Backoff => "backoff",
            Self::Leased => "leased",
            Self::Window => "window",
            Self::NoMembers => "no_members",
        }
    }
}
