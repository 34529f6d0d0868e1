//! Planned writes, and the state with such writes laid over it.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::view::{Flow, RowSpan, StateFault, StateSpace, View, Visit};

/// Puts and deletes (`None`) by key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Writes {
    spaces: BTreeMap<StateSpace, BTreeMap<Vec<u8>, Option<Vec<u8>>>>,
}

impl Writes {
    pub(crate) fn is_empty(&self) -> bool {
        self.spaces.values().all(BTreeMap::is_empty)
    }

    pub(crate) fn len(&self) -> usize {
        self.spaces.values().map(BTreeMap::len).sum()
    }

    pub(crate) fn set(&mut self, space: StateSpace, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.spaces.entry(space).or_default().insert(key, value);
    }

    /// The written value of a key. `None`: the key is not written. `Some(None)`: it is deleted.
    pub(crate) fn get(&self, space: StateSpace, key: &[u8]) -> Option<Option<&[u8]>> {
        self.spaces.get(&space)?.get(key).map(Option::as_deref)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (StateSpace, &[u8], Option<&[u8]>)> {
        self.spaces.iter().flat_map(|(space, writes)| {
            writes.iter().map(|(key, value)| (*space, key.as_slice(), value.as_deref()))
        })
    }

    pub(crate) fn into_iter(self) -> impl Iterator<Item = (StateSpace, Vec<u8>, Option<Vec<u8>>)> {
        self.spaces
            .into_iter()
            .flat_map(|(space, writes)| writes.into_iter().map(move |(key, value)| (space, key, value)))
    }

    fn range(&self, space: StateSpace, span: RowSpan<'_>) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let prefix = span.prefix.to_vec();
        self.spaces
            .get(&space)
            .into_iter()
            .flat_map(move |writes| writes.range::<[u8], _>((span.start(), Bound::Unbounded)))
            .take_while(move |(key, _)| key.starts_with(&prefix))
            .map(|(key, value)| (key.as_slice(), value.as_deref()))
    }
}

/// The state while a batch is planned: the writes of its changes so far, laid over the state before it.
pub(crate) struct StagedState<'a> {
    base: &'a dyn View,
    writes: Writes,
}

impl<'a> StagedState<'a> {
    pub(crate) fn new(base: &'a dyn View) -> Self {
        Self { base, writes: Writes::default() }
    }

    pub(crate) fn put(&mut self, space: StateSpace, key: Vec<u8>, value: Vec<u8>) {
        self.writes.set(space, key, Some(value));
    }

    pub(crate) fn delete(&mut self, space: StateSpace, key: Vec<u8>) {
        self.writes.set(space, key, None);
    }

    pub(crate) fn into_writes(self) -> Writes {
        self.writes
    }
}

impl View for StagedState<'_> {
    fn get(&self, space: StateSpace, key: &[u8]) -> Result<Option<Vec<u8>>, StateFault> {
        match self.writes.get(space, key) {
            Some(written) => Ok(written.map(<[u8]>::to_vec)),
            None => self.base.get(space, key),
        }
    }

    fn scan(&self, space: StateSpace, span: RowSpan<'_>, visit: &mut Visit<'_>) -> Result<(), StateFault> {
        merge_scan(self.writes.range(space, span), |visit| self.base.scan(space, span, visit), visit)
    }
}

/// Visits the keys of `over` and `base` as one ascending sequence. For a key of both, `over` wins; its deletes hide keys
/// of `base`.
pub(crate) fn merge_scan<'a>(
    over: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    base: impl FnOnce(&mut Visit<'_>) -> Result<(), StateFault>,
    visit: &mut Visit<'_>,
) -> Result<(), StateFault> {
    let mut over = over.peekable();
    let mut stopped = false;
    base(&mut |key, value| {
        while let Some((over_key, over_value)) = over.next_if(|(over_key, _)| *over_key <= key) {
            if let Some(over_value) = over_value
                && visit(over_key, over_value)?.is_break()
            {
                stopped = true;
                return Ok(Flow::Break(()));
            }
            if over_key == key {
                return Ok(Flow::Continue(()));
            }
        }
        let flow = visit(key, value)?;
        stopped = flow.is_break();
        Ok(flow)
    })?;
    for (key, value) in over {
        if stopped {
            break;
        }
        if let Some(value) = value {
            stopped = visit(key, value)?.is_break();
        }
    }
    Ok(())
}

impl View for Writes {
    fn get(&self, space: StateSpace, key: &[u8]) -> Result<Option<Vec<u8>>, StateFault> {
        Ok(Self::get(self, space, key).flatten().map(<[u8]>::to_vec))
    }

    fn scan(&self, space: StateSpace, span: RowSpan<'_>, visit: &mut Visit<'_>) -> Result<(), StateFault> {
        merge_scan(self.range(space, span), |_| Ok(()), visit)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn collect(view: &dyn View, span: RowSpan<'_>, limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut seen = Vec::new();
        view.scan(StateSpace::Meta, span, &mut |key, value| {
            seen.push((key.to_vec(), value.to_vec()));
            Ok(if seen.len() == limit { Flow::Break(()) } else { Flow::Continue(()) })
        })
        .unwrap();
        seen
    }

    proptest! {
        #[test]
        fn a_staged_scan_is_a_scan_of_the_result(
            base in prop::collection::btree_map("[ab]{1,3}", "[xy]", 0..12),
            over in prop::collection::btree_map("[ab]{1,3}", prop::option::of("[zw]"), 0..12),
            prefix in "[ab]{0,2}",
            after in prop::option::of("[ab]{1,3}"),
            limit in 1usize..6,
        ) {
            let mut below = Writes::default();
            let mut expected = base.clone();
            for (key, value) in &base {
                below.set(StateSpace::Meta, key.clone().into_bytes(), Some(value.clone().into_bytes()));
            }
            let mut staged = StagedState::new(&below);
            for (key, value) in &over {
                match value {
                    Some(value) => {
                        expected.insert(key.clone(), value.clone());
                        staged.put(StateSpace::Meta, key.clone().into_bytes(), value.clone().into_bytes());
                    }
                    None => {
                        expected.remove(key);
                        staged.delete(StateSpace::Meta, key.clone().into_bytes());
                    }
                }
            }
            let span = RowSpan { prefix: prefix.as_bytes(), after: after.as_ref().map(String::as_bytes) };
            let expected: Vec<_> = expected
                .into_iter()
                .filter(|(key, _)| key.starts_with(&prefix) && after.as_ref().is_none_or(|after| key > after))
                .take(limit)
                .map(|(key, value)| (key.into_bytes(), value.into_bytes()))
                .collect();
            prop_assert_eq!(collect(&staged, span, limit), expected);
        }
    }
}
