//! The versions of every topic, in memory, without their texts.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

use promethean_model::{IgnorePoison, Offset, TopicName};
use promethean_schema::SchemaText;
use promethean_store::port::{Store, Table};

use super::cache::SchemaCache;
use super::compiler::Compiler;
use super::evolution::Evolution;
use super::info::SchemaInfo;
use crate::error::BusError;
use crate::rows::{SchemaKey, SchemaRow};

/// Rows read at once; each may have a text of 256 KiB.
const PAGE: usize = 20;

/// The versions of every topic, what is set for them, and compiled schemas as far as they fit. Versions are changed only
/// under the lock of their topic.
#[derive(Debug, Default)]
pub(crate) struct SchemaCatalog {
    topics: RwLock<BTreeMap<TopicName, Arc<TopicVersions>>>,
    /// Whether any topic has a schema. Most servers have none, and then this is all that a publish reads.
    any: AtomicBool,
    pub(super) cache: SchemaCache,
    pub(super) compiler: Compiler,
    pub(super) evolutions: RwLock<HashMap<TopicName, Arc<Evolution>>>,
    /// Whether any topic is published in an old form too.
    pub(super) any_dual: AtomicBool,
}

/// The versions of a topic; never empty.
#[derive(Debug, Clone, Default)]
pub(crate) struct TopicVersions {
    /// Ascending.
    pub(super) list: Vec<VersionEntry>,
}

/// One version of a topic.
#[derive(Debug, Clone)]
pub(super) struct VersionEntry {
    pub(super) info: SchemaInfo,
    /// The end of the topic when the version was registered: no event before it has this version.
    pub(super) end: Offset,
    /// Every event on its way with this version holds a clone; the count tells whether there is one.
    pub(super) uses: Arc<()>,
}

impl TopicVersions {
    pub(super) fn latest(&self) -> Option<&VersionEntry> {
        self.list.last()
    }

    pub(super) fn find(&self, version: u32) -> Option<&VersionEntry> {
        let at = self.list.binary_search_by_key(&version, |version| version.info.version).ok()?;
        self.list.get(at)
    }

    /// The first version above this one.
    pub(super) fn after(&self, version: u32) -> Option<u32> {
        self.list.iter().map(|known| known.info.version).find(|known| *known > version)
    }
}

impl VersionEntry {
    pub(super) fn new(version: u32, row: &SchemaRow, text: &SchemaText) -> Self {
        let info = SchemaInfo {
            version,
            fingerprint: text.fingerprint(),
            compat: row.compat,
            undeclared: row.undeclared,
            forced: row.forced,
            created: row.created,
            bytes: row.schema.len(),
        };
        Self { info, end: row.end, uses: Arc::default() }
    }
}

impl SchemaCatalog {
    /// Reads all versions from the store.
    pub(crate) async fn load(store: &dyn Store) -> Result<Self, BusError> {
        let catalog = Self::default();
        let mut after: Option<Vec<u8>> = None;
        let mut topics: BTreeMap<TopicName, TopicVersions> = BTreeMap::new();
        loop {
            let rows = store.rows(Table::Schemas, b"", after.as_deref(), PAGE).await?;
            for row in &rows {
                let SchemaKey { topic, version } = SchemaKey::decode(&row.key)?;
                let row = SchemaRow::decode(&row.value)?;
                let text = SchemaText::parse(row.schema.as_str())?;
                topics.entry(topic).or_default().list.push(VersionEntry::new(version, &row, &text));
            }
            match rows.into_iter().last() {
                Some(last) => after = Some(last.key),
                None => break,
            }
        }
        topics.into_iter().for_each(|(topic, versions)| catalog.put(&topic, versions));
        Ok(catalog)
    }

    /// The versions of a topic; `None` if it has none.
    pub(crate) fn get(&self, topic: &TopicName) -> Option<Arc<TopicVersions>> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        self.topics.read().ignore_poison().get(topic).cloned()
    }

    /// A page of the topics with schemas, by name.
    pub(super) fn page(
        &self,
        after: Option<&TopicName>,
        limit: usize,
    ) -> Vec<(TopicName, Arc<TopicVersions>)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let topics = self.topics.read().ignore_poison();
        let from = after.map_or(Unbounded, Excluded);
        let page = topics.range::<TopicName, _>((from, Unbounded)).take(limit);
        page.map(|(topic, versions)| (topic.clone(), Arc::clone(versions))).collect()
    }

    /// Sets the versions of a topic, after the change is stored.
    pub(super) fn put(&self, topic: &TopicName, versions: TopicVersions) {
        let mut topics = self.topics.write().ignore_poison();
        if versions.list.is_empty() {
            topics.remove(topic);
        } else {
            topics.insert(topic.clone(), Arc::new(versions));
        }
        self.any.store(!topics.is_empty(), Ordering::Release);
    }

    /// Takes a version out of use, unless an event is on its way with it. Returns the versions before, to be put back if
    /// the version stays after all.
    pub(super) fn take_out(&self, topic: &TopicName, version: u32) -> Option<TopicVersions> {
        let mut topics = self.topics.write().ignore_poison();
        let before = topics.get_mut(topic)?;
        // A caller that looks at the versions now holds a clone.
        let versions = Arc::get_mut(before)?;
        let kept = versions.clone();
        let at = versions.list.iter().position(|known| known.info.version == version)?;
        // Two are held here: by the entry, and by the copy just made.
        if versions.list.get(at).is_none_or(|known| Arc::strong_count(&known.uses) > 2) {
            return None;
        }
        versions.list.remove(at);
        if versions.list.is_empty() {
            topics.remove(topic);
        }
        Some(kept)
    }

    /// Begins a deleted topic anew, with the versions that the configuration has and no others. An event on its way with
    /// one of the old versions belongs to the deleted topic.
    pub(crate) fn begin_anew(&self, topic: &TopicName) {
        let (before, configured) = (self.get(topic), self.configured(topic));
        let stays = |known: &&VersionEntry| configured.contains(&known.info.version);
        let anew =
            |known: &VersionEntry| VersionEntry { end: Offset::ZERO, uses: Arc::default(), ..known.clone() };
        let list = before.iter().flat_map(|before| &before.list).filter(stays).map(anew).collect();
        self.put(topic, TopicVersions { list });
        self.cache.forget(topic);
    }

    /// Puts the versions of a topic back whose deletion failed.
    pub(crate) fn restore(&self, topic: &TopicName, known: Option<Arc<TopicVersions>>) {
        if let Some(known) = known {
            self.put(topic, TopicVersions::clone(&known));
        }
    }
}
