//! Verification of state: every entry decodes, and documents, index entries and counts agree.

use super::keys::collection::DeclaredCollection;
use super::keys::{self, doc, index};
use super::plan::docs::entries;
use super::{Flow, RowSpan, StateFault, StateSpace, View, read};

/// Reads all entries, calls `fault` for each that is wrong, and returns how many entries there are. Fails if the engine
/// cannot read on.
pub(crate) fn check(view: &dyn View, fault: &mut dyn FnMut(String)) -> Result<u64, StateFault> {
    let mut entries = 0;
    for space in StateSpace::ALL {
        view.scan(space, RowSpan::of(b""), &mut |key, value| {
            entries += 1;
            if let Err(malformed) = keys::check(space, key, value) {
                fault(format!("{malformed}: {} {}", space.name(), key.escape_ascii()));
            }
            Ok(Flow::Continue(()))
        })?;
    }
    view.scan(StateSpace::Meta, RowSpan::of(&keys::collection::PREFIX), &mut |key, value| {
        // A declaration that does not decode was reported above.
        if let Ok(declared) = keys::collection::decode(key, value) {
            check_collection(view, &declared, fault)?;
        }
        Ok(Flow::Continue(()))
    })?;
    Ok(entries)
}

/// Calls `fault` for each document, index entry and count of a collection that does not match the others.
pub(super) fn check_collection(
    view: &dyn View,
    declared: &DeclaredCollection,
    fault: &mut dyn FnMut(String),
) -> Result<(), StateFault> {
    let name = &declared.collection.name;
    let prefix = doc::prefix(declared.number);
    let mut docs: u64 = 0;
    view.scan(StateSpace::Docs, RowSpan::of(&prefix), &mut |key, value| {
        docs += 1;
        let expected = doc::decode(key, value).ok().and_then(|doc| entries(declared, &doc).ok());
        let Some(expected) = expected else {
            fault(format!("collection `{name}`: {} cannot be read", key.escape_ascii()));
            return Ok(Flow::Continue(()));
        };
        for entry in expected {
            if view.get(StateSpace::Index, &entry)?.is_none() {
                fault(format!("collection `{name}`: {} lacks an index entry", key.escape_ascii()));
            }
        }
        Ok(Flow::Continue(()))
    })?;
    // Every document has its entries, so any further entries belong to no document.
    let mut found: u64 = 0;
    let by_collection = index::collection_prefix(declared.number);
    view.scan(StateSpace::Index, RowSpan::of(&by_collection), &mut |_, _| {
        found += 1;
        Ok(Flow::Continue(()))
    })?;
    let wanted = docs * (1 + declared.collection.indexes.len() as u64);
    if found > wanted {
        fault(format!("collection `{name}`: {} index entries belong to no document", found - wanted));
    }
    let counted = read::count(view, declared.number)?;
    if counted != docs {
        fault(format!("collection `{name}`: {docs} documents, counted {counted}"));
    }
    Ok(())
}
