//! Queries: equality on declared fields, newest first.
//!
//! A query walks the index of which it binds the most leading fields. If it binds all fields of the index, the entries
//! have the wanted order and the walk stops at the end of the page. Otherwise the query reads every entry under the bound
//! fields and keeps the newest for its page. A query that no index helps walks the documents by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde_json::{Map, Value as Json};

use super::super::keys::collection::DeclaredCollection;
use super::super::keys::index::{self, EntryTail};
use super::super::value_bytes;
use super::super::{Flow, RowSpan, StateFault, StateSpace, View};
use super::{declared, doc_in};
use crate::port::{Collection, Direction, Doc, DocPage, DocQuery, ReadError};
use crate::value::Value;

pub(crate) fn query(view: &dyn View, query: &DocQuery) -> Result<DocPage, ReadError> {
    let declared = declared(view, &query.collection)?
        .ok_or_else(|| ReadError::UnknownCollection { collection: query.collection.clone() })?;
    check(&declared.collection, query)?;
    let walk = IndexWalk::choose(&declared, query);
    let search = DocSearch { view, declared: &declared, query };
    let mut docs = if walk.in_order { search.in_order(&walk)? } else { search.newest_of_all(&walk)? };
    let more = docs.len() > query.limit;
    docs.truncate(query.limit);
    Ok(DocPage { docs, more })
}

fn check(collection: &Collection, query: &DocQuery) -> Result<(), ReadError> {
    for (name, value) in &query.equals {
        let Some(field) = collection.fields.iter().find(|field| field.name == *name) else {
            return Err(ReadError::UnknownField {
                collection: collection.name.clone(),
                field: name.clone(),
                declared: collection.fields.iter().map(|f| f.name.as_str()).collect::<Vec<_>>().join(", "),
            });
        };
        if !value.is(field.kind) {
            return Err(ReadError::WrongType {
                collection: collection.name.clone(),
                field: name.clone(),
                kind: field.kind,
            });
        }
    }
    Ok(())
}

/// The part of an index that a query reads.
struct IndexWalk {
    prefix: Vec<u8>,
    /// Directions of the fields that the query does not bind; an entry has their values before its time.
    unbound: Vec<Direction>,
    /// Whether entries come newest first.
    in_order: bool,
}

impl IndexWalk {
    fn choose(declared: &DeclaredCollection, query: &DocQuery) -> Self {
        let bound = |index: &[(String, Direction)]| {
            index
                .iter()
                .map_while(|(name, direction)| Some((value_of(query, name)?, *direction)))
                .collect::<Vec<_>>()
        };
        let best = (1u16..)
            .zip(&declared.collection.indexes)
            .map(|(number, index)| (number, index, bound(&index.fields)))
            .max_by_key(|(number, index, bound)| {
                (bound.len(), bound.len() == index.fields.len(), Reverse(*number))
            })
            .filter(|(_, _, bound)| !bound.is_empty());
        match best {
            Some((number, index, bound)) => {
                let unbound: Vec<_> = index.fields.iter().skip(bound.len()).map(|(_, d)| *d).collect();
                let in_order = unbound.is_empty();
                Self { prefix: index::prefix(declared.number, number, bound), unbound, in_order }
            }
            None => Self {
                prefix: index::prefix(declared.number, index::BY_TIME, []),
                unbound: Vec::new(),
                in_order: true,
            },
        }
    }

    fn tail(&self, entry: &[u8]) -> Result<EntryTail, StateFault> {
        let mut len = self.prefix.len();
        for direction in &self.unbound {
            len += value_bytes::len(entry.get(len..).unwrap_or_default(), *direction)?;
        }
        Ok(index::decode_tail(entry, len)?)
    }
}

fn value_of<'a>(query: &'a DocQuery, field: &str) -> Option<&'a Value> {
    query.equals.iter().find(|(name, _)| name == field).map(|(_, value)| value)
}

struct DocSearch<'a> {
    view: &'a dyn View,
    declared: &'a DeclaredCollection,
    query: &'a DocQuery,
}

impl DocSearch<'_> {
    /// One document more than a page, to know whether there are more.
    fn wanted(&self) -> usize {
        self.query.limit.saturating_add(1)
    }

    fn in_order(&self, walk: &IndexWalk) -> Result<Vec<Doc>, StateFault> {
        let mut docs = Vec::new();
        let mut passed = 0;
        self.view.scan(StateSpace::Index, RowSpan::of(&walk.prefix), &mut |entry, _| {
            if let Some(doc) = self.matching(&walk.tail(entry)?.key)? {
                if passed < self.query.offset {
                    passed += 1;
                } else {
                    docs.push(doc);
                }
            }
            Ok(if docs.len() < self.wanted() { Flow::Continue(()) } else { Flow::Break(()) })
        })?;
        Ok(docs)
    }

    fn newest_of_all(&self, walk: &IndexWalk) -> Result<Vec<Doc>, StateFault> {
        let kept_max = self.query.offset.saturating_add(self.wanted());
        // The greatest is dropped first: the oldest, then the last by key.
        let mut kept: BinaryHeap<(Reverse<i64>, String)> = BinaryHeap::new();
        self.view.scan(StateSpace::Index, RowSpan::of(&walk.prefix), &mut |entry, _| {
            let tail = walk.tail(entry)?;
            let candidate = (Reverse(tail.ts), tail.key);
            let full = kept.len() >= kept_max;
            if full && kept.peek().is_some_and(|worst| candidate >= *worst) {
                return Ok(Flow::Continue(()));
            }
            if self.matching(&candidate.1)?.is_some() {
                kept.push(candidate);
                if full {
                    kept.pop();
                }
            }
            Ok(Flow::Continue(()))
        })?;
        let page = kept.into_sorted_vec().into_iter().skip(self.query.offset);
        page.filter_map(|(_, key)| doc_in(self.view, self.declared.number, &key).transpose()).collect()
    }

    /// The document, if it has the wanted values. An index entry is only a hint: it holds long texts cut.
    fn matching(&self, key: &str) -> Result<Option<Doc>, StateFault> {
        let Some(doc) = doc_in(self.view, self.declared.number, key)? else { return Ok(None) };
        if self.query.equals.is_empty() {
            return Ok(Some(doc));
        }
        let fields: Map<String, Json> = serde_json::from_str(&doc.body)
            .map_err(|error| StateFault::Engine(format!("document `{key}` is not JSON: {error}")))?;
        let equal = |(name, value): &(String, Value)| Value::of_field(&fields, name) == *value;
        Ok(self.query.equals.iter().all(equal).then_some(doc))
    }
}
