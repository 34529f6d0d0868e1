//! Documents and their index entries.

use std::rc::Rc;

use promethean_model::CollectionName;
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::super::keys::collection::{self, DeclaredCollection};
use super::super::keys::{counter, doc, index};
use super::super::{Flow, RowSpan, StagedState, StateSpace, View, read};
use super::Declarations;
use super::collections::check_class;
use crate::port::{Class, CommitError, Doc, DocOp, DocPut, Expect, Index, Replaces};
use crate::value::Value;

pub(super) fn apply(
    staged: &mut StagedState<'_>,
    declarations: &mut Declarations,
    class: Class,
    op: &DocOp,
) -> Result<(), CommitError> {
    match op {
        DocOp::Put(put) => self::put(staged, &*declared(staged, declarations, class, &put.collection)?, put),
        DocOp::Delete { collection, key, expect } => {
            let declared = declared(staged, declarations, class, collection)?;
            let there = read::doc_in(staged, declared.number, key)?;
            check_expectation(collection, key, *expect, there.as_ref())?;
            if let Some(there) = there {
                for entry in entries(&declared, &there)? {
                    staged.delete(StateSpace::Index, entry);
                }
                staged.delete(StateSpace::Docs, doc::key(declared.number, key));
                recount(staged, declared.number, |docs| docs.saturating_sub(1))?;
            }
            Ok(())
        }
    }
}

fn put(staged: &mut StagedState<'_>, declared: &DeclaredCollection, put: &DocPut) -> Result<(), CommitError> {
    let there = replaced(staged, declared, put)?;
    check_expectation(&put.collection, &put.key, put.expect, there.as_ref())?;
    let doc = Doc {
        key: put.key.clone(),
        ts: put.ts,
        version: put.version,
        revision: there.as_ref().map_or(0, |there| there.revision) + 1,
        body: put.body.clone(),
    };
    let fields = parse(declared, &doc)?;
    check_unique(staged, declared, &doc.key, &fields)?;
    let old = there.as_ref().map(|there| entries(declared, there)).transpose()?.unwrap_or_default();
    let new = entries_of(declared, &doc, &fields);
    for entry in old {
        if !new.contains(&entry) {
            staged.delete(StateSpace::Index, entry);
        }
    }
    for entry in new {
        staged.put(StateSpace::Index, entry, Vec::new());
    }
    staged.put(StateSpace::Docs, doc::key(declared.number, &doc.key), doc::value(&doc));
    if there.is_none() {
        recount(staged, declared.number, |docs| docs + 1)?;
    }
    Ok(())
}

/// The document that a put replaces.
fn replaced(
    staged: &StagedState<'_>,
    declared: &DeclaredCollection,
    put: &DocPut,
) -> Result<Option<Doc>, CommitError> {
    let known = match &put.replaces {
        Replaces::Unknown => return Ok(read::doc_in(staged, declared.number, &put.key)?),
        Replaces::Nothing => None,
        Replaces::Doc { ts, revision, body } => {
            let (key, ts, revision, body) = (put.key.clone(), *ts, *revision, body.clone());
            Some(Doc { key, ts, version: None, revision, body })
        }
    };
    #[cfg(debug_assertions)]
    {
        let facts = |doc: Option<&Doc>| doc.map(|doc| (doc.ts, doc.revision, entries(declared, doc).ok()));
        let there = read::doc_in(staged, declared.number, &put.key)?;
        debug_assert_eq!(facts(there.as_ref()), facts(known.as_ref()), "document `{}`", put.key);
    }
    Ok(known)
}

fn declared(
    staged: &StagedState<'_>,
    declarations: &mut Declarations,
    class: Class,
    name: &CollectionName,
) -> Result<Rc<DeclaredCollection>, CommitError> {
    if let Some(known) = declarations.get(name) {
        return Ok(Rc::clone(known));
    }
    let declared = read::declared(staged, name)?
        .ok_or_else(|| CommitError::UnknownCollection { collection: name.clone() })?;
    check_class(class, &declared.collection)?;
    let declared = Rc::new(declared);
    declarations.insert(name.clone(), Rc::clone(&declared));
    Ok(declared)
}

