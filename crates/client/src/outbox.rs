//! Publishes that wait to be sent or to be answered, in their order.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use promethean_model::EventId;
use promethean_model::limits::MESSAGE_BYTES_MAX_DEFAULT;
use tokio::time::Instant;
use tungstenite::Utf8Bytes;

use crate::answers::{AnswerSlot, Answers};
use crate::backoff::Backoff;
use crate::effects::{LockEffects, remember};
use crate::error::ClientError;
use crate::frames::decode::{OkFields, incomplete};
use crate::frames::encode::{self, FrameMark};
use crate::publish::{AckDurability, BatchReceipt, PublishReceipt};

/// Refusals after which the client itself tries again.
const TRY_AGAIN: &[&str] = &["auth_unavailable", "busy", "closed", "rate_limited", "unknown_outcome"];

/// How much may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutboxLimits {
    /// The most frames that are sent and not answered.
    pub(crate) outstanding_max: usize,
    /// The most frames that wait to be sent.
    pub(crate) queued_max: usize,
    /// The most bytes of frames in all.
    pub(crate) bytes_max: usize,
}

/// The answer to a publish.
#[derive(Debug)]
pub(crate) enum PublishAnswer {
    One(PublishReceipt),
    Many(BatchReceipt),
}

/// One `PUBLISH` frame that is not answered yet.
#[derive(Debug)]
struct PublishEntry {
    text: Utf8Bytes,
    /// The id of its first event.
    id: EventId,
    slot: AnswerSlot,
    overdue_at: Instant,
    state: EntryState,
    /// Whether it was sent at least once: then it may have been published.
    was_sent: bool,
    /// Whether a try ended without an answer that excludes that it was published.
    may_be_published: bool,
    tries: u32,
    /// The last answer that asked to try again, until the frame is sent again.
    refusal: Option<ClientError>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryState {
    Queued,
    Sent,
    /// Given up by the client, but its answer will still come.
    GivenUp,
    Done,
}

/// The publishes of a client.
pub(crate) struct Outbox {
    limits: OutboxLimits,
    pub(crate) answers: Answers<Result<PublishAnswer, ClientError>>,
    /// Entries in the order of their numbers. Done entries leave when they are the first.
    entries: VecDeque<PublishEntry>,
    /// The number of the first entry.
    first: u64,
    /// Where to look for the next entry to send.
    cursor: usize,
    queued: usize,
    outstanding: usize,
    bytes: usize,
    /// Nothing is sent before this moment: the server wants a pause.
    paused_until: Option<Instant>,
    wakers: Vec<Waker>,
}

/// A frame to queue, without its end.
pub(crate) struct FrameToPublish {
    pub(crate) text: String,
    pub(crate) id: EventId,
    /// When it is given up.
    pub(crate) overdue_at: Instant,
}

impl Outbox {
    pub(crate) fn new(limits: OutboxLimits) -> Self {
        Self {
            limits,
            answers: Answers::default(),
            entries: VecDeque::new(),
            first: 1,
            cursor: 0,
            queued: 0,
            outstanding: 0,
            bytes: 0,
            paused_until: None,
            wakers: Vec::new(),
        }
    }

    /// How many publishes have no answer yet.
    pub(crate) fn pending(&self) -> usize {
        self.queued + self.outstanding
    }

    /// Whether another publish can be queued.
    pub(crate) fn is_full(&self) -> bool {
        let entries_max = self.limits.queued_max.saturating_add(self.limits.outstanding_max);
        self.queued >= self.limits.queued_max
            || self.bytes > self.limits.bytes_max
            || self.entries.len() >= entries_max
    }

    /// Whether another publish would be sent at once.
    pub(crate) fn has_room(&self) -> bool {
        self.queued == 0 && self.outstanding < self.limits.outstanding_max && !self.is_full()
    }

    /// Remembers a task that waits for a change.
    pub(crate) fn watch(&mut self, waker: &Waker) {
        remember(&mut self.wakers, waker);
    }

    /// Wakes the tasks that wait for a change.
    pub(crate) fn wake_watchers(&mut self, effects: &mut LockEffects) {
        effects.wake_all(&mut self.wakers);
    }

