//! Durable batches: checked, handed to the log as one frame, and awaited.
//!
//! A batch without state goes straight to the log. A batch with state is checked against the coming state and handed over
//! under the sequencer, so that it is applied to the state it was checked against. No step under the sequencer waits for
//! a disk: the log accepts or refuses at once and writes later; the engine reads a few keys, nearly always from memory.
//! A batch that the log refuses as busy waits outside of the sequencer, for a bounded time.

use std::sync::Arc;

use promethean_log::{AppendError, Completion, LogBatch, LogReceipt, NewEvent, NewId, Topic};
use promethean_model::{Durability, Offset, TopicName};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::error::{commit_error, lookup_error};
use super::open_store::{OpenStore, Sequencer};
use super::overlay::ComingState;
use super::redo;
use super::room::RoomWait;
use crate::port::{AppendEvent, Batch, Class, CommitError, EventIdSource, Placed, Receipt, StateOp, Turn};
use crate::state::{Writes, plan};

/// Batches with more changes are planned on the blocking pool: each change reads the engine a few times.
const INLINE_CHANGES_MAX: usize = 64;

/// Receives the log's answer to a batch.
pub(super) type LogOutcome = oneshot::Receiver<Result<LogReceipt, AppendError>>;

/// A batch on its way to the log.
pub(super) struct Submission {
    pub(super) batch: Batch,
    pub(super) durability: Durability,
    /// Given back when the log is done with the batch, also if the caller waits no more.
    pub(super) permit: Arc<OwnedSemaphorePermit>,
}

/// Refuses a durability that this store does not offer.
pub(super) fn check_offered(asked: Durability) -> Result<(), CommitError> {
    if asked.is_embedded() {
        return Ok(());
    }
    Err(CommitError::NotOffered { asked: asked.as_str(), offered: "`fsync`, `os`" })
}

impl OpenStore {
    pub(super) async fn commit_durable(
        self: &Arc<Self>,
        batch: Batch,
        asked: Option<Durability>,
        turn: Option<Turn>,
    ) -> Result<Receipt, CommitError> {
        let durability = self.offered(asked)?;
        if batch.asks_nothing() {
            return Ok(Receipt { events: Vec::new(), durability: Some(durability) });
        }
        let mut room = RoomWait::default();
        let permit = Arc::new(room.admit(self, batch.bytes()).await?);
        let submission = Submission { batch, durability, permit };
        if submission.batch.state.is_empty() {
            let outcome = self.place(&submission, &mut room).await?;
            drop(turn);
            return receive(outcome).await;
        }
        if is_heavy(&submission.batch) {
            let (store, room) = (Arc::clone(self), room.begin(self));
            return super::blocking(move || store.commit_with_follow_up(submission, room)).await?;
        }
        let outcome = self.place_with_state(&submission, &mut room).await?;
        drop(turn);
        match outcome {
            Some(outcome) => receive(outcome).await,
            None => Ok(Receipt { events: Vec::new(), durability: Some(durability) }),
        }
    }

    /// Hands a batch without state to the log, and waits for room if there is none.
    async fn place(&self, submission: &Submission, room: &mut RoomWait) -> Result<LogOutcome, CommitError> {
        loop {
            let placed = self.hand_over(submission, None);
            if let Some(outcome) = room.again(self, placed).await? {
                return Ok(outcome);
            }
        }
    }

    /// Checks a batch with state and hands it to the log. While it waits for room, other batches may change the state,
    /// so each try checks it again. `None`: the batch changes nothing.
    pub(super) async fn place_with_state(
        &self,
        submission: &Submission,
        room: &mut RoomWait,
    ) -> Result<Option<LogOutcome>, CommitError> {
        loop {
            let mut sequencer = room.lock_sequencer(self).await?;
            let placed = self.submit_with_state(&mut sequencer, submission);
            drop(sequencer);
            if let Some(outcome) = room.again(self, placed).await? {
                return Ok(outcome);
            }
        }
    }

    /// The durability of a batch; refuses a durability that this store does not offer.
    pub(super) fn offered(&self, asked: Option<Durability>) -> Result<Durability, CommitError> {
        let durability = asked.unwrap_or(self.durability);
        check_offered(durability)?;
        Ok(durability)
    }

