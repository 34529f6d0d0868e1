//! What an owner can be told.

use std::sync::{Arc, Weak};

use tokio::sync::oneshot;

use super::inbox::Inbox;
use super::membership::Membership;
use crate::error::BusError;
use promethean_delivery::{
    Allowance, DeliveryStatus, Input, LeaseRef, Leaving, MemberLimits, MemberNo, Reason, ReplyNo,
};
use promethean_model::Offset;

/// Where an answer goes.
pub(crate) type Answer<T> = oneshot::Sender<Result<T, BusError>>;

/// A message to an owner.
#[derive(Debug)]
pub(crate) enum OwnerMessage {
    /// Something happened that nobody waits for.
    Tell(Input),
    /// Something whose end is waited for; the answer is how many of its leases were stale.
    Request(OwnerRequest, Answer<usize>),
    /// A member comes.
    Join(NewMember, Answer<()>),
    /// A member goes.
    Leave(MemberNo, Leaving),
    /// How are things?
    Look(Answer<OwnerView>),
    /// End if nobody is a member: the group is being deleted. The answer is dropped when the owner has ended.
    Retire(Answer<()>),
    /// Say when you have ended, by dropping the answer; refused if somebody is a member.
    AwaitEnd(Answer<()>),
    /// The topic is no more. The answer is dropped when the owner has ended.
    TopicDeleted(Answer<()>),
    /// The bus shuts down.
    Close,
}

/// What can be waited for.
#[derive(Debug)]
pub(crate) enum OwnerRequest {
    Ack(MemberNo, Vec<LeaseRef>),
    Nack(MemberNo, Vec<LeaseRef>, Option<u64>),
    Extend(MemberNo, Vec<LeaseRef>, Option<u64>),
    Seek(Offset),
}

/// A member that comes.
#[derive(Debug)]
pub(crate) struct NewMember {
    pub(crate) member: MemberNo,
    pub(crate) limits: MemberLimits,
    pub(crate) allowance: Allowance,
    pub(crate) inbox: Arc<Inbox>,
    /// The subscription, if it has several topics that share its credit.
    pub(crate) shared: Option<Weak<Membership>>,
}

/// An owner at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerView {
    /// The machine.
    pub status: DeliveryStatus,
    /// Why it delivers nothing, if so.
    pub reason: Option<Reason>,
    /// How many members there are.
    pub members: usize,
    /// Whether the group is paused.
    pub paused: bool,
    /// What the store said last, if it failed.
    pub failure: Option<BusError>,
}

impl OwnerRequest {
    pub(crate) fn input(self, reply: ReplyNo) -> Input {
        match self {
            Self::Ack(member, leases) => Input::Ack { member, leases, reply: Some(reply) },
            Self::Nack(member, leases, delay_ms) => {
                Input::Nack { member, leases, delay_ms, reply: Some(reply) }
            }
            Self::Extend(member, leases, by_ms) => {
                Input::Extend { member, leases, by_ms, reply: Some(reply) }
            }
            Self::Seek(to) => Input::Seek { to, reply },
        }
    }
}

impl OwnerMessage {
    /// Tells whoever waits that nothing will come of it.
    pub(crate) fn refuse(self, why: &BusError) {
        // Whoever asked may have gone away.
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
