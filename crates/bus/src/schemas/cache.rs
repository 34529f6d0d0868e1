//! The cache of compiled schemas; the least recently used are dropped first.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use promethean_model::{IgnorePoison, TopicName};
use promethean_schema::validator::Validator;

/// Compiled schemas kept.
const COMPILED_MAX: usize = 1_024;
/// Bytes of their texts.
const TEXT_BYTES_MAX: usize = 32 << 20;
/// Bytes of their patterns, which can be many times as large as the texts.
const PATTERN_BYTES_MAX: usize = 256 << 20;

/// A compiled version.
#[derive(Debug, Clone)]
pub(crate) struct CompiledSchema {
    pub(super) topic: TopicName,
    pub(super) version: u32,
    pub(super) validator: Arc<Validator>,
    pub(super) fingerprint: String,
    pub(super) text_bytes: usize,
    pub(super) pattern_bytes: usize,
}

/// Compiled schemas by topic and version. Read on every publish, written when a schema is compiled.
#[derive(Debug, Default)]
pub(super) struct SchemaCache {
    compiled: RwLock<HashMap<TopicName, HashMap<u32, CacheEntry>>>,
    /// Counts uses; an entry keeps the count of its last one.
    clock: AtomicU64,
}

#[derive(Debug)]
struct CacheEntry {
    compiled: Arc<CompiledSchema>,
    used: AtomicU64,
}

impl SchemaCache {
    /// A compiled version. The number alone does not say which schema: a version that no event has can be
    /// deleted, and its number given to another schema.
    pub(super) fn get(
        &self,
        topic: &TopicName,
        fingerprint: &str,
        version: u32,
    ) -> Option<Arc<CompiledSchema>> {
        let compiled = self.compiled.read().ignore_poison();
        let entry = compiled.get(topic)?.get(&version)?;
        if entry.compiled.fingerprint != fingerprint {
            return None;
        }
        entry.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Some(Arc::clone(&entry.compiled))
    }

    pub(super) fn put(&self, compiled: &Arc<CompiledSchema>) {
        let mut kept = self.compiled.write().ignore_poison();
        let used = AtomicU64::new(self.clock.fetch_add(1, Ordering::Relaxed));
        let entry = CacheEntry { compiled: Arc::clone(compiled), used };
        kept.entry(compiled.topic.clone()).or_default().insert(compiled.version, entry);
        loop {
            let entries = || kept.values().flat_map(HashMap::values);
            let sum = |bytes: fn(&CompiledSchema) -> usize| {
                entries().map(|entry| bytes(&entry.compiled)).sum::<usize>()
            };
            let fits = entries().count() <= COMPILED_MAX
                && sum(|compiled| compiled.text_bytes) <= TEXT_BYTES_MAX
                && sum(|compiled| compiled.pattern_bytes) <= PATTERN_BYTES_MAX;
            // One schema alone always fits: its text and its patterns have lower limits of their own.
            if fits {
                return;
            }
            let Some(oldest) = entries().min_by_key(|entry| entry.used.load(Ordering::Relaxed)) else {
                return;
            };
            let (topic, version) = (oldest.compiled.topic.clone(), oldest.compiled.version);
            if let Some(versions) = kept.get_mut(&topic) {
                versions.remove(&version);
                if versions.is_empty() {
                    kept.remove(&topic);
                }
            }
        }
    }

    pub(super) fn forget(&self, topic: &TopicName) {
        self.compiled.write().ignore_poison().remove(topic);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn compiled(topic: &str, version: u32, text_bytes: usize, pattern_bytes: usize) -> Arc<CompiledSchema> {
        let validator = Arc::new(promethean_schema::validator::compile(&Value::Bool(true)).unwrap());
        let (topic, fingerprint) = (topic.parse().unwrap(), "f".to_owned());
        Arc::new(CompiledSchema { topic, version, validator, fingerprint, text_bytes, pattern_bytes })
    }

    #[test]
    fn the_least_recently_used_go_first() {
        let cache = SchemaCache::default();
        for n in 0..COMPILED_MAX as u32 + 10 {
            cache.put(&compiled("a", n, 10, 0));
            assert!(cache.get(&"a".parse().unwrap(), "f", 0).is_some(), "kept by its use");
        }
        let has = |n| cache.get(&"a".parse().unwrap(), "f", n).is_some();
        assert!(!has(1) && !has(10) && has(11) && has(COMPILED_MAX as u32 + 9));
        cache.put(&compiled("b", 1, TEXT_BYTES_MAX, 0));
        assert!(!has(0) && cache.get(&"b".parse().unwrap(), "f", 1).is_some());
        assert!(cache.get(&"b".parse().unwrap(), "other", 1).is_none());
        cache.forget(&"b".parse().unwrap());
        assert!(cache.get(&"b".parse().unwrap(), "f", 1).is_none());
    }

    #[test]
    fn patterns_are_bounded_too() {
        let cache = SchemaCache::default();
        for n in 0..9 {
            cache.put(&compiled("a", n, 10, PATTERN_BYTES_MAX / 8));
        }
        let has = |n| cache.get(&"a".parse().unwrap(), "f", n).is_some();
        assert!(!has(0) && (1..9).all(has));
    }
}
