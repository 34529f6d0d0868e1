//! Entries that follow from others, computed again: index entries, counts, the next collection's number, and the list of
//! outbox rows by status.
//!
//! Redo names these as they were after all changes before it. Where some of those changes are lost, redo leaves old index
//! entries behind, and counts documents that are not there or leaves others out.

use std::collections::{BTreeMap, BTreeSet};

use super::check::check_collection;
use super::keys::collection::{self, DeclaredCollection};
use super::keys::counter::{self, StateCounter};
use super::keys::{doc, index, outbox};
use super::plan::docs::entries;
use super::{Flow, RowSpan, StateFault, StateSpace, View, read};

/// A function that takes a put or a delete (`None`).
pub(crate) type MendWrite<'a> =
    dyn FnMut(StateSpace, Vec<u8>, Option<Vec<u8>>) -> Result<(), StateFault> + 'a;

/// Calls `write` with what must change so that all entries agree, in an order that counts: a key may be deleted first and
/// put then. `view` must not see these writes. Returns how many collections have documents and no declaration.
pub(crate) fn mend(view: &dyn View, write: &mut MendWrite<'_>) -> Result<usize, StateFault> {
    let mut numbers = BTreeSet::new();
    view.scan(StateSpace::Meta, RowSpan::of(&collection::DROPPED_PREFIX), &mut |key, _| {
        numbers.insert(collection::decode_dropped_key(key)?);
        Ok(Flow::Continue(()))
    })?;
    let dropped = numbers.clone();
    view.scan(StateSpace::Meta, RowSpan::of(&collection::PREFIX), &mut |key, value| {
        let declared = collection::decode(key, value)?;
        let is_first = numbers.insert(declared.number);
        if dropped.contains(&declared.number) {
            // It was dropped under a name that it got by a change that is lost.
            write(StateSpace::Meta, key.to_vec(), None)?;
            write(StateSpace::Meta, collection::count_key(declared.number), None)?;
            return Ok(Flow::Continue(()));
        }
        if !is_first {
            // It has two names: a change that is lost had taken one of them away. The documents stay under the first.
            write(StateSpace::Meta, key.to_vec(), None)?;
            return Ok(Flow::Continue(()));
        }
        let mut is_wrong = false;
        check_collection(view, &declared, &mut |_| is_wrong = true)?;
        if is_wrong {
            mend_collection(view, &declared, write)?;
        }
        Ok(Flow::Continue(()))
    })?;
    let undeclared = drop_undeclared(view, &mut numbers, write)?;
    let next = numbers.last().map_or(0, |last| u64::from(*last) + 1);
    if read::counter(view, StateCounter::NextCollection)?.unwrap_or(0) < next {
        let key = counter::key(StateCounter::NextCollection);
        write(StateSpace::Meta, key, Some(counter::value(next)))?;
    }
    mend_outbox(view, write)?;
    Ok(undeclared)
}

/// Writes the index entries and the count of a collection again.
fn mend_collection(
    view: &dyn View,
    declared: &DeclaredCollection,
    write: &mut MendWrite<'_>,
) -> Result<(), StateFault> {
    view.scan(StateSpace::Index, RowSpan::of(&index::collection_prefix(declared.number)), &mut |key, _| {
        write(StateSpace::Index, key.to_vec(), None)?;
        Ok(Flow::Continue(()))
    })?;
    let mut docs = 0;
    view.scan(StateSpace::Docs, RowSpan::of(&doc::prefix(declared.number)), &mut |key, value| {
        docs += 1;
        let found = doc::decode(key, value).ok().and_then(|doc| entries(declared, &doc).ok());
        for entry in found.into_iter().flatten() {
            write(StateSpace::Index, entry, Some(Vec::new()))?;
        }
        Ok(Flow::Continue(()))
    })?;
    write(StateSpace::Meta, collection::count_key(declared.number), Some(counter::value(docs)))
}

