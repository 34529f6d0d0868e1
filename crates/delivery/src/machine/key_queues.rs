//! The order of events within each key.

use std::collections::{BTreeMap, VecDeque};

use crate::config::Order;

/// The unfinished events of each key, in offset order. A key is known by its 64-bit hash. Two keys that
/// collide share one queue: that delays events, and keeps the order of both.
#[derive(Debug, Default)]
pub(super) struct KeyQueues {
    queues: BTreeMap<u64, KeyQueue>,
}

/// The events of one key. The head is a field of its own, so that a key with one event allocates nothing.
#[derive(Debug)]
pub(super) struct KeyQueue {
    pub(super) head: u64,
    pub(super) rest: VecDeque<u64>,
}

impl KeyQueues {
    /// The hash of an event's key; `None` if the event is not ordered.
    pub(super) fn hash(order: Order, key: Option<&[u8]>) -> Option<u64> {
        match order {
            Order::None => None,
            Order::Key => key.map(xxhash_rust::xxh3::xxh3_64),
        }
    }

    /// Whether no earlier event of the key is unfinished.
    pub(super) fn is_free(&self, key: Option<u64>) -> bool {
        key.is_none_or(|key| !self.queues.contains_key(&key))
    }

    /// Puts an event at the end of its queue. Offsets come in ascending order.
    pub(super) fn enter(&mut self, key: Option<u64>, offset: u64) {
        let Some(key) = key else { return };
        self.queues
            .entry(key)
            .and_modify(|queue| queue.rest.push_back(offset))
            .or_insert(KeyQueue { head: offset, rest: VecDeque::new() });
    }

    /// Removes an event from its queue; returns the new head if the head has changed.
    pub(super) fn leave(&mut self, key: Option<u64>, offset: u64) -> Option<u64> {
        let key = key?;
        let queue = self.queues.get_mut(&key)?;
        if queue.head != offset {
            queue.rest.retain(|waiting| *waiting != offset);
            return None;
        }
        match queue.rest.pop_front() {
            Some(next) => {
                queue.head = next;
                Some(next)
            }
            None => {
                self.queues.remove(&key);
                None
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.queues.clear();
    }

    /// The keys with waiting events.
    pub(super) fn blocked(&self) -> impl Iterator<Item = (u64, &KeyQueue)> {
        self.queues.iter().filter(|(_, queue)| !queue.rest.is_empty()).map(|(key, queue)| (*key, queue))
    }
}
