//! Which versions there are, in memory: small facts of every version, and compiled ones as far as they fit.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use promethean_model::{IgnorePoison, Offset, TopicName};
use promethean_schema::{BadSchema, SchemaText, validator};
use promethean_store::port::{Store, Table};
use tokio::sync::Semaphore;

use super::Schemas;
use super::cache::{Cache, Compiled};
use super::evolution::Evolution;
use super::flight::{Flight, Flights, followed};
use super::registry::SchemaInfo;
use crate::error::BusError;
use crate::rows::{SchemaKey, SchemaRow};

/// Rows read at once; each may have a text of 256 KiB.
const PAGE: usize = 20;
/// How long compiling or comparing may take.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Schemas compiled or compared at a time.
const WORK_MAX: usize = 2;

/// Changed only under the lock of the topic (see `changing`). As large as there are versions, without their texts.
#[derive(Debug)]
pub(crate) struct SchemaCatalog {
    topics: RwLock<BTreeMap<TopicName, Arc<TopicVersions>>>,
    /// Whether any topic has a schema: most servers ask no further.
    any: AtomicBool,
    pub(super) cache: Cache,
    flights: Flights,
    pub(super) evolutions: RwLock<HashMap<TopicName, Arc<Evolution>>>,
    /// Whether any topic is published in an old form too.
    pub(super) any_dual: AtomicBool,
    work: Arc<Semaphore>,
}

/// The versions of a topic; never empty.
#[derive(Debug, Clone, Default)]
pub(crate) struct TopicVersions {
    /// Ascending.
    pub(super) list: Vec<VersionEntry>,
}

#[derive(Debug, Clone)]
pub(super) struct VersionEntry {
    pub(super) info: SchemaInfo,
    pub(super) end: Offset,
    /// Held by every event that is on its way with this version.
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

impl Default for SchemaCatalog {
    fn default() -> Self {
        Self {
            topics: RwLock::default(),
            any: AtomicBool::new(false),
            cache: Cache::default(),
            flights: Flights::default(),
            evolutions: RwLock::default(),
            any_dual: AtomicBool::new(false),
            work: Arc::new(Semaphore::new(WORK_MAX)),
        }
    }
}

impl SchemaCatalog {
    /// Reads what is stored.
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

    /// The versions of a topic that has any.
    pub(crate) fn get(&self, topic: &TopicName) -> Option<Arc<TopicVersions>> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        self.topics.read().ignore_poison().get(topic).cloned()
    }

    /// Topics with schemas, by name.
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

    /// Follows a change that is stored.
    pub(super) fn put(&self, topic: &TopicName, versions: TopicVersions) {
        let mut topics = self.topics.write().ignore_poison();
        if versions.list.is_empty() {
            topics.remove(topic);
        } else {
            topics.insert(topic.clone(), Arc::new(versions));
        }
        self.any.store(!topics.is_empty(), Ordering::Release);
    }

    /// Takes a version out of use, unless an event is on its way with it: what was there, to be put back if it stays.
    pub(super) fn take_out(&self, topic: &TopicName, version: u32) -> Option<TopicVersions> {
        let mut topics = self.topics.write().ignore_poison();
        let before = topics.get_mut(topic)?;
        // Whoever looks at the versions now, or has an event on its way, holds one of these.
        let versions = Arc::get_mut(before)?;
        let kept = versions.clone();
        let at = versions.list.iter().position(|known| known.info.version == version)?;
        // Ours, and the copy just made.
        if versions.list.get(at).is_none_or(|known| Arc::strong_count(&known.uses) > 2) {
            return None;
        }
        versions.list.remove(at);
        if versions.list.is_empty() {
            topics.remove(topic);
        }
        Some(kept)
    }

