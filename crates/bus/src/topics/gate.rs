//! The gates of topics: while a topic, or a group on it, is being deleted, nothing enters it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use promethean_model::{GroupName, IgnorePoison, TopicName};
use tokio::sync::Notify;

use super::Topics;
use crate::error::BusError;

/// A topic for all groups, or for one group.
type GateKey = (TopicName, Option<GroupName>);

/// The gates that are in use: one for each topic that is being entered or deleted.
#[derive(Debug, Default)]
pub(crate) struct TopicGates {
    gates: Mutex<HashMap<GateKey, Gate>>,
    /// Signals that an entry has ended.
    entered: Notify,
}

#[derive(Debug, Default)]
struct Gate {
    /// Entries that are under way. A deletion waits for them.
    entering: usize,
    closed: bool,
}

impl TopicGates {
    /// Refuses if the topic is being deleted, for all groups or for this one.
    pub(crate) fn check(&self, topic: &TopicName, group: &GroupName) -> Result<(), BusError> {
        let gates = self.lock();
        let closed = |key: &GateKey| gates.get(key).is_some_and(|gate| gate.closed);
        if closed(&(topic.clone(), None)) {
            return Err(BusError::TopicDeleted { topic: topic.clone() });
        }
        if closed(&(topic.clone(), Some(group.clone()))) {
            return Err(BusError::UnknownGroup { group: group.clone(), subject: topic.to_string() });
        }
        Ok(())
    }

    /// Begins an entry, which lasts until [`TopicGates::leave`]. Refused while the topic is being deleted.
    fn enter(&self, topic: &TopicName) -> Result<(), BusError> {
        let key = (topic.clone(), None);
        let mut gates = self.lock();
        if gates.get(&key).is_some_and(|gate| gate.closed) {
            return Err(BusError::TopicDeleted { topic: topic.clone() });
        }
        gates.entry(key).or_default().entering += 1;
        Ok(())
    }

    fn leave(&self, topic: &TopicName) {
        self.change(&(topic.clone(), None), |gate| gate.entering -= 1);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<GateKey, Gate>> {
        self.gates.lock().ignore_poison()
    }

    fn change(&self, key: &GateKey, change: impl FnOnce(&mut Gate)) {
        let mut gates = self.lock();
        let gate = gates.entry(key.clone()).or_default();
        change(gate);
        if gate.entering == 0 && !gate.closed {
            gates.remove(key);
        }
        drop(gates);
        self.entered.notify_waiters();
    }
}

/// An entry into one topic: the topic is not deleted until this is dropped.
pub(crate) struct TopicEntry {
    topics: Arc<Topics>,
    topic: TopicName,
}

impl TopicEntry {
    /// Refused while the topic is being deleted.
    pub(crate) fn new(topics: &Arc<Topics>, topic: &TopicName) -> Result<Self, BusError> {
        topics.gates.enter(topic)?;
        Ok(Self { topics: Arc::clone(topics), topic: topic.clone() })
    }
}

impl Drop for TopicEntry {
    fn drop(&mut self) {
        self.topics.gates.leave(&self.topic);
    }
}

/// The entries of one call into several topics.
pub(crate) struct TopicEntries<'a> {
    gates: &'a TopicGates,
    topics: BTreeSet<TopicName>,
}

impl<'a> TopicEntries<'a> {
    pub(crate) const fn new(gates: &'a TopicGates) -> Self {
        Self { gates, topics: BTreeSet::new() }
    }

    /// Refused while the topic is being deleted.
    pub(crate) fn add(&mut self, topic: &TopicName) -> Result<(), BusError> {
        if !self.topics.contains(topic) {
            self.gates.enter(topic)?;
            self.topics.insert(topic.clone());
        }
        Ok(())
    }

    pub(crate) fn clear(&mut self) {
        while let Some(topic) = self.topics.pop_first() {
            self.gates.leave(&topic);
        }
    }
}

impl Drop for TopicEntries<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A closed gate: nothing enters the topic, or the group on it, until this is dropped. The caller holds the lock of the
/// topic, or of the group, so there is one at a time.
pub(crate) struct ClosedGate {
    topics: Arc<Topics>,
    key: GateKey,
}

impl ClosedGate {
    /// Closes the gate and waits for the entries that are under way.
    pub(crate) async fn new(topics: &Arc<Topics>, topic: &TopicName, group: Option<&GroupName>) -> Self {
        let key = (topic.clone(), group.cloned());
        topics.gates.change(&key, |gate| gate.closed = true);
        let closed = Self { topics: Arc::clone(topics), key };
        loop {
            let entered = topics.gates.entered.notified();
            tokio::pin!(entered);
            // Enabled before the look, so that an entry that ends after the look wakes this task.
            entered.as_mut().enable();
            if topics.gates.lock().get(&closed.key).is_none_or(|gate| gate.entering == 0) {
                return closed;
            }
            entered.await;
        }
    }
}

impl Drop for ClosedGate {
    fn drop(&mut self) {
        self.topics.gates.change(&self.key, |gate| gate.closed = false);
    }
}
