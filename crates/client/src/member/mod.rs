//! A subscription as the client keeps it: its state, its leases and its acks.

pub(crate) mod table;

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use promethean_model::TopicName;
use promethean_model::wire::Op;
use tokio::time::Instant;

use self::table::{Accepted, LeaseKey, LeaseRules, LeaseTable, RowId};
use crate::answers::AnswerSlot;
use crate::backoff::Backoff;
use crate::effects::LockEffects;
use crate::error::ClientError;
use crate::event::RawDelivery;
use crate::frames::decode::{DeliveryFields, RebalanceFields};
use crate::frames::encode;

/// Refusals of a `SUBSCRIBE` after which the client itself tries again.
const TRY_AGAIN: &[&str] =
    &["auth_unavailable", "busy", "closed", "rate_limited", "timeout", "topic_deleted"];

/// How long a `SUBSCRIBE` of a lost connection may still arrive: by then the server has given the connection up.
const LATE_MAX: Duration = Duration::from_secs(60);

/// A change of the partitions of a member of a partitioned group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionChange {
    /// Grows with every change of the group.
    pub epoch: u64,
    /// Partitions that this member has got.
    pub assigned: Vec<u32>,
    /// Partitions that this member has lost; their leases are over.
    pub revoked: Vec<u32>,
}

pub(crate) type OnError = Arc<dyn Fn(&ClientError) + Send + Sync>;
pub(crate) type OnPartitions = Arc<dyn Fn(PartitionChange) + Send + Sync>;

/// What a subscription was asked for.
pub(crate) struct MemberSetup {
    pub(crate) topic: Arc<str>,
    pub(crate) group: Arc<str>,
    /// The JSON of the options for the server.
    pub(crate) opts: String,
    pub(crate) has_handler: bool,
    pub(crate) rules: LeaseRules,
    pub(crate) lease_max: Duration,
    pub(crate) on_error: OnError,
    pub(crate) on_partitions: Option<OnPartitions>,
}

/// Where a subscription stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberState {
    Starting,
    Active,
    Closing,
    Ended,
}

/// An ack that is not answered yet.
#[derive(Debug)]
pub(crate) struct AckItem {
    pub(crate) key: LeaseKey,
    /// Where the answer is awaited.
    pub(crate) slot: Option<AnswerSlot>,
}

/// One subscription.
pub(crate) struct Member {
    pub(crate) options: MemberSetup,
    pub(crate) state: MemberState,
    pub(crate) failure: Option<ClientError>,
    pub(crate) is_paused: bool,
    pub(crate) table: LeaseTable,
    /// Acks that are not sent.
    pub(crate) acks: Vec<AckItem>,
    /// How many acks are sent and not answered.
    pub(crate) unanswered: usize,
    /// How many handlers run.
    pub(crate) running: usize,
    /// Whether a `FETCH` is under way; the server takes one at a time.
    pub(crate) is_fetching: bool,
    /// Whether its owner is gone, so that it is forgotten when it ends.
    pub(crate) is_detached: bool,
    /// Grows with each `SUBSCRIBE` and each lost connection: an answer of an earlier epoch is too late.
    pub(crate) epoch: u64,
    pub(crate) retry_at: Option<Instant>,
    /// Until when a `SUBSCRIBE` of a lost connection may arrive and take this member's own name from it.
    late_until: Option<Instant>,
    tries: u32,
    last_topic: Option<TopicName>,
    /// Tasks that wait for leases.
    pub(crate) consumers: Vec<Waker>,
    /// Tasks that wait for a change of state.
    pub(crate) watchers: Vec<Waker>,
}

impl Member {
    pub(crate) fn new(options: MemberSetup) -> Self {
        Self {
            options,
            state: MemberState::Starting,
            failure: None,
            is_paused: false,
            table: LeaseTable::default(),
            acks: Vec::new(),
            unanswered: 0,
            running: 0,
            is_fetching: false,
            is_detached: false,
            epoch: 0,
            retry_at: None,
            late_until: None,
            tries: 0,
            last_topic: None,
            consumers: Vec::new(),
            watchers: Vec::new(),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, MemberState::Starting | MemberState::Active)
    }

    /// Whether the subscription waits for nothing of its own any more: no handler, no taken lease, no ack.
    pub(crate) fn is_idle(&self) -> bool {
        let busy = if self.options.has_handler { self.running } else { self.table.taken };
        busy == 0 && self.acks.is_empty() && self.unanswered == 0
    }

    /// A frame about this subscription, without its end.
    pub(crate) fn frame(&self, op: Op) -> String {
        encode::about(op, &self.options.topic, &self.options.group)
    }

