//! The hash of what collections hold.

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
    let mut hash = Xxh3::new();
    for collection in collections {
        // Which one a document is of matters too.
        hash.update(b"\xff");
        let mut after: Option<String> = None;
        loop {
            let docs = store.docs_by_key(collection, after.as_deref(), PAGE).await?;
            let Some(last) = docs.last() else { break };
            after = Some(last.key.clone());
            for doc in &docs {
                for text in [&doc.key, &doc.body] {
                    hash.update(&(text.len() as u64).to_le_bytes());
                    hash.update(text.as_bytes());
                }
            }
        }
    }
    Ok(hash.digest128())
}
