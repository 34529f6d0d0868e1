//! The ordered maps of the memory store.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::state::{RowSpan, StateFault, StateSpace, View, Visit, Writes};

/// The state in memory: an ordered map of bytes for each space.
#[derive(Debug, Default)]
pub(super) struct Kv {
    spaces: BTreeMap<StateSpace, BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl Kv {
    pub(super) fn apply(&mut self, writes: Writes) {
        for (space, key, value) in writes.into_iter() {
            let map = self.spaces.entry(space).or_default();
            match value {
                Some(value) => map.insert(key, value),
                None => map.remove(&key),
            };
        }
    }
}

impl View for Kv {
    fn get(&self, space: StateSpace, key: &[u8]) -> Result<Option<Vec<u8>>, StateFault> {
        Ok(self.spaces.get(&space).and_then(|map| map.get(key)).cloned())
    }

    fn scan(&self, space: StateSpace, span: RowSpan<'_>, visit: &mut Visit<'_>) -> Result<(), StateFault> {
        let Some(map) = self.spaces.get(&space) else { return Ok(()) };
        for (key, value) in map.range::<[u8], _>((span.start(), Bound::Unbounded)) {
            if !key.starts_with(span.prefix) || visit(key, value)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}