    /// The `SUBSCRIBE` frame, without its end.
    pub(crate) fn subscribe_frame(&self) -> String {
        let mut text = self.frame(Op::Subscribe);
        text.push_str(r#","batch":true,"opts":"#);
        text.push_str(&self.options.opts);
        text
    }

    /// The server has accepted the subscription.
    pub(crate) fn subscribed(&mut self, now: Instant, effects: &mut LockEffects) {
        if self.state == MemberState::Starting {
            self.state = MemberState::Active;
        }
        (self.tries, self.retry_at) = (0, None);
        self.table.connected(now);
        effects.wake_all(&mut self.watchers);
    }

    /// The server has refused the subscription. Returns the error that ends it, if waiting does not help.
    pub(crate) fn refused(
        &mut self,
        error: ClientError,
        now: Instant,
        effects: &mut LockEffects,
    ) -> Option<ClientError> {
        // The answer to an earlier try was too slow: the server has this subscription.
        if error.is("already_subscribed") && self.tries > 0 {
            self.subscribed(now, effects);
            return None;
        }
        if !TRY_AGAIN.contains(&error.code()) {
            return Some(error);
        }
        self.tries += 1;
        self.retry_at =
            Some(now + error.retry_after().unwrap_or_else(|| Backoff::default().after(self.tries)));
        None
    }

    /// The connection ended before the `SUBSCRIBE` was answered: it may arrive later.
    pub(crate) fn unanswered_subscribe(&mut self, now: Instant) {
        self.late_until = Some(now + LATE_MAX);
    }

    /// Whether an error that ended the subscription comes from a late `SUBSCRIBE` of this member itself. Then it
    /// subscribes again, once: another member that has its name ends it the next time.
    pub(crate) fn ended_itself(&mut self, error: &ClientError, now: Instant) -> bool {
        error.is("member_fenced")
            && self.is_open()
            && self.late_until.take().is_some_and(|late_until| now < late_until)
    }

    /// Takes deliveries over; the new leases wait to be taken. Returns whether acks are to be sent.
    pub(crate) fn accept(
        &mut self,
        deliveries: Vec<DeliveryFields<'_>>,
        frame: &Bytes,
        now: Instant,
        effects: &mut LockEffects,
    ) -> bool {
        let mut has_acks = false;
        for DeliveryFields { event, ctx } in deliveries {
            let topic = match &self.last_topic {
                Some(topic) if topic.as_str() == event.topic => topic.clone(),
                _ => match event.topic.parse::<TopicName>() {
                    Ok(topic) => self.last_topic.insert(topic).clone(),
                    Err(error) => {
                        self.report(ClientError::new("bad_name", error.to_string()), effects);
                        continue;
                    }
                },
            };
            let event = RawDelivery::new(event, topic, frame);
            match self.table.accept(event, ctx, self.options.rules, now, effects) {
                Accepted::Fresh | Accepted::Unleased => effects.wake(self.consumers.pop()),
                Accepted::Renewed => {}
                Accepted::Finished(key) => {
                    self.acks.push(AckItem { key, slot: None });
                    has_acks = true;
                }
            }
        }
        has_acks
    }

    /// The leases to extend, in frames of at most `most`.
    pub(crate) fn due(&self, now: Instant) -> Vec<RowId> {
        match self.options.rules.is_extended {
            true => self.table.due(now, self.options.lease_max),
            false => Vec::new(),
        }
    }

    /// The partitions of this member changed.
    pub(crate) fn rebalanced(&self, fields: RebalanceFields<'_>, effects: &mut LockEffects) {
        let RebalanceFields { epoch, assigned, revoked, .. } = fields;
        if let Some(on_partitions) = self.options.on_partitions.clone() {
            effects.call(move || on_partitions(PartitionChange { epoch, assigned, revoked }));
        }
    }

    /// Tells the user about a failure that no call reports.
    pub(crate) fn report(&self, error: ClientError, effects: &mut LockEffects) {
        let on_error = Arc::clone(&self.options.on_error);
        effects.call(move || on_error(&error));
    }

    /// The connection ended: the server has taken all leases back. Returns the acks that were not sent.
    pub(crate) fn down(&mut self, now: Instant, effects: &mut LockEffects) -> Vec<AckItem> {
        self.epoch += 1;
        self.retry_at = None;
        self.is_fetching = false;
        self.table.lose_all(effects);
        let acks = std::mem::take(&mut self.acks);
        self.unknown(&acks, now);
        self.wake_all(effects);
        acks
    }

    /// It is unknown whether these acks arrived. Events that a handler has done are acked when they come again.
    pub(crate) fn unknown(&mut self, acks: &[AckItem], now: Instant) {
        if self.options.has_handler {
            acks.iter().for_each(|ack| self.table.remember(ack.key.clone(), now));
        }
    }

    /// Remembers the task to wake when a lease comes.
    pub(crate) fn wait_for_leases(&mut self, waker: &Waker) {
        // A stream has one reader, and only the waker of its last poll counts. Each handler is a task of its own.
        if !self.options.has_handler {
            self.consumers.clear();
        }
        crate::effects::remember(&mut self.consumers, waker);
    }

    pub(crate) fn wake_all(&mut self, effects: &mut LockEffects) {
        effects.wake_all(&mut self.watchers);
        effects.wake_all(&mut self.consumers);
    }
}