fn check_expectation(
    collection: &CollectionName,
    key: &str,
    expect: Expect,
    there: Option<&Doc>,
) -> Result<(), CommitError> {
    let actual = there.map_or(0, |doc| doc.revision);
    let met = match expect {
        Expect::Any => true,
        Expect::Absent => actual == 0,
        Expect::Present => actual > 0,
        Expect::Revision(revision) => actual == revision,
    };
    if met {
        return Ok(());
    }
    Err(CommitError::DocConflict { collection: collection.clone(), key: key.to_owned(), actual })
}

/// A JSON object whose fields are checked and dropped.
#[derive(Deserialize)]
struct AnyObject {}

/// The fields of a document; no fields if the collection has no index.
fn parse(declared: &DeclaredCollection, doc: &Doc) -> Result<Map<String, Json>, CommitError> {
    // Serde also reads a list as a struct.
    let is_object = doc.body.trim_start().starts_with('{');
    let parsed = match declared.collection.indexes.is_empty() && is_object {
        true => serde_json::from_str::<AnyObject>(&doc.body).map(|_| Map::new()),
        false => serde_json::from_str(&doc.body),
    };
    parsed.map_err(|error| CommitError::BadDocument {
        collection: declared.collection.name.clone(),
        key: doc.key.clone(),
        reason: format!("is not a JSON object ({error}); give a whole document"),
    })
}

/// Every index entry of a stored document.
pub(crate) fn entries(declared: &DeclaredCollection, doc: &Doc) -> Result<Vec<Vec<u8>>, CommitError> {
    let fields = if declared.collection.indexes.is_empty() { Map::new() } else { parse(declared, doc)? };
    Ok(entries_of(declared, doc, &fields))
}

/// The entry by time, and one entry for each declared index.
fn entries_of(declared: &DeclaredCollection, doc: &Doc, fields: &Map<String, Json>) -> Vec<Vec<u8>> {
    let by_time = index::prefix(declared.number, index::BY_TIME, []);
    let declared_ones = numbered(declared).map(|(number, index)| {
        let (prefix, _) = prefix(declared.number, number, index, fields);
        index::key(prefix, doc.ts, &doc.key)
    });
    std::iter::once(index::key(by_time, doc.ts, &doc.key)).chain(declared_ones).collect()
}

fn numbered(declared: &DeclaredCollection) -> impl Iterator<Item = (u16, &Index)> {
    (1..).zip(&declared.collection.indexes)
}

/// The prefix of an index entry, and whether every value in it is null.
fn prefix(collection: u32, number: u16, index: &Index, fields: &Map<String, Json>) -> (Vec<u8>, bool) {
    let values: Vec<_> =
        index.fields.iter().map(|(name, direction)| (Value::of_field(fields, name), *direction)).collect();
    let all_null = values.iter().all(|(value, _)| *value == Value::Null);
    let prefix =
        index::prefix(collection, number, values.iter().map(|(value, direction)| (value, *direction)));
    (prefix, all_null)
}

fn check_unique(
    staged: &StagedState<'_>,
    declared: &DeclaredCollection,
    key: &str,
    fields: &Map<String, Json>,
) -> Result<(), CommitError> {
    for (number, index) in numbered(declared).filter(|(_, index)| index.unique) {
        let (prefix, all_null) = prefix(declared.number, number, index, fields);
        if all_null {
            continue;
        }
        let mut existing = None;
        staged.scan(StateSpace::Index, RowSpan::of(&prefix), &mut |entry, _| {
            let other = index::decode_tail(entry, prefix.len())?.key;
            if other == key {
                return Ok(Flow::Continue(()));
            }
            existing = Some(other);
            Ok(Flow::Break(()))
        })?;
        if let Some(existing) = existing {
            return Err(CommitError::UniqueViolation {
                collection: declared.collection.name.clone(),
                index: index.label(),
                key: key.to_owned(),
                existing,
            });
        }
    }
    Ok(())
}

fn recount(
    staged: &mut StagedState<'_>,
    number: u32,
    change: impl Fn(u64) -> u64,
) -> Result<(), CommitError> {
    let docs = change(read::count(staged, number)?);
    staged.put(StateSpace::Meta, collection::count_key(number), counter::value(docs));
    Ok(())
}
