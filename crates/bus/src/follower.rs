//! Groups that the server itself works for: projectors and compactors.
//!
//! A follower reads its topic alone and in order, and commits its cursor together with what it derives, so there is no
//! delivery, no lease and no owner. It is a group for everyone who looks: listed, with its lag and its dead letters. Its
//! row says what it is, also while nothing runs it, so that no consumer ever moves its cursor.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use promethean_delivery::{Attempts, Failure, Subject};
use promethean_model::{GroupName, IgnorePoison, Offset, TopicName};
use promethean_store::port::{Batch, RowOp, StoredEvent, Table};

use crate::admin::{finish_named, group_rows};
use crate::bus::Bus;
use crate::changing::to_the_end;
use crate::core::Core;
use crate::dead_letter;
use crate::error::BusError;
use crate::publish::{Publish, Published};
use crate::publishing;
use crate::rows::{AskedOptions, EventKey, GroupKey, GroupRow, LetterRow, Start, group_prefix, topic_prefix};
use crate::subscribe::stored_row;

/// Those that run now, and why they do not get on, if so.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    running: Mutex<HashMap<(GroupName, TopicName), Option<String>>>,
    /// Those whose events may be held.
    stored: Mutex<Vec<(GroupName, TopicName)>>,
}

/// Holds the events of all followers there ever were, until it is known which of them go on.
pub(crate) async fn hold_stored(core: &Core, rows: &[(GroupKey, GroupRow)]) -> Result<(), BusError> {
    for (GroupKey { group, subject }, _) in rows.iter().filter(|(_, row)| row.follower) {
        let Subject::Topic(topic) = subject else { continue };
        let Some(cursor) = core.store.cursor(group, topic).await? else { continue };
        core.store.hold(topic, group, Some(cursor.floor));
        core.followers.stored().push((group.clone(), topic.clone()));
    }
    Ok(())
}

/// A group of the server's own on a topic, for as long as it is held.
#[derive(Debug)]
pub struct Follower {
    core: Arc<Core>,
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

impl Bus {
    /// Takes a group for the server itself, which is created if need be. `from` is for those who look at the group: the
    /// cursor is the caller's to keep. Refused if consumers have a group of this name, or if it is taken already.
    pub async fn follow(
        &self,
        group: &GroupName,
        topic: &TopicName,
        from: Start,
    ) -> Result<Follower, BusError> {
        let (core, group, topic) = (Arc::clone(&self.core), group.clone(), topic.clone());
        to_the_end(&self.core, async move {
            let _lock = core.members.lock(&group).await;
            let rows = group_rows(&core, &group_prefix(&group)).await?;
            if let Some((key, _)) = rows.iter().find(|(_, row)| !row.follower) {
                return Err(BusError::GroupConflict {
                    group: group.clone(),
                    option: "kind",
                    asked: "projector".to_owned(),
                    actual: format!("consumers of `{}`", key.subject),
                });
            }
            finish_named(&core, &group).await?;
            let subject = Subject::Topic(topic.clone());
            if stored_row(&core, &group, &subject).await?.is_none() {
                let options = AskedOptions { from: Some(from), ..AskedOptions::default() }
                    .create(promethean_model::limits::ATTEMPTS_DEFAULT);
                let row = GroupRow { follower: true, ..GroupRow::new(options, core.clock.wall_ms()) };
                let key = GroupKey::encode(&group, &subject);
                let op = RowOp::Put { table: Table::Groups, key, value: row.encode()?, must_be_new: true };
                core.store.commit(Batch::new().with(op)).await?;
            }
            let mut running = core.followers.lock();
            if running.contains_key(&(group.clone(), topic.clone())) {
                return Err(BusError::GroupBusy { group, members: 1 });
            }
            running.insert((group.clone(), topic.clone()), None);
            drop(running);
            // So that what it holds can be let go when it does not come again.
            core.followers.stored().push((group.clone(), topic.clone()));
            Ok(Follower { core: Arc::clone(&core), group, topic })
        })
        .await
    }
}

impl Bus {
    /// All followers that go on are there: retention no longer waits for the others.
    pub fn release_absent_followers(&self) {
        self.core.followers.stored().retain(|(group, topic)| {
            let runs = self.core.followers.get(group, topic).is_some();
            if !runs {
                self.core.store.hold(topic, group, None);
            }
            runs
        });
    }
}

impl Follower {
    /// Retention is to leave events at and after this offset alone, for as long as there is space. Stays so when the
    /// follower is dropped: whoever follows next has not read them either.
    pub fn hold_from(&self, offset: Offset) {
        self.core.store.hold(&self.topic, &self.group, Some(offset));
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
        if let Some(shown) = self.core.followers.lock().get_mut(&(self.group.clone(), self.topic.clone())) {
            *shown = failure;
        }
    }

