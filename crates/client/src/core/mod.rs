//! The state of a client, behind one lock: what its tasks and its connection share.
//!
//! `members` changes subscriptions, `incoming` takes frames of the server, `time` does what time asks for.

mod incoming;
mod members;
mod time;

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tungstenite::Utf8Bytes;

use crate::answers::{AnswerSlot, Answers};
use crate::effects::LockEffects;
use crate::error::{ClientError, client_closed, lease_lost};
use crate::frames::decode::OkFields;
use crate::frames::encode::{self, FrameMark};
use crate::member::table::RowId;
#[cfg(test)]
use crate::member::table::TakenLease;
use crate::member::{AckItem, Member, OnError};
use crate::outbox::Outbox;

/// The most events in one `ACK` or `MODACK`.
const IDS_MAX: usize = 500;

/// Where the connection of a client stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionState {
    /// The client was not used yet.
    Idle,
    /// The client connects, for the first time or again.
    Connecting,
    /// The client is connected and its token is accepted.
    Open,
    /// The client was closed, or has given up.
    Closed,
}

/// What happens to the answer of a frame that is not a publish.
pub(crate) enum FrameWaiter {
    /// A call waits for it.
    Caller(oneshot::Sender<Result<OkFields, ClientError>>),
    /// A `FETCH`. The answer only tells that it came: its leases wait in the table of the member, so that a call
    /// that is dropped loses none.
    Fetch {
        member: u64,
        sender: oneshot::Sender<Result<(), ClientError>>,
    },
    Subscribe {
        member: u64,
        epoch: u64,
    },
    /// An `ACK` or `NACK`.
    Settle {
        member: u64,
        items: Vec<AckItem>,
        is_ack: bool,
    },
    /// A `MODACK`.
    Extend {
        member: u64,
        rows: Vec<RowId>,
        sent_at: Instant,
        by: Duration,
        slot: Option<AnswerSlot>,
    },
    /// The answer does not matter.
    Ignored,
}

/// What is shared.
pub(crate) struct Core {
    pub(crate) phase: ConnectionState,
    /// Whether the user closes the client: no new subscriptions.
    pub(crate) is_leaving: bool,
    /// Whether no handler runs any more in a client that is being closed: no new publishes.
    pub(crate) is_closing: bool,
    /// Why the client gave up, or why the last connection failed.
    pub(crate) failure: Option<ClientError>,
    pub(crate) outbox: Outbox,
    pub(crate) settled: Answers<Result<(), ClientError>>,
    pub(crate) members: HashMap<u64, Member>,
    on_error: OnError,
    /// Frames that are not publishes, to be written next.
    control: VecDeque<Utf8Bytes>,
    waiters: HashMap<u64, FrameWaiter>,
    requests: u64,
    member_count: u64,
    /// Members with acks to send.
    acking: Vec<u64>,
    /// The member that the last frame was for.
    last_member: u64,
    looked_at: Option<Instant>,
}

impl Core {
    pub(crate) fn new(outbox: Outbox, on_error: OnError) -> Self {
        Self {
            phase: ConnectionState::Idle,
            is_leaving: false,
            is_closing: false,
            failure: None,
            outbox,
            settled: Answers::default(),
            members: HashMap::new(),
            on_error,
            control: VecDeque::new(),
            waiters: HashMap::new(),
            requests: 0,
            member_count: 0,
            acking: Vec::new(),
            last_member: 0,
            looked_at: None,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.phase == ConnectionState::Open
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase == ConnectionState::Closed
    }

    /// The error of a call on a client that is over.
    pub(crate) fn over_error(&self) -> ClientError {
        self.failure.clone().filter(|_| self.is_over()).unwrap_or_else(client_closed)
    }

    /// Sends a frame whose answer goes to `waiter`. The connection must be open.
    pub(crate) fn request(&mut self, mut text: String, waiter: FrameWaiter) {
        self.requests += 1;
        encode::end(&mut text, FrameMark::Request(self.requests));
        self.waiters.insert(self.requests, waiter);
        self.control.push_back(text.into());
    }

    /// Tells the user about a failure that no call reports.
    pub(crate) fn report(&self, error: ClientError, effects: &mut LockEffects) {
        let on_error = Arc::clone(&self.on_error);
        effects.call(move || on_error(&error));
    }

    /// The connection is open: subscribes, and sends first what has no answer from the last connection. False if
    /// the client is closed.
    ///
    /// A subscription that is added later subscribes by itself, so the phase changes under the same lock.
    pub(crate) fn up(&mut self) -> bool {
        if self.is_over() {
            return false;
        }
        (self.phase, self.failure) = (ConnectionState::Open, None);
        let ids: Vec<u64> = self.members.keys().copied().collect();
        ids.into_iter().for_each(|id| self.subscribe(id));
        true
    }

    /// The connection ended.
    pub(crate) fn down(&mut self, error: &ClientError, too_long: bool, effects: &mut LockEffects) {
        self.control.clear();
        self.acking.clear();
        self.outbox.down(too_long, effects);
        let now = Instant::now();
        for (_, waiter) in std::mem::take(&mut self.waiters) {
            self.lost(waiter, error, now, effects);
        }
        let mut unsent = Vec::new();
        for member in self.members.values_mut() {
            unsent.append(&mut member.down(now, effects));
        }
        self.reject(unsent, &lease_lost(), effects);
    }

    /// The client has ended for good.
    pub(crate) fn end(&mut self, error: &ClientError, is_failure: bool, effects: &mut LockEffects) {
        self.down(error, false, effects);
        self.outbox.fail(error, effects);
        let ids: Vec<u64> = self.members.keys().copied().collect();
        for id in ids {
            self.end_member(id, is_failure.then(|| error.clone()), effects);
        }
    }

    /// The connection ended before the answer came.
    fn lost(&mut self, waiter: FrameWaiter, error: &ClientError, now: Instant, effects: &mut LockEffects) {
        match waiter {
            // A caller that stopped waiting needs no answer.
            FrameWaiter::Caller(sender) => drop(sender.send(Err(error.clone()))),
            FrameWaiter::Fetch { sender, .. } => drop(sender.send(Err(error.clone()))),
            FrameWaiter::Settle { member, items, is_ack } => {
                if let Some(member) = self.members.get_mut(&member) {
                    member.unanswered -= items.len();
                    if is_ack {
                        member.unknown(&items, now);
                    }
                }
                self.reject(items, error, effects);
            }
            FrameWaiter::Extend { slot: Some(slot), .. } => {
                effects.wake(self.settled.answer(slot, Err(error.clone())));
            }
            FrameWaiter::Subscribe { member, .. } => {
                if let Some(member) = self.members.get_mut(&member) {
                    member.unanswered_subscribe(now);
                }
            }
            FrameWaiter::Extend { .. } | FrameWaiter::Ignored => {}
        }
    }

    pub(super) fn reject(&mut self, items: Vec<AckItem>, error: &ClientError, effects: &mut LockEffects) {
        for slot in items.into_iter().filter_map(|item| item.slot) {
            effects.wake(self.settled.answer(slot, Err(error.clone())));
        }
    }

    /// The next frame to write.
    pub(crate) fn next_frame(&mut self, now: Instant) -> Option<Utf8Bytes> {
        while let Some(id) = self.acking.pop() {
            self.flush_acks(id);
        }
        self.control.pop_front().or_else(|| self.outbox.next(now))
    }
}
