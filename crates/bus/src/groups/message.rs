//! The messages that an owner receives.

use std::sync::{Arc, Weak};

use tokio::sync::oneshot;

use super::inbox::Inbox;
use super::membership::Membership;
use crate::error::BusError;
use promethean_delivery::{
    Allowance, DeliveryStatus, FailureNote, Input, LeaseRef, Leaving, MemberLimits, MemberNo, Reason, ReplyNo,
};
use promethean_model::Offset;

/// The sender of the answer to one message.
pub(crate) type Answer<T> = oneshot::Sender<Result<T, BusError>>;

/// A message to an owner.
#[derive(Debug)]
pub(crate) enum OwnerMessage {
    /// An input for the machine; the sender does not wait for an answer.
    Tell(Input),
    /// A request that the sender waits for; the answer is the number of its leases that were stale.
    Request(OwnerRequest, Answer<usize>),
    /// A member joins.
    Join(NewMember, Answer<()>),
    /// A member leaves.
    Leave(MemberNo, Leaving),
    /// Asks for the owner's present state.
    Look(Answer<OwnerView>),
    /// The group is being deleted: the owner ends if it has no members, and refuses if it has some. The
    /// answer's sender is dropped when the owner has ended.
    Retire(Answer<()>),
    /// Asks to be told of the owner's end: the answer's sender is dropped then. Refused if the owner has
    /// members.
    AwaitEnd(Answer<()>),
    /// The topic is deleted. The answer's sender is dropped when the owner has ended.
    TopicDeleted(Answer<()>),
    /// The bus shuts down.
    Close,
}

/// A request to an owner that is answered when it is carried out.
#[derive(Debug)]
pub(crate) enum OwnerRequest {
    Ack(MemberNo, Vec<LeaseRef>),
    Nack(MemberNo, Vec<LeaseRef>, GivenBack),
    Extend(MemberNo, Vec<LeaseRef>, Option<u64>),
    Seek(Offset),
}

/// How a member gives events back.
#[derive(Debug, Clone, Default)]
pub(crate) struct GivenBack {
    /// How long to wait before the next delivery; `None`: the server's backoff.
    pub(crate) delay_ms: Option<u64>,
    /// Why, if the member says it.
    pub(crate) note: Option<Arc<FailureNote>>,
}

/// A member that joins an owner.
#[derive(Debug)]
pub(crate) struct NewMember {
    pub(crate) member: MemberNo,
    pub(crate) limits: MemberLimits,
    pub(crate) allowance: Allowance,
    /// The name that users see.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) inbox: Arc<Inbox>,
    /// The membership, if it is of a pattern, whose topics share its credit.
    pub(crate) shared: Option<Weak<Membership>>,
}

/// The state of an owner at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerView {
    /// The state of its delivery machine.
    pub status: DeliveryStatus,
    /// Why it delivers nothing now; `None` while it delivers.
    pub reason: Option<Reason>,
    /// How many members it has.
    pub members: usize,
    /// Its members, at most 100; first the members whose events block others.
    pub member_list: Vec<MemberStatus>,
    /// Whether the group is paused.
    pub paused: bool,
    /// The last error of the store, until a commit succeeds.
    pub failure: Option<BusError>,
}

/// A member of a group on one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    /// The number of its session in this process.
    pub number: MemberNo,
    /// The name that users see: its `memberId`, or else the name that its subscription came with.
    pub name: Option<Arc<str>>,
    /// How many events of the topic it has leased.
    pub in_flight: usize,
}

impl OwnerRequest {
    pub(crate) fn input(self, reply: ReplyNo) -> Input {
        match self {
            Self::Ack(member, leases) => Input::Ack { member, leases, reply: Some(reply) },
            Self::Nack(member, leases, GivenBack { delay_ms, note }) => {
                Input::Nack { member, leases, delay_ms, note, reply: Some(reply) }
            }
            Self::Extend(member, leases, by_ms) => {
                Input::Extend { member, leases, by_ms, reply: Some(reply) }
            }
            Self::Seek(to) => Input::Seek { to, reply },
        }
    }
}

impl OwnerMessage {
    /// Answers the sender, if it waits, with an error.
    pub(crate) fn refuse(self, why: &BusError) {
        // A failed send means that the sender no longer waits.
        match self {
            Self::Request(_, answer) => drop(answer.send(Err(why.clone()))),
            Self::Join(_, answer)
            | Self::Retire(answer)
            | Self::AwaitEnd(answer)
            | Self::TopicDeleted(answer) => drop(answer.send(Err(why.clone()))),
            Self::Look(answer) => drop(answer.send(Err(why.clone()))),
            Self::Tell(_) | Self::Leave(..) | Self::Close => {}
        }
    }
}
