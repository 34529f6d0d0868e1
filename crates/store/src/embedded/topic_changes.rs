//! Changes of topics and their settings in the log: after a durable batch that asked for them, and at open.
//!
//! The state notes such a change first, as a topic intent; the log makes it in a second step. A crash between the two is
//! made good at the next open.

use std::sync::Arc;

use promethean_log::{AppendError, Topic, TopicPolicy};
use promethean_model::{Durability, IgnorePoison, TopicName, TopicSettings};
use tokio::runtime::Handle;

use super::commit::{LogOutcome, Submission, own_batch, received};
use super::error::{OpenError, commit_error};
use super::open_store::OpenStore;
use super::overlay::ComingState;
use super::room::RoomWait;
use crate::port::{Batch, CommitError, SettingsOp, StateOp, TopicOp};
use crate::state::keys::topic_intent::{self, TopicIntent};
use crate::state::{StateFault, StateSpace, Writes, read};

impl OpenStore {
    /// Makes the changes of topics and settings of a committed batch in the log. Blocks.
    pub(super) fn follow_up(&self, batch: &Batch) -> Result<(), CommitError> {
        for op in &batch.state {
            match op {
                StateOp::Settings(SettingsOp::Put(topic, _) | SettingsOp::Delete(topic)) => {
                    self.push_policy(topic)?
                }
                StateOp::Topic(TopicOp::Create(topic)) => {
                    self.carry_out(topic, false, &mut RoomWait::endless())?;
                }
                StateOp::Topic(TopicOp::Delete(topic)) => {
                    let wrote = batch.events.iter().any(|event| event.topic == *topic);
                    self.carry_out(topic, wrote, &mut RoomWait::endless())?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes in the log the change that is noted for a topic, and removes the note. `made_by_batch`: if the topic to
    /// delete did not exist when its deletion was noted, the events of the same batch have created it.
    ///
    /// In an open store this waits for room until it is made: a topic must go before an event is acknowledged that would
    /// go with it, and while the note stays, no cursor of the topic can be moved.
    fn carry_out(
        &self,
        name: &TopicName,
        made_by_batch: bool,
        room: &mut RoomWait,
    ) -> Result<(), CommitError> {
        // Two batches may have deleted one topic: the second of them finds the note gone.
        let _one_at_a_time = self.topic_changes.lock().ignore_poison();
        let Some(intent) = read::topic_intent(&self.engine, name)? else { return Ok(()) };
        // A topic of the same name with another number was created since.
        let is_meant = |number| intent.delete.map_or(made_by_batch, |noted| noted == number);
        if let Some(topic) = self.log.topic(name).filter(|topic| is_meant(topic.id())) {
            self.change_topic(room, || self.log.delete_topic(&topic))?;
            self.hub.reset(name);
        }
        if intent.create && self.log.topic(name).is_none() {
            let topic = self.change_topic(room, || self.log.create_topic(name))?;
            self.push_policy_to(&topic)?;
        }
        self.remove_intent(name, intent, room)
    }

    /// Changes a topic in the log, and waits for room if there is none. Blocks.
    fn change_topic<T>(
        &self,
        room: &mut RoomWait,
        change: impl Fn() -> Result<T, AppendError>,
    ) -> Result<T, CommitError> {
        loop {
            let changed = change().map_err(commit_error);
            if let Some(changed) = Handle::current().block_on(room.again(self, changed))? {
                return Ok(changed);
            }
        }
    }

    /// Removes the note of a change that is made. A later batch may have noted another change meanwhile; that note stays
    /// for the batch's own second step.
    fn remove_intent(
        &self,
        name: &TopicName,
        made: TopicIntent,
        room: &mut RoomWait,
    ) -> Result<(), CommitError> {
        let permit = self.admission.clone().try_acquire_many_owned(0);
        let permit = permit.map_err(|_| CommitError::Closed)?.into();
        let submission = Submission { batch: own_batch(), durability: Durability::Fsync, permit };
        let outcome = Handle::current().block_on(self.place_removal(&submission, name, made, room))?;
        if let Some(outcome) = outcome {
            received(outcome.blocking_recv())?;
        }
        Ok(())
    }

    /// Hands the removal of a note to the log, unless another note has replaced it. Waits for room if there is none.
    async fn place_removal(
        &self,
        submission: &Submission,
        name: &TopicName,
        made: TopicIntent,
        room: &mut RoomWait,
    ) -> Result<Option<LogOutcome>, CommitError> {
        let mut writes = Writes::default();
        writes.set(StateSpace::Meta, topic_intent::key(name), None);
        let writes = Arc::new(writes);
        loop {
            let mut sequencer = room.lock_sequencer(self).await?;
            let coming = ComingState::new(&self.overlay, &self.engine);
            if read::topic_intent(&coming, name)? != Some(made) {
                return Ok(None);
            }
            let placed = self.submit_writes(&mut sequencer, submission, &writes);
            drop(sequencer);
            if let Some(outcome) = room.again(self, placed).await? {
                return Ok(outcome);
            }
        }
    }

    /// Checks the state against the log and finishes the changes of topics that a crash interrupted.
    pub(super) fn finish_open(&self) -> Result<(), OpenError> {
        let failed = |reason: String| OpenError::Failed { reason };
        let fault = |fault: StateFault| OpenError::StateCorrupt { reason: fault.to_string() };
        self.check_cursors()?;
        for name in read::topics_with_intents(&self.engine).map_err(fault)? {
            // An open that finds no room is refused, so that the operator hears of it.
            let mut room = RoomWait::default();
            self.carry_out(&name, false, &mut room).map_err(|error| failed(error.to_string()))?;
        }
        const PAGE: usize = 1000;
        let mut after: Option<TopicName> = None;
        loop {
            let page = read::settings_page(&self.engine, after.as_ref(), PAGE).map_err(fault)?;
            for config in &page {
                self.push_policy(&config.topic).map_err(fault)?;
            }
            match page.last() {
                Some(last) => after = Some(last.topic.clone()),
                None => return Ok(()),
            }
        }
    }

    /// Refuses a cursor beyond the end of its topic, which would skip events to come: the log lost its tail, or log and
    /// state are from different times.
    fn check_cursors(&self) -> Result<(), OpenError> {
        use crate::state::plan::TopicLookup;
        let cursors = read::all_cursors(&self.engine)
            .map_err(|fault: StateFault| OpenError::StateCorrupt { reason: fault.to_string() })?;
        for found in cursors {
            let (floor, end) = (found.cursor.floor, self.end(&found.topic));
            if floor > end {
                return Err(OpenError::CursorAhead { group: found.group, topic: found.topic, floor, end });
            }
        }
        Ok(())
    }

    /// Gives the log the settings of a topic, if the topic exists.
    ///
    /// Called after a change of settings is applied and after a batch has created the topic: the later of the two calls
    /// finds both.
    pub(super) fn push_policy(&self, name: &TopicName) -> Result<(), StateFault> {
        match self.log.topic(name) {
            Some(topic) => self.push_policy_to(&topic),
            None => Ok(()),
        }
    }

    /// As `push_policy`, for topics that an accepted batch has created.
    pub(super) fn push_policies(&self, made: &[TopicName]) {
        for topic in made {
            if let Err(fault) = self.push_policy(topic) {
                // The batch is accepted; the engine that cannot be read is trusted no more.
                self.overlay.fail(&fault.to_string());
            }
        }
    }

    pub(super) fn push_policy_to(&self, topic: &Topic) -> Result<(), StateFault> {
        // Read and set under one lock: of two changes, the older must not be set last.
        let _one_at_a_time = self.policies.lock().ignore_poison();
        let settings = read::settings(&self.engine, topic.name())?.unwrap_or_default();
        self.log.set_policy(topic, policy(&settings));
        Ok(())
    }
}

/// The part of the settings that the log applies.
fn policy(settings: &TopicSettings) -> TopicPolicy {
    let retention = settings.retention;
    TopicPolicy {
        age_ms: retention.age.map(promethean_model::Millis::get),
        bytes: retention.bytes,
        count: retention.count,
        compacted: settings.compacted,
        dedupe_window_ms: settings.dedupe_window.get(),
        ..TopicPolicy::default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::blocked::{BatchKind, BlockedStore, Obstacle};
    use super::*;

    const BOUND: Duration = Duration::from_millis(100);

    /// A store in which the deletion of topic `a` is noted and not made.
    async fn noted() -> (BlockedStore, Batch) {
        let blocked = BlockedStore::new(BOUND);
        blocked.commit(BatchKind::Event).await.unwrap().unwrap();
        let batch = Batch::new().with(TopicOp::Delete(name()));
        let permit = blocked.store.admission.clone().try_acquire_many_owned(0).unwrap().into();
        let submission = Submission { batch: batch.clone(), durability: Durability::Fsync, permit };
        let outcome = blocked.store.place_with_state(&submission, &mut RoomWait::default()).await.unwrap();
        received(outcome.unwrap().await).unwrap();
        (blocked, batch)
    }

    fn name() -> TopicName {
        "a".parse().unwrap()
    }

    /// Carries the deletion out while there is an obstacle for longer than a batch waits for it.
    async fn waits_for(obstacle: Obstacle, hindered: BatchKind) {
        let (mut blocked, batch) = noted().await;
        blocked.set(obstacle).await;
        let store = Arc::clone(&blocked.store);
        let made = tokio::task::spawn_blocking(move || store.follow_up(&batch));
        // Each of these batches waits as long as a batch does.
        for _ in 0..6 {
            let refused = blocked.commit(hindered).await.unwrap().unwrap_err();
            assert_eq!(refused.code(), "busy", "{refused}");
        }
        assert!(!made.is_finished(), "the change has ended without room");
        blocked.remove(obstacle);
        made.await.unwrap().unwrap();
        assert!(blocked.store.log.topic(&name()).is_none(), "the topic is deleted");
        assert_eq!(read::topic_intent(&blocked.store.engine, &name()).unwrap(), None, "the note is gone");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_deletion_that_finds_no_room_is_made_when_there_is_room() {
        waits_for(Obstacle::Log, BatchKind::Event).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_note_that_finds_no_room_is_removed_when_there_is_room() {
        waits_for(Obstacle::Sequencer, BatchKind::State).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_open_that_finds_no_room_is_refused() {
        let (mut blocked, _) = noted().await;
        blocked.set(Obstacle::Log).await;
        let store = Arc::clone(&blocked.store);
        let refused = tokio::task::spawn_blocking(move || store.finish_open()).await.unwrap().unwrap_err();
        assert_eq!(refused.code(), "open_failed", "{refused}");
        blocked.remove(Obstacle::Log);
    }
}
