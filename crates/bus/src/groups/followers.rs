//! Groups whose consumer is the server itself: projectors and compactors.
//!
//! A follower reads its topic alone and in order, and commits its cursor together with the data that it
//! derives, so it has no delivery, no leases and no owner. Users see it as a group: it is listed, with its
//! lag and its dead letters. Its row marks it as a follower, also while it does not run, so that no consumer
//! ever moves its cursor.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use promethean_delivery::{Attempts, DeliveryFailure, FailureNote, Reason, Subject};
use promethean_jq::Pool;
use promethean_model::{GroupName, IgnorePoison, Offset, TopicName};
use promethean_store::port::{Batch, PageLimit, ReadError, RowOp, StoredEvent, Table};

use super::Groups;
use super::lookup::{group_rows, stored_row};
use super::unfinished::finish_named;
use crate::dead_letters::{self, LetterRow};
use crate::error::BusError;
use crate::publish::{self, Publish, Published};
use crate::rows::{AskedOptions, EventKey, GroupKey, GroupRow, StartPosition, group_prefix, topic_prefix};
use crate::topics::TopicEntry;

/// Rows of letters read at once.
const LETTERS_PAGE: usize = 500;

/// The followers of this process.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    running: Mutex<HashMap<(GroupName, TopicName), FollowerState>>,
    /// The followers for which retention may hold events back.
    stored: Mutex<Vec<(GroupName, TopicName)>>,
}

/// Holds the events of all stored followers back from retention, until it is known which of them run again.
pub(crate) async fn hold_stored(groups: &Groups, rows: &[(GroupKey, GroupRow)]) -> Result<(), BusError> {
    for (GroupKey { group, subject }, _) in rows.iter().filter(|(_, row)| row.follower) {
        let Subject::Topic(topic) = subject else { continue };
        let Some(cursor) = groups.base.store.cursor(group, topic).await? else { continue };
        groups.base.store.hold(topic, group, Some(cursor.floor));
        groups.followers.stored().push((group.clone(), topic.clone()));
    }
    Ok(())
}

/// What is known of a running follower.
#[derive(Debug, Clone, Default)]
pub(crate) struct FollowerState {
    /// The offset of its next event, once it has said so.
    position: Option<Offset>,
    pub(crate) failure: Option<FollowerFailure>,
}

/// Why a follower does not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowerFailure {
    /// The word for what it does.
    pub reason: Reason,
    /// The error.
    pub message: String,
}

/// A running follower: it reserves the group on the topic until it is dropped.
#[derive(Debug)]
pub struct Follower {
    groups: Arc<Groups>,
    group: GroupName,
    topic: TopicName,
}

/// Why and how often a follower failed at an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenUp {
    /// The error of the last attempt.
    pub reason: String,
    /// The number of attempts.
    pub attempts: u32,
    /// When the first attempt failed, epoch ms.
    pub first_ms: i64,
}

impl Followers {
    /// `None` if the follower does not run.
    pub(crate) fn get(&self, group: &GroupName, topic: &TopicName) -> Option<FollowerState> {
        self.lock().get(&(group.clone(), topic.clone())).cloned()
    }

    fn stored(&self) -> MutexGuard<'_, Vec<(GroupName, TopicName)>> {
        // Each change is one operation, so a panic elsewhere leaves it whole.
        self.stored.lock().ignore_poison()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(GroupName, TopicName), FollowerState>> {
        // Each change is one operation, so a panic elsewhere leaves it whole.
        self.running.lock().ignore_poison()
    }
}