/// Notes collections as dropped whose declarations are lost: nothing can reach their documents, and another collection
/// must not get their number. `numbers` holds the declared and the dropped ones. Returns how many it notes.
fn drop_undeclared(
    view: &dyn View,
    numbers: &mut BTreeSet<u32>,
    write: &mut MendWrite<'_>,
) -> Result<usize, StateFault> {
    let known = numbers.len();
    for space in [StateSpace::Docs, StateSpace::Index] {
        view.scan(space, RowSpan::of(b""), &mut |key, _| {
            let number = key.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
            if let Some(number) = number.filter(|number| numbers.insert(*number)) {
                write(StateSpace::Meta, collection::dropped_key(number), Some(Vec::new()))?;
                write(StateSpace::Meta, collection::count_key(number), None)?;
            }
            Ok(Flow::Continue(()))
        })?;
    }
    Ok(numbers.len() - known)
}

/// Lists every outbox row under its status, and under no other.
fn mend_outbox(view: &dyn View, write: &mut MendWrite<'_>) -> Result<(), StateFault> {
    view.scan(StateSpace::Meta, RowSpan::of(&outbox::STATUS_PREFIX), &mut |listed, _| {
        let key = outbox::key(outbox::decode_status_key(listed)?);
        let row = view.get(StateSpace::Meta, &key)?.map(|value| outbox::decode(&key, &value)).transpose()?;
        if row.is_none_or(|row| outbox::status_key(row.status, row.seq) != listed) {
            write(StateSpace::Meta, listed.to_vec(), None)?;
        }
        Ok(Flow::Continue(()))
    })?;
    let mut newest = BTreeMap::new();
    view.scan(StateSpace::Meta, RowSpan::of(&outbox::PREFIX), &mut |key, value| {
        let row = outbox::decode(key, value)?;
        newest.insert(row.id, row.seq);
        Ok(Flow::Continue(()))
    })?;
    view.scan(StateSpace::Meta, RowSpan::of(&outbox::PREFIX), &mut |key, value| {
        let row = outbox::decode(key, value)?;
        if newest.get(&row.id) != Some(&row.seq) {
            // The row was deleted before another of its id was added; that change is lost.
            write(StateSpace::Meta, key.to_vec(), None)?;
            write(StateSpace::Meta, outbox::status_key(row.status, row.seq), None)?;
            return Ok(Flow::Continue(()));
        }
        for (key, value) in [
            (outbox::status_key(row.status, row.seq), Vec::new()),
            (outbox::id_key(row.id), outbox::id_value(row.seq)),
        ] {
            if view.get(StateSpace::Meta, &key)?.as_ref() != Some(&value) {
                write(StateSpace::Meta, key, Some(value))?;
            }
        }
        Ok(Flow::Continue(()))
    })
}

#[cfg(test)]
mod tests {
    use promethean_model::{EventId, Offset, TopicName};
    use proptest::prelude::*;

    use super::*;
    use crate::port::{
        Class, Collection, CollectionOp, Direction, DocOp, DocPut, Expect, Field, Index, Keeping, OutboxOp,
        OutboxStatus, Replaces, StateOp,
    };
    use crate::state::plan::{self, PlanContext, TopicLookup};
    use crate::state::{Writes, check};
    use crate::value::FieldType;

    struct NoTopics;

    impl TopicLookup for NoTopics {
        fn end(&self, _: &TopicName) -> Offset {
            Offset::ZERO
        }

        fn change_in_two_steps(&self) -> bool {
            true
        }

        fn number(&self, _: &TopicName) -> Option<u32> {
            None
        }
    }

    fn declare(name: u8) -> StateOp {
        StateOp::Collection(CollectionOp::Declare(Collection {
            name: format!("c{name}").parse().unwrap(),
            keeping: Keeping::Durable,
            fields: vec![Field { name: "n".to_owned(), kind: FieldType::Number }],
            indexes: vec![Index { fields: vec![("n".to_owned(), Direction::Ascending)], unique: false }],
        }))
    }

