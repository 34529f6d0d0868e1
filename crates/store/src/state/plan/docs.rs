//! Documents and the index entries that follow them.

use std::rc::Rc;

use promethean_model::CollectionName;
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::super::keys::collection::{self, Declared};
use super::super::keys::{counter, doc, index};
use super::super::{Flow, Space, Span, Staged, View, read};
use super::Declarations;
use super::collections::check_class;
use crate::port::{Class, CommitError, Doc, DocOp, DocPut, Expect, Index, Replaces};
use crate::value::Value;

pub(super) fn apply(
    staged: &mut Staged<'_>,
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
                    staged.delete(Space::Index, entry);
                }
                staged.delete(Space::Docs, doc::key(declared.number, key));
                recount(staged, declared.number, |docs| docs.saturating_sub(1))?;
            }
            Ok(())
        }
    }
}

fn put(staged: &mut Staged<'_>, declared: &Declared, put: &DocPut) -> Result<(), CommitError> {
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
            staged.delete(Space::Index, entry);
        }
    }
    for entry in new {
        staged.put(Space::Index, entry, Vec::new());
    }
    staged.put(Space::Docs, doc::key(declared.number, &doc.key), doc::value(&doc));
    if there.is_none() {
        recount(staged, declared.number, |docs| docs + 1)?;
    }
    Ok(())
}

/// What is there now.
fn replaced(staged: &Staged<'_>, declared: &Declared, put: &DocPut) -> Result<Option<Doc>, CommitError> {
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
    staged: &Staged<'_>,
    declarations: &mut Declarations,
    class: Class,
    name: &CollectionName,
) -> Result<Rc<Declared>, CommitError> {
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

/// Any object, of which nothing is kept.
#[derive(Deserialize)]
struct Passed {}

/// The fields of a document; none where no index asks for them.
fn parse(declared: &Declared, doc: &Doc) -> Result<Map<String, Json>, CommitError> {
    // Serde takes lists for structs, too.
    let is_object = doc.body.trim_start().starts_with('{');
    let parsed = match declared.collection.indexes.is_empty() && is_object {
        true => serde_json::from_str::<Passed>(&doc.body).map(|_| Map::new()),
        false => serde_json::from_str(&doc.body),
    };
    parsed.map_err(|error| CommitError::BadDocument {
        collection: declared.collection.name.clone(),
        key: doc.key.clone(),
        reason: format!("is not a JSON object ({error}); give a whole document"),
    })
}

/// Every index entry of a stored document.
pub(crate) fn entries(declared: &Declared, doc: &Doc) -> Result<Vec<Vec<u8>>, CommitError> {
    let fields = if declared.collection.indexes.is_empty() { Map::new() } else { parse(declared, doc)? };
    Ok(entries_of(declared, doc, &fields))
}

/// By time, and one for each declared index.
fn entries_of(declared: &Declared, doc: &Doc, fields: &Map<String, Json>) -> Vec<Vec<u8>> {
    let by_time = index::prefix(declared.number, index::BY_TIME, []);
    let declared_ones = numbered(declared).map(|(number, index)| {
        let (prefix, _) = prefix(declared.number, number, index, fields);
        index::key(prefix, doc.ts, &doc.key)
    });
    std::iter::once(index::key(by_time, doc.ts, &doc.key)).chain(declared_ones).collect()
}

fn numbered(declared: &Declared) -> impl Iterator<Item = (u16, &Index)> {
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
    staged: &Staged<'_>,
    declared: &Declared,
    key: &str,
    fields: &Map<String, Json>,
) -> Result<(), CommitError> {
    for (number, index) in numbered(declared).filter(|(_, index)| index.unique) {
        let (prefix, all_null) = prefix(declared.number, number, index, fields);
        if all_null {
            continue;
        }
        let mut existing = None;
        staged.scan(Space::Index, Span::of(&prefix), &mut |entry, _| {
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

fn recount(staged: &mut Staged<'_>, number: u32, change: impl Fn(u64) -> u64) -> Result<(), CommitError> {
    let docs = change(read::count(staged, number)?);
    staged.put(Space::Meta, collection::count_key(number), counter::value(docs));
    Ok(())
}
