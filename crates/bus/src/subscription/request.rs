//! What a subscriber asks for.

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

/// A member that wants to be.
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

/// What concerns one member alone.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberOptions {
    /// Events handed over at once. Default: 100. Minimum: 1.
    pub batch_size: usize,
    /// Events unfinished at a time. Default: 1000. Minimum: 1. Maximum: 100,000.
    pub max_in_flight: usize,
    /// How long an event may be worked on. Default: 30 s. Minimum: 1 s.
    pub ack_timeout_ms: u64,
    /// Whether the member acks; if not, an event is done when it is handed over. Default: true.
    pub manual_ack: bool,
    /// The member's name; needed in partitioned groups.
    pub member_id: Option<MemberId>,
    /// How it shows that it lives, in a partitioned group. Default: by its subscription, until that is dropped. With
    /// heartbeats it must call [`Subscription::heartbeat`](crate::Subscription::heartbeat).
    pub liveness: Liveness,
    /// What it says of itself.
    pub meta: Option<Value>,
    /// Whether it is given events only when it asks, with [`crate::Subscription::grant`]. Default: false.
    pub pull: bool,
    /// Whether events of old schema versions are lifted to the latest before it is given them. One that cannot be is
    /// given as it is stored, with the header `x-normalize-error`. Default: false.
    pub normalize: bool,
    /// How fast events are delivered to it. Default: as fast as it takes them.
    pub rate: Option<Rate>,
    /// A bound on the bytes that wait for it, perhaps together with other members. Default: none but `max_in_flight`.
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
            liveness: Liveness::default(),
            meta: None,
            pull: false,
            normalize: false,
            rate: None,
            backlog: None,
        }
    }
}

impl Subscribe {
    /// With all defaults.
    pub fn new(subject: Subject, group: GroupName) -> Self {
        Self { subject, group, options: AskedOptions::default(), member: MemberOptions::default() }
    }

    /// Refuses what no group or member can have. Subscribing does so too.
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
