//! The versions of deleted documents, so that an older change does not bring a document back.
//!
//! They are documents of a collection beside the collection itself, which no list or hash shows. One of them, under
//! [`TIME_KEY`], is the time of the collection: the latest `ts` of an event with a versioned change since the first
//! versioned deletion. A version is kept for [`KEPT_MS`] of that time. The time follows from the events alone, so that
//! a rebuild forgets the same versions at the same events.

use std::collections::HashMap;

use promethean_model::CollectionName;
use promethean_store::port::{Doc, DocOp, DocPut, Expect, Replaces, StateOp};
use xxhash_rust::xxh3::xxh3_128;

/// How long the version of a deleted document is kept.
const KEPT_MS: i64 = 24 * 60 * 60 * 1_000;
/// The key of the collection's time.
pub(super) const TIME_KEY: &str = "t";
/// The longest key of a document that is a part of a key here; longer ones are hashed.
const KEY_BYTES_MAX: usize = 4 << 10;
/// An empty document: time and version are beside it.
const BODY: &str = "{}";

/// The version of a deleted document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeletedVersion {
    version: i64,
    /// The time of the collection at which it is forgotten.
    until: i64,
}

/// What is known of the deleted documents of a collection.
#[derive(Debug, Default)]
pub(super) struct DeletedVersions {
    /// The time of the collection; `None` before its first versioned deletion.
    time: Option<i64>,
    time_is_written: bool,
    /// By the key here; with whether the page has written it.
    by_key: HashMap<String, (Option<DeletedVersion>, bool)>,
    /// The key after which the next look for forgotten versions goes on.
    pub(super) swept: Option<String>,
}

/// The versions that decide whether a change is too old.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ChangeVersions {
    /// The version of the change.
    pub(super) given: Option<i64>,
    /// The version of the document.
    pub(super) there: Option<i64>,
    /// The version at which the document was deleted, if it has none of its own.
    pub(super) deleted: Option<i64>,
}

impl ChangeVersions {
    /// Whether the document has, or had when it was deleted, the version of the change or a later one.
    pub(super) fn is_older(&self) -> bool {
        self.given.zip(self.there.or(self.deleted)).is_some_and(|(given, there)| there >= given)
    }
}

/// The key of a document's version.
pub(super) fn key_of(key: &str) -> String {
    if key.len() <= KEY_BYTES_MAX { format!("d{key}") } else { format!("h{:032x}", xxh3_128(key.as_bytes())) }
}

impl DeletedVersions {
    /// What the store has of the collection: its time.
    pub(super) fn read(time: Option<&Doc>) -> Self {
        Self { time: time.map(|doc| doc.ts), ..Self::default() }
    }

    pub(super) fn knows(&self, key: &str) -> bool {
        self.by_key.contains_key(&key_of(key))
    }

    /// Adds what the store has of a document.
    pub(super) fn add(&mut self, key: &str, stored: Option<&Doc>) {
        let read = |doc: &Doc| Some(DeletedVersion { version: doc.version?, until: doc.ts });
        self.by_key.insert(key_of(key), (stored.and_then(read), false));
    }

    /// An event of this time has a versioned change: the time goes on, if there is one.
    pub(super) fn pass(&mut self, ts: i64) {
        if let Some(time) = &mut self.time
            && *time < ts
        {
            *time = ts;
            self.time_is_written = true;
        }
    }

    /// The version of a deleted document, if it is not forgotten.
    pub(super) fn get(&self, key: &str) -> Option<i64> {
        let (deleted, _) = self.by_key.get(&key_of(key))?;
        deleted.filter(|deleted| self.time.is_some_and(|time| time < deleted.until)).map(|it| it.version)
    }

    pub(super) const fn has_time(&self) -> bool {
        self.time.is_some()
    }

    /// An event of this time deleted a document. A deletion that has no version keeps the version of the document.
    pub(super) fn put(&mut self, key: &str, versions: &ChangeVersions, ts: i64) {
        let known = [versions.given, versions.there, versions.deleted];
        let Some(version) = known.into_iter().flatten().max() else { return };
        let time = self.time.map_or(ts, |time| time.max(ts));
        (self.time, self.time_is_written) = (Some(time), true);
        let deleted = DeletedVersion { version, until: time.saturating_add(KEPT_MS) };
        self.by_key.insert(key_of(key), (Some(deleted), true));
    }

    /// The document has a version of its own again.
    pub(super) fn remove(&mut self, key: &str) {
        if let Some((deleted, written)) = self.by_key.get_mut(&key_of(key))
            && deleted.take().is_some()
        {
            *written = true;
        }
    }

    /// The time, if the page has moved it.
    pub(super) fn moved_time(&self) -> Option<i64> {
        self.time.filter(|_| self.time_is_written)
    }

    /// Whether a stored version is forgotten. One that is in memory may be newer than what the store has: a commit may be
    /// under way.
    pub(super) fn is_forgotten(&self, stored: &Doc) -> bool {
        let until = match self.by_key.get(&stored.key) {
            Some((Some(deleted), false)) => deleted.until,
            Some(_) => return false,
            None => stored.ts,
        };
        stored.key != TIME_KEY && self.time.is_some_and(|time| time >= until)
    }

    /// The writes of this page, in a collection of this name.
    pub(super) fn ops(&mut self, collection: &CollectionName) -> Vec<StateOp> {
        let put = |key: String, ts, version| -> StateOp {
            let (collection, body, expect) = (collection.clone(), BODY.to_owned(), Expect::Any);
            DocPut { collection, key, ts, version, body, expect, replaces: Replaces::Unknown }.into()
        };
        let mut ops = Vec::new();
        if let Some(time) = self.moved_time() {
            ops.push(put(TIME_KEY.to_owned(), time, None));
        }
        for (key, (deleted, written)) in &mut self.by_key {
            if std::mem::take(written) {
                ops.push(match deleted {
                    Some(deleted) => put(key.clone(), deleted.until, Some(deleted.version)),
                    None => {
                        let (collection, key) = (collection.clone(), key.clone());
                        DocOp::Delete { collection, key, expect: Expect::Any }.into()
                    }
                });
            }
        }
        self.time_is_written = false;
        ops
    }

    /// How many versions are in memory.
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }
}