    /// Publishes what was derived, each event by itself and in order: to topics of the system too, and whatever their
    /// rate. Give the events ids that follow from what they are derived from, so that doing it again adds nothing.
    pub async fn publish_each(&self, events: Vec<Publish<'_>>) -> Vec<Result<Published, BusError>> {
        publishing::publish_derived(&self.core, events).await
    }

    /// Gives an event up: it becomes an open dead letter of the group. One that is there already stays as it is.
    pub async fn bury(&self, event: &StoredEvent, given_up: &GivenUp) -> Result<(), BusError> {
        let core = &self.core;
        let _changing = core.letters.lock(&self.topic, &self.group).await;
        let key = EventKey::encode(&self.group, &self.topic, event.offset);
        if core.store.row(Table::DeadLetters, &key).await?.is_some() {
            return Ok(());
        }
        let now = core.clock.wall_ms();
        let attempts = Attempts {
            offset: event.offset,
            failed: given_up.attempts,
            last_failure: Failure::Projection,
            first_ms: given_up.first_ms,
            last_ms: now,
            due_ms: now,
        };
        let (letter, row) = dead_letter::post_because(&self.group, event, &attempts, 0, &given_up.reason)?;
        let put = |row: LetterRow| RowOp::Put {
            table: Table::DeadLetters,
            key: key.clone(),
            value: row.encode(),
            must_be_new: false,
        };
        let mut batch = Batch::new().with(put(row));
        batch.events.extend(letter);
        match core.store.commit(batch).await.map_err(BusError::from) {
            Ok(_) => {}
            // The dead-letter topic takes no letter; the row is what is left to see.
            Err(
                BusError::TooLarge { .. } | BusError::TooManyTopics { .. } | BusError::KeyRequired { .. },
            ) => {
                let row = LetterRow::open(None, &attempts, 0);
                core.store.commit(Batch::new().with(put(row))).await?;
            }
            Err(error) => return Err(error),
        }
        core.letters.add(&core.metrics, &self.topic, &self.group, 1);
        core.metrics.group(&self.topic, &self.group).dead_lettered.inc();
        Ok(())
    }

    /// Counts events that were worked on, and says how many are left.
    pub fn count(&self, events: u64, lag: u64) {
        let metrics = self.core.metrics.group(&self.topic, &self.group);
        metrics.delivered.add(events);
        metrics.acked.add(events);
        metrics.lag.set(i64::try_from(lag).unwrap_or(i64::MAX));
    }

    /// Events at or after an offset that were given up and are open dead letters still, at most 1,000.
    pub async fn buried_from(&self, offset: Offset) -> Result<Vec<Offset>, BusError> {
        let prefix = topic_prefix(&self.group, &self.topic);
        let after = offset.prev().map(|before| EventKey::encode(&self.group, &self.topic, before));
        let rows = self.core.store.rows(Table::DeadLetters, &prefix, after.as_deref(), 1_000).await?;
        rows.iter().map(|row| Ok(EventKey::decode(&row.key, "DeadLetters")?.offset)).collect()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.core.followers.lock().remove(&(self.group.clone(), self.topic.clone()));
    }
}
