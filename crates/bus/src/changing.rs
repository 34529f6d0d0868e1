//! Changes of topics and groups: who may enter a topic now, one change of a name at a time, and changes that are done to
//! the end whoever still waits for them.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};

use promethean_model::{GroupName, IgnorePoison, TopicName};
use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncGuard, Notify, oneshot};

use crate::core::Core;
use crate::error::BusError;

/// Locks that topics share; a topic waits for another of its lock at most for a few commits.
const LOCKS: usize = 64;

/// A topic, for all groups or for one.
type Key = (TopicName, Option<GroupName>);

/// Gates of topics, and locks over what is set for them. As large as there are topics being entered or deleted.
#[derive(Debug)]
pub(crate) struct Changing {
    gates: Mutex<HashMap<Key, Gate>>,
    /// Signals that somebody has gone in or away.
    entered: Notify,
    locks: Vec<AsyncMutex<()>>,
}

#[derive(Debug, Default)]
struct Gate {
    /// Those on their way in, whom a deletion waits for.
    entering: usize,
    closed: bool,
}

impl Changing {
    /// Waits until nobody else changes what is set for the topic, or deletes it.
    pub(crate) async fn lock(&self, topic: &TopicName) -> Option<AsyncGuard<'_, ()>> {
        let hash = xxhash_rust::xxh3::xxh3_64(topic.as_str().as_bytes());
        let lock = self.locks.get(hash as usize % LOCKS)?;
        Some(lock.lock().await)
    }

    /// Whether the topic is being deleted, for all groups or for this one.
    pub(crate) fn check(&self, topic: &TopicName, group: &GroupName) -> Result<(), BusError> {
        let gates = self.gates();
        let closed = |key: &Key| gates.get(key).is_some_and(|gate| gate.closed);
        if closed(&(topic.clone(), None)) {
            return Err(BusError::TopicDeleted { topic: topic.clone() });
        }
        if closed(&(topic.clone(), Some(group.clone()))) {
            return Err(BusError::UnknownGroup { group: group.clone(), subject: topic.to_string() });
        }
        Ok(())
    }

    /// Somebody is on the way in, until [`Changing::leave`]; refused while the topic is being deleted.
    fn enter(&self, topic: &TopicName) -> Result<(), BusError> {
        let key = (topic.clone(), None);
        let mut gates = self.gates();
        if gates.get(&key).is_some_and(|gate| gate.closed) {
            return Err(BusError::TopicDeleted { topic: topic.clone() });
        }
        gates.entry(key).or_default().entering += 1;
        Ok(())
    }

    fn leave(&self, topic: &TopicName) {
        self.change(&(topic.clone(), None), |gate| gate.entering -= 1);
    }

    fn gates(&self) -> MutexGuard<'_, HashMap<Key, Gate>> {
        // Each change is one operation, so a panic elsewhere leaves it whole.
        self.gates.lock().ignore_poison()
    }

    fn change(&self, key: &Key, change: impl FnOnce(&mut Gate)) {
        let mut gates = self.gates();
        let gate = gates.entry(key.clone()).or_default();
        change(gate);
        if gate.entering == 0 && !gate.closed {
            gates.remove(key);
        }
        drop(gates);
        self.entered.notify_waiters();
    }
}

impl Default for Changing {
    fn default() -> Self {
        let locks = (0..LOCKS).map(|_| AsyncMutex::default()).collect();
        Self { gates: Mutex::default(), entered: Notify::new(), locks }
    }
}

/// On the way into a topic: it is not deleted until this is dropped.
pub(crate) struct Pass {
    core: Arc<Core>,
    topic: TopicName,
}

impl Pass {
    /// Refused while the topic is being deleted.
    pub(crate) fn new(core: &Arc<Core>, topic: &TopicName) -> Result<Self, BusError> {
        core.changing.enter(topic)?;
        Ok(Self { core: Arc::clone(core), topic: topic.clone() })
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.core.changing.leave(&self.topic);
    }
}

/// On the way into several topics, for one call.
pub(crate) struct Passes<'a> {
    changing: &'a Changing,
    topics: BTreeSet<TopicName>,
}

impl<'a> Passes<'a> {
    pub(crate) const fn new(changing: &'a Changing) -> Self {
        Self { changing, topics: BTreeSet::new() }
    }

    /// Refused while the topic is being deleted.
    pub(crate) fn add(&mut self, topic: &TopicName) -> Result<(), BusError> {
        if !self.topics.contains(topic) {
            self.changing.enter(topic)?;
            self.topics.insert(topic.clone());
        }
        Ok(())
    }

    pub(crate) fn clear(&mut self) {
        while let Some(topic) = self.topics.pop_first() {
            self.changing.leave(&topic);
        }
    }
}

impl Drop for Passes<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Keeps everybody out of a topic, or a group out of it, until it is dropped. One at a time: whoever makes it holds the
/// lock of the topic, or of the group.
pub(crate) struct Closed {
    core: Arc<Core>,
    key: Key,
}

impl Closed {
    /// Closes the gate and waits for those on their way in.
    pub(crate) async fn new(core: &Arc<Core>, topic: &TopicName, group: Option<&GroupName>) -> Self {
        let key = (topic.clone(), group.cloned());
        core.changing.change(&key, |gate| gate.closed = true);
        let closed = Self { core: Arc::clone(core), key };
        loop {
            let entered = core.changing.entered.notified();
            tokio::pin!(entered);
            // Before the look: whoever goes after it must wake us.
            entered.as_mut().enable();
            if core.changing.gates().get(&closed.key).is_none_or(|gate| gate.entering == 0) {
                return closed;
            }
            entered.await;
        }
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        self.core.changing.change(&self.key, |gate| gate.closed = false);
    }
}

/// Does a change on a task of the bus, so that what is committed and what follows from it stay together: a caller that
/// stops waiting stops neither.
pub(crate) async fn to_the_end<T: Send + 'static>(
    core: &Arc<Core>,
    change: impl Future<Output = Result<T, BusError>> + Send + 'static,
) -> Result<T, BusError> {
    if core.is_closed() {
        return Err(BusError::Closed);
    }
    let (answer, answered) = oneshot::channel();
    core.tasks.spawn(async move {
        // Whoever asked may have gone away.
        let _ = answer.send(change.await);
    });
    answered.await.unwrap_or(Err(BusError::Closed))
}