    /// Checks a batch with state and hands it over. `None`: the batch changes nothing.
    pub(super) fn submit_with_state(
        &self,
        sequencer: &mut Sequencer,
        submission: &Submission,
    ) -> Result<Option<LogOutcome>, CommitError> {
        self.overlay.check()?;
        let batch = &submission.batch;
        let coming = ComingState::new(&self.overlay, &self.engine);
        let context = plan::PlanContext { view: &coming, topics: self };
        let writes = plan::plan(batch.class, &batch.state, &context)?;
        self.submit_writes(sequencer, submission, &Arc::new(writes))
    }

    /// Hands over a batch whose state changes are these writes.
    pub(super) fn submit_writes(
        &self,
        sequencer: &mut Sequencer,
        submission: &Submission,
        writes: &Arc<Writes>,
    ) -> Result<Option<LogOutcome>, CommitError> {
        let batch = &submission.batch;
        if writes.is_empty() {
            // The state stays as it is; events and expectations still count.
            let rest = !batch.events.is_empty() || batch.has_expectations();
            return rest.then(|| self.hand_over(submission, None)).transpose();
        }
        let ticket = sequencer.ticket();
        let outcome = self.hand_over(submission, Some(&redo::encode(ticket, writes)))?;
        self.overlay.add(ticket, Arc::clone(writes));
        Ok(Some(outcome))
    }

    /// Encodes a batch and submits it to the log; a retry is submitted without its expectations.
    fn hand_over(&self, submission: &Submission, redo: Option<&[u8]>) -> Result<LogOutcome, CommitError> {
        let batch = &submission.batch;
        let mut new_topics = Vec::new();
        let encoded = self.encode(batch, redo, &mut new_topics, true)?;
        let accepted = match self.submit(&encoded, submission) {
            Err(AppendError::Conflict { .. } | AppendError::KeyConflict { .. })
                if self.is_retry(batch)? =>
            {
                let encoded = self.encode(batch, redo, &mut new_topics, false)?;
                self.submit(&encoded, submission)
            }
            other => other,
        };
        let outcome = accepted.map_err(commit_error)?;
        self.push_policies(&new_topics);
        Ok(outcome)
    }

    fn submit(&self, encoded: &LogBatch, submission: &Submission) -> Result<LogOutcome, AppendError> {
        let (done, outcome) = self.completion(&submission.permit);
        self.log.try_submit(encoded, submission.durability, done)?;
        Ok(outcome)
    }

    /// The function that the log calls when it is done, and the receiver of its answer.
    pub(super) fn completion(&self, permit: &Arc<OwnedSemaphorePermit>) -> (Completion, LogOutcome) {
        let (sender, outcome) = oneshot::channel();
        let (permit, overlay) = (Arc::clone(permit), Arc::clone(&self.overlay));
        let done = move |result: Result<LogReceipt, AppendError>| {
            if let Err(error @ (AppendError::UnknownOutcome { .. } | AppendError::Poisoned { .. })) = &result
            {
                // No batch may be written after this failure, derived batches included.
                overlay.fail(&error.to_string());
            }
            drop(permit);
            // The caller may have dropped its receiver; the batch is written all the same.
            let _ = sender.send(result);
        };
        (Box::new(done), outcome)
    }

    pub(super) fn encode(
        &self,
        batch: &Batch,
        redo: Option<&[u8]>,
        new_topics: &mut Vec<TopicName>,
        with_expectations: bool,
    ) -> Result<LogBatch, CommitError> {
        let mut encoded = LogBatch::new();
        let mut last: Option<Topic> = None;
        for event in &batch.events {
            let topic = match last.take().filter(|topic| *topic.name() == event.topic) {
                Some(topic) => topic,
                None => self.topic_for(&event.topic, new_topics)?,
            };
            encoded.push(&topic, new_event(event)).map_err(commit_error)?;
            last = Some(topic);
        }
        if with_expectations {
            for (topic, next) in &batch.expected_ends {
                encoded.expect_end(&self.topic_for(topic, new_topics)?, next.get());
            }
            for (topic, key, latest) in &batch.expected_keys {
                let topic = self.topic_for(topic, new_topics)?;
                encoded.expect_key(&topic, key.as_bytes(), latest.map(Offset::get));
            }
        }
        if let Some(redo) = redo {
            encoded.redo(redo);
        }
        Ok(encoded)
    }

