//! The hash of what collections hold.

use std::collections::VecDeque;

use promethean_model::CollectionName;
use promethean_store::port::{ReadError, Store};
use xxhash_rust::xxh3::Xxh3;

/// Documents read at once.
const PAGE: usize = 1_000;

/// Hashes the keys and bodies of collections, by key. Two that hold the same have the same hash, whatever they are
/// called.
pub async fn state_hash<'a>(
    store: &dyn Store,
    collections: impl IntoIterator<Item = &'a CollectionName>,
) -> Result<u128, ReadError> {
    let mut hashing = Hashing::new(collections.into_iter().cloned());
    loop {
        if let Some(hash) = hashing.step(store).await? {
            return Ok(hash);
        }
    }
}

/// A hash on its way, for those who have something else to do meanwhile. What is hashed must stay as it is.
pub(crate) struct Hashing {
    hash: Xxh3,
    left: VecDeque<CollectionName>,
    /// The last document of the first of them that was hashed.
    after: Option<String>,
}

impl Hashing {
    pub(crate) fn new(collections: impl Iterator<Item = CollectionName>) -> Self {
        Self { hash: Xxh3::new(), left: collections.collect(), after: None }
    }

    /// Hashes some more documents; the hash when there are none left.
    pub(crate) async fn step(&mut self, store: &dyn Store) -> Result<Option<u128>, ReadError> {
        let Some(collection) = self.left.front() else { return Ok(Some(self.hash.digest128())) };
        let docs = store.docs_by_key(collection, self.after.as_deref(), PAGE).await?;
        if self.after.is_none() {
            // Which one a document is of matters too.
            self.hash.update(b"\xff");
        }
        for doc in &docs {
            for text in [&doc.key, &doc.body] {
                self.hash.update(&(text.len() as u64).to_le_bytes());
                self.hash.update(text.as_bytes());
            }
        }
        self.after = docs.into_iter().next_back().map(|last| last.key);
        if self.after.is_none() {
            self.left.pop_front();
        }
        Ok(None)
    }
}
