//! Groups that the server itself works for: projectors and compactors.
//!
//! A follower reads its topic alone and in order, and commits its cursor together with what it derives, so there is no
//! delivery, no lease and no owner. It is a group for everyone who looks: listed, with its lag and its dead letters. Its
//! row says what it is, also while nothing runs it, so that no consumer ever moves its cursor.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use promethean_delivery::{Attempts, Failure, Subject};
use promethean_jq::Pool;
use promethean_model::{GroupName, IgnorePoison, Offset, TopicName};
use promethean_store::port::{Batch, RowOp, StoredEvent, Table};

use super::Groups;
use super::lookup::{group_rows, stored_row};
use super::unfinished::finish_named;
use crate::dead_letters::{self, LetterRow};
use crate::error::BusError;
use crate::publish::{self, Publish, Published};
use crate::rows::{AskedOptions, EventKey, GroupKey, GroupRow, StartPosition, group_prefix, topic_prefix};

/// Those that run now, and why they do not get on, if so.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    running: Mutex<HashMap<(GroupName, TopicName), Option<String>>>,
    /// Those whose events may be held.
    stored: Mutex<Vec<(GroupName, TopicName)>>,
}

/// Holds the events of all followers there ever were, until it is known which of them go on.
pub(crate) async fn hold_stored(groups: &Groups, rows: &[(GroupKey, GroupRow)]) -> Result<(), BusError> {
    for (GroupKey { group, subject }, _) in rows.iter().filter(|(_, row)| row.follower) {
        let Subject::Topic(topic) = subject else { continue };
        let Some(cursor) = groups.base.store.cursor(group, topic).await? else { continue };
        groups.base.store.hold(topic, group, Some(cursor.floor));
        groups.followers.stored().push((group.clone(), topic.clone()));
    }
    Ok(())
}

/// A group of the server's own on a topic, for as long as it is held.
#[derive(Debug)]
pub struct Follower {
    groups: Arc<Groups>,
    group: GroupName,
    topic: TopicName,
}

/// Why and how often a follower failed at an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenUp {
    /// What went wrong the last time.
    pub reason: String,
    /// How often it was tried.
    pub attempts: u32,
    /// When it failed first, epoch ms.
    pub first_ms: i64,
}

impl Followers {
    /// Whether it runs, and what is wrong with it.
    pub(crate) fn get(&self, group: &GroupName, topic: &TopicName) -> Option<Option<String>> {
        self.lock().get(&(group.clone(), topic.clone())).cloned()
    }

    fn stored(&self) -> MutexGuard<'_, Vec<(GroupName, TopicName)>> {
        // As below.
        self.stored.lock().ignore_poison()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(GroupName, TopicName), Option<String>>> {
        // Each change is one operation, so a panic elsewhere leaves it whole.
        self.running.lock().ignore_poison()
    }
}

impl Groups {
    /// Takes a group for the server itself, which is created if need be. `from` is for those who look at the group: the
    /// cursor is the caller's to keep. Refused if consumers have a group of this name, or if it is taken already.
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
            running.insert((group.clone(), topic.clone()), None);
            drop(running);
            // So that what it holds can be let go when it does not come again.
            groups.followers.stored().push((group.clone(), topic.clone()));
            Ok(Follower { groups: Arc::clone(&groups), group, topic })
        };
        self.base.run_to_end(follow).await
    }

    /// All followers that go on are there: retention no longer waits for the others.
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
    /// Retention is to leave events at and after this offset alone, for as long as there is space. Stays so when the
    /// follower is dropped: whoever follows next has not read them either.
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

    /// Says why it does not get on, or that it does.
    pub fn set_failure(&self, failure: Option<String>) {
        if let Some(shown) = self.groups.followers.lock().get_mut(&(self.group.clone(), self.topic.clone())) {
            *shown = failure;
        }
    }

    /// The threads that jq programs of this bus run on.
    pub fn jq_pool(&self) -> &Pool {
        &self.groups.schemas.jq_pool
    }

    /// Publishes what was derived, each event by itself and in order: to topics of the system too, and whatever their
    /// rate. Give the events ids that follow from what they are derived from, so that doing it again adds nothing.
    pub async fn publish_each(&self, events: Vec<Publish<'_>>) -> Vec<Result<Published, BusError>> {
        publish::publish_derived(&self.groups.schemas, events).await
    }

    /// Gives an event up: it becomes an open dead letter of the group. One that is there already stays as it is.
    pub async fn bury(&self, event: &StoredEvent, given_up: &GivenUp) -> Result<(), BusError> {
        let groups = &self.groups;
        let _changing = groups.dead_letters.lock(&self.topic, &self.group).await;
        let key = EventKey::encode(&self.group, &self.topic, event.offset);
        if groups.base.store.row(Table::DeadLetters, &key).await?.is_some() {
            return Ok(());
        }
        let now = groups.base.clock.wall_ms();
        let attempts = Attempts {
            offset: event.offset,
            failed: given_up.attempts,
            last_failure: Failure::Projection,
            first_ms: given_up.first_ms,
            last_ms: now,
            due_ms: now,
        };
        let (letter, row) = dead_letters::post_because(&self.group, event, &attempts, 0, &given_up.reason)?;
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
            // The dead-letter topic takes no letter; the row is what is left to see.
            Err(
                BusError::TooLarge { .. } | BusError::TooManyTopics { .. } | BusError::KeyRequired { .. },
            ) => {
                let row = LetterRow::open(None, &attempts, 0);
                groups.base.store.commit(Batch::new().with(put(row))).await?;
            }
            Err(error) => return Err(error),
        }
        groups.dead_letters.add(&self.topic, &self.group, 1);
        groups.base.metrics.group(&self.topic, &self.group).dead_lettered.inc();
        Ok(())
    }

    /// Counts events that were worked on, and says how many are left.
    pub fn count(&self, events: u64, lag: u64) {
        let metrics = self.groups.base.metrics.group(&self.topic, &self.group);
        metrics.delivered.add(events);
        metrics.acked.add(events);
        metrics.lag.set(i64::try_from(lag).unwrap_or(i64::MAX));
    }

    /// Events at or after an offset that were given up and are open dead letters still, at most 1,000.
    pub async fn buried_from(&self, offset: Offset) -> Result<Vec<Offset>, BusError> {
        let prefix = topic_prefix(&self.group, &self.topic);
        let after = offset.prev().map(|before| EventKey::encode(&self.group, &self.topic, before));
        let rows = self.groups.base.store.rows(Table::DeadLetters, &prefix, after.as_deref(), 1_000).await?;
        rows.iter().map(|row| Ok(EventKey::decode(&row.key, "DeadLetters")?.offset)).collect()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.groups.followers.lock().remove(&(self.group.clone(), self.topic.clone()));
    }
}