    /// Queues a frame; the answer comes to the slot.
    pub(crate) fn push(&mut self, frame: FrameToPublish) -> Result<AnswerSlot, ClientError> {
        if self.is_full() {
            let waiting = self.pending();
            let message = format!(
                "{waiting} publishes wait for the server; await each one, or await `room()` before the next"
            );
            return Err(ClientError::new("outbox_full", message));
        }
        let FrameToPublish { mut text, id, overdue_at } = frame;
        encode::end(&mut text, FrameMark::Publish(self.first + self.entries.len() as u64));
        if text.len() > MESSAGE_BYTES_MAX_DEFAULT {
            let message = format!("the frame has {} bytes, more than 16 MiB; send less at once", text.len());
            return Err(ClientError::new("too_large", message));
        }
        let slot = self.answers.open();
        self.bytes += text.len();
        self.queued += 1;
        self.entries.push_back(PublishEntry {
            text: text.into(),
            id,
            slot,
            overdue_at,
            state: EntryState::Queued,
            was_sent: false,
            may_be_published: false,
            tries: 0,
            refusal: None,
        });
        Ok(slot)
    }

    /// The next frame to send, if one may be sent.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Utf8Bytes> {
        if self.queued == 0 || self.outstanding >= self.limits.outstanding_max {
            return None;
        }
        if self.paused_until.is_some_and(|until| until > now) {
            return None;
        }
        self.paused_until = None;
        while let Some(entry) = self.entries.get_mut(self.cursor) {
            self.cursor += 1;
            if entry.state == EntryState::Queued {
                entry.state = EntryState::Sent;
                entry.was_sent = true;
                entry.refusal = None;
                self.queued -= 1;
                self.outstanding += 1;
                return Some(entry.text.clone());
            }
        }
        None
    }

    /// When the pause ends that the server asked for.
    pub(crate) fn paused_until(&self) -> Option<Instant> {
        self.paused_until.filter(|_| self.queued > 0)
    }

    /// The server has done a publish.
    pub(crate) fn done(&mut self, number: u64, fields: OkFields, effects: &mut LockEffects) {
        if let Some(at) = self.answered(number) {
            self.finish(at, answer_of(fields), effects);
        }
        self.settle(effects);
    }

    /// The server has refused a publish.
    pub(crate) fn refused(
        &mut self,
        number: u64,
        error: ClientError,
        now: Instant,
        effects: &mut LockEffects,
    ) {
        // A batch over the limit is refused without a time to wait: it never fits.
        let is_final =
            !TRY_AGAIN.contains(&error.code()) || (error.is("rate_limited") && error.retry_after().is_none());
        if let Some(at) = self.answered(number)
            && let Some(entry) = self.entries.get_mut(at)
        {
            if is_final {
                let error = entry.refused(error);
                self.finish(at, Err(error), effects);
            } else {
                entry.may_be_published |= !error.has_no_side_effects();
                entry.tries += 1;
                entry.state = EntryState::Queued;
                self.queued += 1;
                self.cursor = self.cursor.min(at);
                let wait = error.retry_after().unwrap_or_else(|| Backoff::default().after(entry.tries));
                let until = now + wait.max(Duration::from_millis(1));
                self.paused_until = Some(self.paused_until.map_or(until, |earlier| earlier.max(until)));
                entry.refusal = Some(error);
            }
        }
        self.settle(effects);
    }

    /// The connection ended. What was sent is sent again, in the same order, on the next one. `too_long` says
    /// that the server closed it because of the length of a message.
    pub(crate) fn down(&mut self, too_long: bool, effects: &mut LockEffects) {
        if too_long {
            // Sent again, the frame that was too long would end every connection.
            let sent = self.entries.iter().enumerate().filter(|(_, entry)| entry.state == EntryState::Sent);
            if let Some(at) = sent.max_by_key(|(_, entry)| entry.text.len()).map(|(at, _)| at) {
                let message =
                    "the server closed the connection because a message is too long; send less at once";
                self.outstanding -= 1;
                self.finish(at, Err(ClientError::new("too_large", message)), effects);
            }
        }
        for entry in &mut self.entries {
            match entry.state {
                EntryState::Sent => {
                    entry.state = EntryState::Queued;
                    entry.may_be_published = true;
                    self.queued += 1;
                }
                EntryState::GivenUp => entry.state = EntryState::Done,
                EntryState::Queued | EntryState::Done => {}
            }
        }
        (self.outstanding, self.cursor, self.paused_until) = (0, 0, None);
        self.settle(effects);
    }