    /// The topic is to begin anew, with the versions that the configuration has and no others. What is on its way with
    /// one of before is of the topic that goes.
    pub(crate) fn begin_anew(&self, topic: &TopicName) {
        let (before, configured) = (self.get(topic), self.configured(topic));
        let stays = |known: &&VersionEntry| configured.contains(&known.info.version);
        let anew =
            |known: &VersionEntry| VersionEntry { end: Offset::ZERO, uses: Arc::default(), ..known.clone() };
        let list = before.iter().flat_map(|before| &before.list).filter(stays).map(anew).collect();
        self.put(topic, TopicVersions { list });
        self.cache.forget(topic);
    }

    /// It is not, after all.
    pub(crate) fn restore(&self, topic: &TopicName, known: Option<Arc<TopicVersions>>) {
        if let Some(known) = known {
            self.put(topic, TopicVersions::clone(&known));
        }
    }
}

/// A compiled version, from memory or from the store. However many ask, it is compiled once.
pub(super) async fn compiled(
    schemas: &Schemas,
    topic: &TopicName,
    info: &SchemaInfo,
) -> Result<Arc<Compiled>, BusError> {
    let cached = || schemas.catalog.cache.get(topic, &info.fingerprint, info.version);
    loop {
        if let Some(compiled) = cached() {
            return Ok(compiled);
        }
        let lead = match schemas.catalog.flights.join(topic, info.version, &info.fingerprint) {
            Flight::Lead(lead) => lead,
            Flight::Follow(answer) => match followed(answer).await {
                Some(answer) => return answer,
                None => continue,
            },
        };
        // Again: whoever led before may have ended since we looked.
        let answer = match cached() {
            Some(compiled) => Ok(compiled),
            None => read_and_compile(schemas, topic, info.version).await,
        };
        lead.end(answer.clone());
        return answer;
    }
}

async fn read_and_compile(
    schemas: &Schemas,
    topic: &TopicName,
    version: u32,
) -> Result<Arc<Compiled>, BusError> {
    let text = stored(schemas, topic, version).await?;
    let compiled = compile(schemas, topic, version, text).await?;
    schemas.catalog.cache.put(&compiled);
    Ok(compiled)
}

/// The text of a version.
pub(super) async fn stored(
    schemas: &Schemas,
    topic: &TopicName,
    version: u32,
) -> Result<SchemaText, BusError> {
    let row = schemas.base.store.row(Table::Schemas, &SchemaKey::encode(topic, version)).await?;
    let unknown =
        || BusError::UnknownSchema { topic: topic.clone(), version: version.to_string(), latest: None };
    Ok(SchemaText::parse(SchemaRow::decode(&row.ok_or_else(unknown)?)?.schema)?)
}

/// Compiles, off the threads that others wait for.
pub(super) async fn compile(
    schemas: &Schemas,
    topic: &TopicName,
    version: u32,
    text: SchemaText,
) -> Result<Arc<Compiled>, BusError> {
    let topic = topic.clone();
    let work = move || {
        let (validator, pattern_bytes) = validator::compile_weighed(text.value())?;
        let (fingerprint, text_bytes) = (text.fingerprint(), text.text().len());
        let validator = Arc::new(validator);
        Ok(Arc::new(Compiled { topic, version, validator, fingerprint, text_bytes, pattern_bytes }))
    };
    aside(schemas, work).await?
}

/// Does work that may take long on a thread for that, a bounded time and a bounded number at once. Work that takes
/// longer is not waited for, and counts until it ends.
pub(super) async fn aside<T: Send + 'static>(
    schemas: &Schemas,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, BusError> {
    let slow = || BadSchema::whole("it takes too long; simplify it").into();
    let permit = Arc::clone(&schemas.catalog.work).acquire_owned();
    let busy = |_| BusError::Busy { what: "compiling schemas" };
    let permit = tokio::time::timeout(TIME_MAX, permit).await.map_err(busy)?.ok();
    let done = async move {
        let work = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(permit);
            done
        });
        work.await.map_err(|_| BadSchema::whole("it fails inside the validator; simplify it").into())
    };
    tokio::time::timeout(TIME_MAX, done).await.unwrap_or_else(|_| Err(slow()))
}
