//! Collections and documents by key.

use promethean_model::CollectionName;

use super::super::keys::collection::{self as keys, DeclaredCollection};
use super::super::keys::{counter as counter_keys, doc as doc_keys};
use super::super::{RowSpan, StateFault, StateSpace, View};
use super::take;
use crate::port::{CollectionInfo, Doc, ReadError};

pub(crate) fn declared(
    view: &dyn View,
    name: &CollectionName,
) -> Result<Option<DeclaredCollection>, StateFault> {
    let key = keys::key(name);
    let value = view.get(StateSpace::Meta, &key)?;
    Ok(value.map(|value| keys::decode(&key, &value)).transpose()?)
}

/// How many documents a collection has.
pub(crate) fn count(view: &dyn View, number: u32) -> Result<u64, StateFault> {
    let value = view.get(StateSpace::Meta, &keys::count_key(number))?;
    Ok(value.map_or(Ok(0), |value| counter_keys::decode(&value))?)
}

pub(crate) fn collection(
    view: &dyn View,
    name: &CollectionName,
) -> Result<Option<CollectionInfo>, StateFault> {
    declared(view, name)?.map(|declared| info(view, declared)).transpose()
}

pub(crate) fn collections(
    view: &dyn View,
    after: Option<&CollectionName>,
    limit: usize,
) -> Result<Vec<CollectionInfo>, StateFault> {
    let after = after.map(keys::key);
    let mut found = Vec::new();
    let span = RowSpan { prefix: &keys::PREFIX, after: after.as_deref() };
    take(view, StateSpace::Meta, span, limit, &mut |key, value| {
        found.push(info(view, keys::decode(key, value)?)?);
        Ok(())
    })?;
    Ok(found)
}

fn info(view: &dyn View, declared: DeclaredCollection) -> Result<CollectionInfo, StateFault> {
    let docs = count(view, declared.number)?;
    Ok(CollectionInfo { collection: declared.collection, docs })
}

pub(crate) fn doc(view: &dyn View, name: &CollectionName, key: &str) -> Result<Option<Doc>, StateFault> {
    match declared(view, name)? {
        Some(declared) => doc_in(view, declared.number, key),
        None => Ok(None),
    }
}

pub(crate) fn doc_in(view: &dyn View, number: u32, key: &str) -> Result<Option<Doc>, StateFault> {
    if key.len() > doc_keys::DOC_KEY_BYTES_MAX {
        // A longer key is refused when it is written.
        return Ok(None);
    }
    let key = doc_keys::key(number, key);
    let value = view.get(StateSpace::Docs, &key)?;
    Ok(value.map(|value| doc_keys::decode(&key, &value)).transpose()?)
}

pub(crate) fn docs_by_key(
    view: &dyn View,
    name: &CollectionName,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<Doc>, ReadError> {
    let number = declared(view, name)?
        .ok_or_else(|| ReadError::UnknownCollection { collection: name.clone() })?
        .number;
    let after = after.map(|after| doc_keys::key(number, after));
    let span = RowSpan { prefix: &doc_keys::prefix(number), after: after.as_deref() };
    let mut docs = Vec::new();
    take(view, StateSpace::Docs, span, limit, &mut |key, value| {
        docs.push(doc_keys::decode(key, value)?);
        Ok(())
    })?;
    Ok(docs)
}