impl Groups {
    /// Starts a follower, and creates its group if it is new. `from` is only shown to users: the caller keeps
    /// the cursor. Refused if consumers have a group of this name, or if the follower runs already.
    pub(crate) async fn follow(
        self: &Arc<Self>,
        group: &GroupName,
        topic: &TopicName,
        from: StartPosition,
    ) -> Result<Follower, BusError> {
        let (groups, group, topic) = (Arc::clone(self), group.clone(), topic.clone());
        let follow = async move {
            let _lock = groups.locks.lock(&group).await;
            let rows = group_rows(&groups, &group_prefix(&group)).await?;
            if let Some((key, _)) = rows.iter().find(|(_, row)| !row.follower) {
                return Err(BusError::GroupConflict {
                    group: group.clone(),
                    option: "kind",
                    asked: "projector".to_owned(),
                    actual: format!("consumers of `{}`", key.subject),
                });
            }
            finish_named(&groups, &group).await?;
            let subject = Subject::Topic(topic.clone());
            if stored_row(&groups, &group, &subject).await?.is_none() {
                let options = AskedOptions { from: Some(from), ..AskedOptions::default() }
                    .create(promethean_model::limits::ATTEMPTS_DEFAULT);
                let row = GroupRow { follower: true, ..GroupRow::new(options, groups.base.clock.wall_ms()) };
                let key = GroupKey::encode(&group, &subject);
                let op = RowOp::Put { table: Table::Groups, key, value: row.encode()?, must_be_new: true };
                groups.base.store.commit(Batch::new().with(op)).await?;
            }
            let mut running = groups.followers.lock();
            if running.contains_key(&(group.clone(), topic.clone())) {
                return Err(BusError::GroupBusy { group, members: 1 });
            }
            running.insert((group.clone(), topic.clone()), FollowerState::default());
            drop(running);
            // `release_absent_followers` uses this list to end the hold of a follower that does not run
            // again.
            groups.followers.stored().push((group.clone(), topic.clone()));
            Ok(Follower { groups: Arc::clone(&groups), group, topic })
        };
        self.base.run_to_end(follow).await
    }

    /// Sets the lag of all followers in the metrics. A follower that waits does not hear of new events, so that
    /// its lag is computed when it is asked for.
    pub(crate) fn measure_followers(&self) {
        let running = self.followers.lock().clone();
        for ((group, topic), state) in running {
            let Some(position) = state.position else { continue };
            let lag = self.base.store.durable_end(&topic).since(position);
            self.base.metrics.group(&topic, &group).lag.set(i64::try_from(lag).unwrap_or(i64::MAX));
        }
    }

    /// Ends the hold of followers that do not run. Called when all followers that continue have been started.
    pub(crate) fn release_absent_followers(&self) {
        self.followers.stored().retain(|(group, topic)| {
            let runs = self.followers.get(group, topic).is_some();
            if !runs {
                self.base.store.hold(topic, group, None);
            }
            runs
        });
    }
}

impl Follower {
    /// Holds events at and after this offset back from retention, as long as there is space. The hold stays
    /// when the follower is dropped, because the next follower has not read these events either.
    pub fn hold_from(&self, offset: Offset) {
        self.groups.base.store.hold(&self.topic, &self.group, Some(offset));
    }

    /// The group.
    pub fn group(&self) -> &GroupName {
        &self.group
    }

    /// The topic.
    pub fn topic(&self) -> &TopicName {
        &self.topic
    }

    /// Sets the failure that stops the follower, or clears it with `None`. Users see it in the group's
    /// progress.
    pub fn set_failure(&self, failure: Option<FollowerFailure>) {
        if let Some(shown) = self.groups.followers.lock().get_mut(&(self.group.clone(), self.topic.clone())) {
            shown.failure = failure;
        }
    }

    /// The thread pool on which this bus runs jq programs.
    pub fn jq_pool(&self) -> &Pool {
        &self.groups.schemas.jq_pool
    }

    /// Publishes derived events, each by itself and in order, also to system topics and without the rate
    /// limit. The id of each event should be computed from the event that it is derived from, so that
    /// publishing it again adds nothing.
    pub async fn publish_each(&self, events: Vec<Publish<'_>>) -> Vec<Result<Published, BusError>> {
        publish::publish_derived(&self.groups.schemas, events).await
    }

