//! The request to subscribe, and its options.

use std::sync::Arc;

use promethean_delivery::{Liveness, Subject};
use promethean_model::{GroupName, MemberId};
use serde_json::Value;

use crate::error::BusError;
use crate::groups::Backlog;
use crate::limits::Rate;
use crate::rows::AskedOptions;

/// The shortest ack timeout.
const ACK_TIMEOUT_MS_MIN: u64 = 1_000;
/// The most leases a member may hold.
const IN_FLIGHT_MAX: usize = 100_000;

/// A request to become a member of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct Subscribe {
    /// The topic or pattern.
    pub subject: Subject,
    /// The group.
    pub group: GroupName,
    /// Options of the group.
    pub options: AskedOptions,
    /// Options of the member.
    pub member: MemberOptions,
}

/// The options of one member.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberOptions {
    /// The most events in one delivery. Default: 100. Minimum: 1.
    pub batch_size: usize,
    /// The most events that the member has leased at a time. Default: 1000. Minimum: 1. Maximum: 100,000.
    pub max_in_flight: usize,
    /// How long the member may work on an event before it must ack. Default: 30 s. Minimum: 1 s.
    pub ack_timeout_ms: u64,
    /// Whether the member acks. If not, an event is finished as soon as it is handed over. Default: true.
    pub manual_ack: bool,
    /// The member's name; needed in partitioned groups.
    pub member_id: Option<MemberId>,
    /// The name that users see for a member without `member_id`, such as the name of its token.
    pub shown_as: Option<Arc<str>>,
    /// How the member shows that it lives, in a partitioned group. Default: by its subscription, until that
    /// is dropped. With heartbeats it must call [`Subscription::heartbeat`](crate::Subscription::heartbeat).
    pub liveness: Liveness,
    /// Data about the member that users see with the group.
    pub meta: Option<Value>,
    /// Whether the member receives events only when it asks for them with [`crate::Subscription::grant`].
    /// Default: false.
    pub pull: bool,
    /// Whether events of old schema versions are lifted to the latest version before the member gets them. An
    /// event that cannot be lifted comes as it is stored, with the header `x-normalize-error`. Default:
    /// false.
    pub normalize: bool,
    /// The most events per second for this member. Default: no limit.
    pub rate: Option<Rate>,
    /// A bound on the bytes that wait for the member, which it may share with other members. Default: no
    /// bound but `max_in_flight`.
    pub backlog: Option<Backlog>,
}

impl Default for MemberOptions {
    fn default() -> Self {
        Self {
            batch_size: 100,
            max_in_flight: 1000,
            ack_timeout_ms: 30_000,
            manual_ack: true,
            member_id: None,
            shown_as: None,
            liveness: Liveness::default(),
            meta: None,
            pull: false,
            normalize: false,
            rate: None,
            backlog: None,
        }
    }
}

impl MemberOptions {
    /// The name that users see.
    pub(super) fn shown_name(&self) -> Option<Arc<str>> {
        self.member_id.as_ref().map(|name| name.as_str().into()).or_else(|| self.shown_as.clone())
    }

    /// The name of the member in a group with this number of partitions; `None` in a group without partitions.
    pub(super) fn name_in(&self, partitions: Option<u32>) -> Result<Option<MemberId>, BusError> {
        match (partitions, &self.member_id) {
            (None, _) if self.liveness == Liveness::Heartbeat => Err(BusError::BadOption {
                option: "liveness",
                given: "heartbeat".to_owned(),
                fix: "only members of a partitioned group have heartbeats; leave it out",
            }),
            (None, _) => Ok(None),
            (Some(_), Some(name)) => Ok(Some(name.clone())),
            (Some(_), None) => Err(BusError::BadOption {
                option: "memberId",
                given: "missing".to_owned(),
                fix: "members of a partitioned group need a name each",
            }),
        }
    }
}

impl Subscribe {
    /// A request with all defaults.
    pub fn new(subject: Subject, group: GroupName) -> Self {
        Self { subject, group, options: AskedOptions::default(), member: MemberOptions::default() }
    }

    /// Refuses options that no group or member can have. [`Bus::subscribe`](crate::Bus::subscribe) checks
    /// this too.
    pub fn validate(&self) -> Result<(), BusError> {
        self.options.validate()?;
        let bad = |option, given: String, fix| Err(BusError::BadOption { option, given, fix });
        let member = &self.member;
        if member.batch_size == 0 {
            return bad("batchSize", "0".to_owned(), "give at least 1");
        }
        if !(1..=IN_FLIGHT_MAX).contains(&member.max_in_flight) {
            return bad("maxInFlight", member.max_in_flight.to_string(), "give a number from 1 to 100000");
        }
        if member.ack_timeout_ms < ACK_TIMEOUT_MS_MIN {
            return bad("ackTimeoutMs", member.ack_timeout_ms.to_string(), "give at least 1000");
        }
        Ok(())
    }
}