    /// The topic of this name, created in the log if it does not exist.
    pub(super) fn topic_for(
        &self,
        name: &TopicName,
        new_topics: &mut Vec<TopicName>,
    ) -> Result<Topic, CommitError> {
        if let Some(topic) = self.log.topic(name) {
            return Ok(topic);
        }
        let topic = self.log.topic_or_create(name).map_err(commit_error)?;
        self.push_policy_to(&topic)?;
        new_topics.push(name.clone());
        Ok(topic)
    }

    /// Whether every event is in the log already. A publisher that got no answer tries again with the same expectations,
    /// which its own first try has made false.
    pub(super) fn is_retry(&self, batch: &Batch) -> Result<bool, CommitError> {
        for event in &batch.events {
            let EventIdSource::Given(id) = event.id else { return Ok(false) };
            let Some(topic) = self.log.topic(&event.topic) else { return Ok(false) };
            let Some(record) = self.log.find_id(&topic, id).map_err(lookup_error)? else { return Ok(false) };
            let there = record.view();
            if there.key != event.key.as_deref().map(str::as_bytes)
                || there.payload != event.payload.as_bytes()
            {
                return Ok(false);
            }
        }
        Ok(!batch.events.is_empty())
    }

    /// Commits and makes the changes of topics that follow, on a thread that may block. A caller that drops its future
    /// stops neither.
    fn commit_with_follow_up(
        &self,
        submission: Submission,
        mut room: RoomWait,
    ) -> Result<Receipt, CommitError> {
        let outcome = Handle::current().block_on(self.place_with_state(&submission, &mut room))?;
        let Submission { batch, durability, permit } = submission;
        let receipt = match outcome {
            Some(outcome) => received(outcome.blocking_recv())?,
            None => Receipt { events: Vec::new(), durability: Some(durability) },
        };
        // What follows may wait for long, and other batches may go on meanwhile.
        drop(permit);
        // The batch is durable. A change of topics that fails here is finished by a retry or at the next open.
        self.follow_up(&batch).map_err(|error| CommitError::UnknownOutcome { reason: error.to_string() })?;
        Ok(receipt)
    }
}

fn is_heavy(batch: &Batch) -> bool {
    let follows_up = |op: &StateOp| matches!(op, StateOp::Settings(_) | StateOp::Topic(_));
    batch.state.len() > INLINE_CHANGES_MAX || batch.state.iter().any(follows_up)
}

pub(super) fn new_event(event: &AppendEvent) -> NewEvent<'_> {
    NewEvent {
        id: match event.id {
            EventIdSource::Minted(id) => NewId::Minted(id),
            EventIdSource::Given(id) => NewId::Given(id),
        },
        ts: event.ts,
        key: event.key.as_deref().map(str::as_bytes),
        meta: &event.meta,
        payload: event.payload.as_bytes(),
        tombstone: event.payload == "null",
    }
}

async fn receive(outcome: LogOutcome) -> Result<Receipt, CommitError> {
    received(outcome.await)
}

pub(super) fn unheard(_: oneshot::error::RecvError) -> CommitError {
    CommitError::UnknownOutcome { reason: "the log stopped without an answer".to_owned() }
}

pub(super) fn placed(placed: &promethean_log::PlacedRecord) -> Placed {
    Placed { offset: Offset(placed.offset), ts: placed.ts, duplicate: placed.duplicate }
}

pub(super) fn received(
    outcome: Result<Result<LogReceipt, AppendError>, oneshot::error::RecvError>,
) -> Result<Receipt, CommitError> {
    let receipt = outcome.map_err(unheard)?.map_err(commit_error)?;
    Ok(Receipt { events: receipt.events.iter().map(placed).collect(), durability: Some(receipt.durability) })
}

/// An empty durable batch of the store itself.
pub(super) fn own_batch() -> Batch {
    Batch::of(Class::Durable(None))
}