    fn put(name: u8, key: u8, n: u8) -> StateOp {
        StateOp::Doc(DocOp::Put(DocPut {
            collection: format!("c{name}").parse().unwrap(),
            key: key.to_string(),
            ts: 0,
            version: None,
            body: format!("{{\"n\":{n}}}"),
            expect: Expect::Any,
            replaces: Replaces::Unknown,
        }))
    }

    fn outbox(id: u8, what: u8) -> StateOp {
        let id = EventId::from_bytes([id; 16]);
        let (topic, payload) = ("a".parse().unwrap(), "{}".to_owned());
        StateOp::Outbox(match what {
            0 => OutboxOp::Add { id, ts: 0, topic, key: None, meta: Vec::new(), payload },
            1 => OutboxOp::Delete { id },
            _ => OutboxOp::Status { id, status: OutboxStatus::ALL[usize::from(what) % 3], error: None },
        })
    }

    fn change() -> impl Strategy<Value = StateOp> {
        let collection = |name: u8| format!("c{name}").parse().unwrap();
        prop_oneof![
            2 => (0..3_u8).prop_map(declare),
            1 => (0..3_u8).prop_map(move |name| StateOp::Collection(CollectionOp::Drop(collection(name)))),
            1 => (0..3_u8, 0..3_u8).prop_map(move |(from, to)| {
                StateOp::Collection(CollectionOp::Rename { from: collection(from), to: collection(to) })
            }),
            8 => (0..3_u8, 0..4_u8, 0..4_u8).prop_map(|(name, key, n)| put(name, key, n)),
            2 => (0..3_u8, 0..4_u8).prop_map(move |(name, key)| {
                let (collection, key) = (collection(name), key.to_string());
                StateOp::Doc(DocOp::Delete { collection, key, expect: Expect::Any })
            }),
            4 => (0..3_u8, 0..5_u8).prop_map(|(id, what)| outbox(id, what)),
        ]
    }

    fn apply(state: &mut Writes, writes: Writes) {
        writes.into_iter().for_each(|(space, key, value)| state.set(space, key, value));
    }

    /// Mends a state. Returns whether anything changed.
    fn mended(state: &mut Writes) -> bool {
        let mut writes = Writes::default();
        mend(&*state, &mut |space, key, value| {
            writes.set(space, key, value);
            Ok(())
        })
        .unwrap();
        let is_changed = !writes.is_empty();
        apply(state, writes);
        is_changed
    }

    fn listed(state: &Writes) -> Vec<u64> {
        let rows = OutboxStatus::ALL.into_iter().flat_map(|status| {
            let rows = read::outbox(state, status, None, 100).unwrap();
            rows.into_iter().inspect(move |row| assert_eq!(row.status, status)).map(|row| row.seq)
        });
        rows.collect()
    }

    proptest! {
        #[test]
        fn redo_after_lost_changes_agrees(
            changes in prop::collection::vec(change(), 1..60),
            lost in (0_usize..60, 0_usize..60),
        ) {
            let (mut whole, mut found) = (Writes::default(), Writes::default());
            for (at, change) in changes.into_iter().enumerate() {
                let context = PlanContext { view: &whole, topics: &NoTopics };
                // A change that is refused leaves no trace.
                let Ok(writes) = plan::plan(Class::Durable(None), &[change], &context) else { continue };
                if !(lost.0..lost.0.saturating_add(lost.1)).contains(&at) {
                    apply(&mut found, writes.clone());
                }
                apply(&mut whole, writes);
            }
            prop_assert!(!mended(&mut whole), "a whole state agrees");
            mended(&mut found);
            let mut faults = Vec::new();
            check(&found, &mut |fault| faults.push(fault)).unwrap();
            prop_assert_eq!(faults, Vec::<String>::new());
            prop_assert!(!mended(&mut found), "a mended state agrees");
            let mut rows = listed(&found);
            rows.sort_unstable();
            rows.dedup();
            prop_assert_eq!(rows.len(), listed(&found).len(), "an outbox row has one status");
        }
    }
}