    /// Gives an event up: it becomes an open dead letter of the group. If it is one already or was one that is closed
    /// now, or if it is gone with its topic, nothing changes. Refused while the topic is being deleted.
    pub async fn bury(&self, event: &StoredEvent, given_up: &GivenUp) -> Result<(), BusError> {
        let groups = &self.groups;
        // The topic stays until the letter is written: the next topic of this name would inherit it.
        let _entry = TopicEntry::new(&groups.topics, &self.topic)?;
        if self.is_of_earlier_topic(event).await? {
            return Ok(());
        }
        let _changing = groups.dead_letters.lock(&self.topic, &self.group).await;
        let key = EventKey::encode(&self.group, &self.topic, event.offset);
        if groups.base.store.row(Table::DeadLetters, &key).await?.is_some() {
            return Ok(());
        }
        let (at, next) = (event.offset, event.offset.next());
        if !groups.dead_letters.closed(&self.topic, &self.group, at, next).await?.is_empty() {
            return Ok(());
        }
        let now = groups.base.clock.wall_ms();
        let attempts = Attempts {
            offset: event.offset,
            failed: given_up.attempts,
            last_failure: DeliveryFailure::Projection,
            first_ms: given_up.first_ms,
            last_ms: now,
            due_ms: now,
        };
        let note = FailureNote::new(&given_up.reason, Some(self.group.as_str())).map(Arc::new);
        let (letter, row) = dead_letters::post(&self.group, event, &attempts, 0, note.as_ref())?;
        let put = |row: LetterRow| RowOp::Put {
            table: Table::DeadLetters,
            key: key.clone(),
            value: row.encode(),
            must_be_new: false,
        };
        let mut batch = Batch::new().with(put(row));
        batch.events.extend(letter);
        match groups.base.store.commit(batch).await.map_err(BusError::from) {
            Ok(_) => {}
            // The dead-letter topic refuses the letter, so only the row is written.
            Err(
                BusError::TooLarge { .. } | BusError::TooManyTopics { .. } | BusError::KeyRequired { .. },
            ) => {
                let row = LetterRow::open(None, &attempts, 0, note);
                groups.base.store.commit(Batch::new().with(put(row))).await?;
            }
            Err(error) => return Err(error),
        }
        groups.dead_letters.add(&self.topic, &self.group, 1);
        groups.base.metrics.group(&self.topic, &self.group).dead_lettered.inc();
        Ok(())
    }

    /// Whether the topic of an event was deleted: the topic that has its name now ends before the event, or has another
    /// event in its place.
    async fn is_of_earlier_topic(&self, event: &StoredEvent) -> Result<bool, BusError> {
        let store = &self.groups.base.store;
        if store.durable_end(&self.topic) <= event.offset {
            return Ok(true);
        }
        match store.read(&self.topic, event.offset, PageLimit { events: 1, bytes: 1 }).await {
            Ok(page) => {
                Ok(page.events.iter().any(|there| there.offset == event.offset && there.id != event.id))
            }
            // The event cannot be read again; it is of this topic as far as can be told.
            Err(ReadError::CorruptRange(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Adds processed events to the metrics, and notes the offset of the next event, from which the lag follows.
    pub fn count(&self, events: u64, next: Offset) {
        let metrics = self.groups.base.metrics.group(&self.topic, &self.group);
        metrics.delivered.add(events);
        metrics.acked.add(events);
        if let Some(state) = self.groups.followers.lock().get_mut(&(self.group.clone(), self.topic.clone())) {
            state.position = Some(next);
        }
    }

    /// The events from one offset to another that the group gave up once: their letters are open, or were
    /// dropped or redriven to the topic.
    pub async fn given_up(&self, from: Offset, to: Offset) -> Result<BTreeSet<Offset>, BusError> {
        let prefix = topic_prefix(&self.group, &self.topic);
        let mut after = from.prev().map(|before| EventKey::encode(&self.group, &self.topic, before));
        let mut found = BTreeSet::new();
        // Open letters are read first: a letter that is closed meanwhile is found at least once.
        'pages: loop {
            let store = &self.groups.base.store;
            let rows = store.rows(Table::DeadLetters, &prefix, after.as_deref(), LETTERS_PAGE).await?;
            let Some(last) = rows.last() else { break };
            after = Some(last.key.clone());
            for row in &rows {
                let offset = EventKey::decode(&row.key, "DeadLetters")?.offset;
                if offset >= to {
                    break 'pages;
                }
                found.insert(offset);
            }
        }
        found.extend(self.groups.dead_letters.closed(&self.topic, &self.group, from, to).await?);
        Ok(found)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.groups.followers.lock().remove(&(self.group.clone(), self.topic.clone()));
    }
}
