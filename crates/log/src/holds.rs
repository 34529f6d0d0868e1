//! Events that retention and compaction leave alone, because somebody has still to read them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use promethean_model::TopicName;

use crate::poison::lock;

/// Who needs which topics from which offset on. In memory only: whoever needs events says so again after each open.
#[derive(Debug, Default)]
pub struct Holds {
    by_topic: Mutex<HashMap<TopicName, BTreeMap<Box<str>, u64>>>,
    settled: AtomicBool,
}

impl Holds {
    /// Nobody needs anything.
    pub fn new() -> Holds {
        Holds::default()
    }

    /// A holder needs a topic from an offset on, in place of what it needed before; with `None`, nothing of it.
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

    /// All who need something have said so. Until then, but for a minute at most, everything is taken to be needed.
    pub fn settle(&self) {
        self.settled.store(true, Ordering::Release);
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// The lowest offset of a topic that anybody needs.
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
