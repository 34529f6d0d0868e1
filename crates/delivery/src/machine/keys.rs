//! Which event of a key goes first.

use std::collections::{BTreeMap, VecDeque};

use crate::types::Order;

/// The unfinished events of each key, in offset order. Keys are told apart by a 64-bit hash: two that collide are
/// kept in one order, which delays and never breaks anything.
#[derive(Debug, Default)]
pub(super) struct Keys {
    lines: BTreeMap<u64, Line>,
}

/// The head lies beside the queue, so that a key with one event allocates no queue.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) head: u64,
    pub(super) rest: VecDeque<u64>,
}

impl Keys {
    /// The hash by which an event is ordered, if it is.
    pub(super) fn hash(order: Order, key: Option<&[u8]>) -> Option<u64> {
        match order {
            Order::None => None,
            Order::Key => key.map(xxhash_rust::xxh3::xxh3_64),
        }
    }

    /// Whether no earlier event of the key is unfinished.
    pub(super) fn is_free(&self, key: Option<u64>) -> bool {
        key.is_none_or(|key| !self.lines.contains_key(&key))
    }

    /// Puts an event last in its line. Offsets come in ascending.
    pub(super) fn enter(&mut self, key: Option<u64>, offset: u64) {
        let Some(key) = key else { return };
        self.lines
            .entry(key)
            .and_modify(|line| line.rest.push_back(offset))
            .or_insert(Line { head: offset, rest: VecDeque::new() });
    }

    /// Takes an event out of its line; returns the event that is first now, if another was before.
    pub(super) fn leave(&mut self, key: Option<u64>, offset: u64) -> Option<u64> {
        let key = key?;
        let line = self.lines.get_mut(&key)?;
        if line.head != offset {
            line.rest.retain(|waiting| *waiting != offset);
            return None;
        }
        match line.rest.pop_front() {
            Some(next) => {
                line.head = next;
                Some(next)
            }
            None => {
                self.lines.remove(&key);
                None
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.lines.clear();
    }

    /// The keys that have events waiting.
    pub(super) fn blocked(&self) -> impl Iterator<Item = (u64, &Line)> {
        self.lines.iter().filter(|(_, line)| !line.rest.is_empty()).map(|(key, line)| (*key, line))
    }
}
