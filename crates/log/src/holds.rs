//! Holds: events that retention and compaction keep, because a holder still has to read them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use promethean_model::TopicName;

use crate::poison::lock;

/// The holders of each topic, and the offset from which on each needs events. Kept in memory only: holders
/// set their holds again after each open.
#[derive(Debug, Default)]
pub struct Holds {
    by_topic: Mutex<HashMap<TopicName, BTreeMap<Box<str>, u64>>>,
    settled: AtomicBool,
}

impl Holds {
    /// Makes a set without holds.
    pub fn new() -> Holds {
        Holds::default()
    }

    /// Sets the offset from which on a holder needs a topic; `None` removes the hold.
    pub fn set(&self, topic: &TopicName, holder: &str, from: Option<u64>) {
        let mut holds = lock(&self.by_topic);
        match (from, holds.get_mut(topic)) {
            (Some(from), Some(holders)) => match holders.get_mut(holder) {
                Some(held) => *held = from,
                None => _ = holders.insert(holder.into(), from),
            },
            (Some(from), None) => _ = holds.insert(topic.clone(), BTreeMap::from([(holder.into(), from)])),
            (None, Some(holders)) => {
                holders.remove(holder);
                if holders.is_empty() {
                    holds.remove(topic);
                }
            }
            (None, None) => {}
        }
    }

    /// Says that all holders have set their holds. Before that, for a minute at most, every event counts as
    /// held.
    pub fn settle(&self) {
        self.settled.store(true, Ordering::Release);
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// The lowest offset of a topic that a holder needs.
    pub fn lowest(&self, topic: &TopicName) -> Option<u64> {
        lock(&self.by_topic).get(topic)?.values().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_holder_counts_until_it_lets_go() {
        let holds = Holds::new();
        let topic: TopicName = "a".parse().unwrap();
        assert_eq!(holds.lowest(&topic), None);
        holds.set(&topic, "slow", Some(3));
        holds.set(&topic, "fast", Some(9));
        assert_eq!(holds.lowest(&topic), Some(3));
        holds.set(&topic, "slow", Some(20));
        assert_eq!(holds.lowest(&topic), Some(9));
        holds.set(&topic, "fast", None);
        holds.set(&topic, "stranger", None);
        assert_eq!(holds.lowest(&topic), Some(20));
        holds.set(&topic, "slow", None);
        assert_eq!(holds.lowest(&topic), None);
    }
}