    /// Ends publishes whose time is over. `away` is why there is no connection.
    pub(crate) fn sweep(&mut self, now: Instant, away: Option<&ClientError>, effects: &mut LockEffects) {
        for at in 0..self.entries.len() {
            let Some(entry) = self.entries.get_mut(at) else { break };
            let is_waiting = matches!(entry.state, EntryState::Queued | EntryState::Sent);
            if !is_waiting || entry.overdue_at > now {
                continue;
            }
            let error = match (away, entry.refusal.take()) {
                (None, Some(refusal)) => entry.refused(refusal),
                (away, _) => {
                    let why = away.map_or("the server did not answer in time", ClientError::message);
                    entry.error("timeout", &format!("the publish was given up: {why}"))
                }
            };
            match entry.state {
                EntryState::Queued => {
                    self.queued -= 1;
                    self.finish(at, Err(error), effects);
                }
                // The frame keeps its place until its answer comes.
                _ => {
                    entry.state = EntryState::GivenUp;
                    let (slot, bytes) = (entry.slot, entry.text.len());
                    self.bytes -= bytes;
                    effects.wake(self.answers.answer(slot, Err(error)));
                }
            }
        }
        self.settle(effects);
    }

    /// Ends all publishes that have no answer.
    pub(crate) fn fail(&mut self, error: &ClientError, effects: &mut LockEffects) {
        self.first += self.entries.len() as u64;
        for entry in self.entries.drain(..) {
            if matches!(entry.state, EntryState::Queued | EntryState::Sent) {
                let error = entry.error(error.code(), error.message());
                effects.wake(self.answers.answer(entry.slot, Err(error)));
            }
        }
        (self.queued, self.outstanding, self.bytes, self.cursor) = (0, 0, 0, 0);
        effects.wake_all(&mut self.wakers);
    }

    /// The place of a sent entry that was answered; it is not outstanding any more.
    fn answered(&mut self, number: u64) -> Option<usize> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let entry = self.entries.get_mut(at)?;
        match entry.state {
            EntryState::Sent => {
                self.outstanding -= 1;
                Some(at)
            }
            EntryState::GivenUp => {
                // The caller stopped waiting; the frame only kept its place.
                self.outstanding -= 1;
                entry.state = EntryState::Done;
                None
            }
            EntryState::Queued | EntryState::Done => None,
        }
    }

    fn finish(&mut self, at: usize, answer: Result<PublishAnswer, ClientError>, effects: &mut LockEffects) {
        if let Some(entry) = self.entries.get_mut(at) {
            entry.state = EntryState::Done;
            self.bytes -= entry.text.len();
            entry.text = Utf8Bytes::default();
            effects.wake(self.answers.answer(entry.slot, answer));
        }
    }

    /// Drops done entries at the front, and wakes tasks that wait for room.
    fn settle(&mut self, effects: &mut LockEffects) {
        while self.entries.front().is_some_and(|entry| entry.state == EntryState::Done) {
            self.entries.pop_front();
            self.first += 1;
            self.cursor = self.cursor.saturating_sub(1);
        }
        if !self.wakers.is_empty() && !self.is_full() {
            effects.wake_all(&mut self.wakers);
        }
    }
}

impl PublishEntry {
    /// The refusal that ends a publish. It has the id unless the event is surely not published.
    fn refused(&self, error: ClientError) -> ClientError {
        if !self.may_be_published && error.has_no_side_effects() {
            return error;
        }
        error.with_side_effects(true).with_detail("id", self.id.to_string())
    }

    /// The error of a publish that ends without an answer. It has the id, so that the caller can try again with
    /// it.
    fn error(&self, code: &str, message: &str) -> ClientError {
        let outcome = match self.was_sent {
            true => format!("it may have been published; try again with id {}", self.id),
            false => "it was not sent".to_owned(),
        };
        ClientError::new(code.to_owned(), format!("{message}; {outcome}"))
            .with_side_effects(self.was_sent)
            .with_detail("id", self.id.to_string())
    }
}

fn answer_of(fields: OkFields) -> Result<PublishAnswer, ClientError> {
    let durability = fields.durability.unwrap_or(AckDurability::Unknown);
    if let Some(count) = fields.count {
        return Ok(PublishAnswer::Many(BatchReceipt {
            count,
            first_offset: fields.first_offset.unwrap_or_default(),
            last_offset: fields.last_offset.unwrap_or_default(),
            ids: fields.ids.unwrap_or_default(),
            duplicates: fields.duplicates.unwrap_or_default(),
            durability,
        }));
    }
    Ok(PublishAnswer::One(PublishReceipt {
        id: fields.id.ok_or_else(|| incomplete("id"))?,
        offset: fields.offset.ok_or_else(|| incomplete("offset"))?,
        ts: fields.ts.unwrap_or_default(),
        durability,
        partition: fields.partition,
        is_duplicate: fields.duplicate.unwrap_or(false),
    }))
}
