//! Registering, listing and deleting versions.

use std::sync::Arc;

use promethean_model::limits::EventParts;
use promethean_model::{Compat, EventMeta, TopicName, TopicSettings, Undeclared};
use promethean_schema::{Compared, SchemaText, judge};
use promethean_store::port::{Batch, RowOp, Table};
use serde::Serialize;

use super::Schemas;
use super::cache::Compiled;
use super::catalog::{self, TopicVersions, VersionEntry};
use super::compare::compare;
use super::{VERSIONS_MAX, gate};
use crate::error::BusError;
use crate::rows::{SchemaKey, SchemaRow};

/// Topics of a page.
const PAGE_MAX: usize = 1_000;
/// How often a schema is compared again because others came or went meanwhile.
const ROUNDS_MAX: usize = 8;

/// What is known of a version beside its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SchemaInfo {
    /// Its number, from 1.
    pub version: u32,
    /// The same for schemas that say the same.
    pub fingerprint: String,
    /// The rule by which it was compared.
    pub compat: Compat,
    /// What that took undeclared properties for.
    pub undeclared: Undeclared,
    /// Whether it was registered without an answer to whether it fits.
    pub forced: bool,
    /// When it was registered, epoch ms.
    pub created: i64,
    /// The length of its text.
    pub bytes: usize,
}

/// A version with its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoredSchema {
    /// What is known of it.
    #[serde(flatten)]
    pub info: SchemaInfo,
    /// As it was given.
    pub schema: String,
}

/// Which version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhichSchema {
    /// The highest.
    Latest,
    /// This one.
    Version(u32),
}

/// How to register.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RegisterOptions {
    /// The number to give it, above that of the latest; `None`: the next one.
    pub version: Option<u32>,
    /// Whether to register what the comparison cannot decide.
    pub force: bool,
    /// Whether only to say what would happen.
    pub dry_run: bool,
}

/// What became of a schema.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Registered {
    /// The topic.
    pub topic: TopicName,
    /// Its version.
    pub version: u32,
    /// Whether the latest version says the same, so that nothing was written.
    pub unchanged: bool,
    /// Whether the comparison could not decide, and it was forced.
    pub forced: bool,
    /// Whether nothing was written because that was asked for.
    pub dry_run: bool,
    /// The comparisons, the latest version first.
    pub compared: Vec<Compared>,
}

/// A topic with schemas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SchemaTopic {
    /// The topic.
    pub topic: TopicName,
    /// How many versions it has.
    pub versions: usize,
    /// The latest of them.
    pub latest: u32,
}

/// Topics with schemas, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SchemaTopics {
    /// The topics.
    pub topics: Vec<SchemaTopic>,
    /// The name to go on after, if there may be more.
    pub next: Option<TopicName>,
}

impl Schemas {
    /// Registers a schema as the topic's next version. It holds for every publish that begins after the answer; one that
    /// is under way is held to one version or the other, and says which. The schema that the latest version has already
    /// is not registered again.
    pub(crate) async fn register(
        self: &Arc<Self>,
        topic: &TopicName,
        text: SchemaText,
        options: RegisterOptions,
    ) -> Result<Registered, BusError> {
        check_name(topic)?;
        let compiled = catalog::compile(self, topic, 0, text.clone()).await?;
        for _ in 0..ROUNDS_MAX {
            // Before the lock, which other topics share, and in the caller's time: nothing is written yet.
            let seen = Seen::look(self, topic);
            let compared = match place(topic, &seen.versions, &compiled, options)? {
                Place::Same(_) => Ok(Vec::new()),
                Place::New(_) => compare(self, topic, &seen.settings, &seen.versions, &text).await,
            };
            let (schemas, topic) = (Arc::clone(self), topic.clone());
            let (text, compiled) = (text.clone(), Arc::clone(&compiled));
            let registered = self.base.run_to_end(async move {
                let _lock = schemas.topics.locks.lock(&topic).await;
                if Seen::look(&schemas, &topic) != seen {
                    return Ok(None);
                }
                register(&schemas, &topic, text, options, compiled, &seen, compared?).await.map(Some)
            });
            if let Some(registered) = registered.await? {
                return Ok(registered);
            }
        }
        Err(BusError::Busy { what: "other changes of the topic's schemas" })
    }

    /// What registering a schema would find, written nowhere and refused only if it is no schema.
    pub(crate) async fn check(&self, topic: &TopicName, text: SchemaText) -> Result<Vec<Compared>, BusError> {
        check_name(topic)?;
        catalog::compile(self, topic, 0, text.clone()).await?;
        let seen = Seen::look(self, topic);
        compare(self, topic, &seen.settings, &seen.versions, &text).await
    }

    /// The versions of a topic, ascending, without their texts.
    pub(crate) fn list(&self, topic: &TopicName) -> Vec<SchemaInfo> {
        let versions = self.catalog.get(topic);
        versions.iter().flat_map(|versions| &versions.list).map(|known| known.info.clone()).collect()
    }

    /// One version with its text.
    pub(crate) async fn find(&self, topic: &TopicName, which: WhichSchema) -> Result<StoredSchema, BusError> {
        let info = find(self, topic, which)?;
        let schema = catalog::stored(self, topic, info.version).await?.text().to_owned();
        Ok(StoredSchema { info, schema })
    }

    /// Topics with schemas, by name, after `after`, at most `limit` and 1,000.
    pub(crate) fn page(&self, after: Option<&TopicName>, limit: usize) -> SchemaTopics {
        let limit = limit.clamp(1, PAGE_MAX);
        let page = self.catalog.page(after, limit);
        let next = page.last().filter(|_| page.len() == limit).map(|(topic, _)| topic.clone());
        let entry = |(topic, versions): (TopicName, Arc<TopicVersions>)| {
            let latest = versions.latest().map_or(0, |known| known.info.version);
            SchemaTopic { topic, versions: versions.list.len(), latest }
        };
        SchemaTopics { topics: page.into_iter().map(entry).collect(), next }
    }

    /// Deletes a version that no event has: none was published since it was registered.
    pub(crate) async fn delete(self: &Arc<Self>, topic: &TopicName, version: u32) -> Result<(), BusError> {
        let (schemas, topic) = (Arc::clone(self), topic.clone());
        self.base
            .run_to_end(async move {
                let _lock = schemas.topics.locks.lock(&topic).await;
                delete(&schemas, &topic, version).await
            })
            .await
    }

    /// Holds a payload against a version, or the latest; which one that was, `None` if the topic has no schema. What is
    /// set for the topic does not matter. A tombstone fits always.
    pub(crate) async fn validate(
        &self,
        topic: &TopicName,
        payload: &str,
        version: Option<u32>,
    ) -> Result<Option<u32>, BusError> {
        let none = EventMeta::default();
        let parts = EventParts { key: None, payload_bytes: payload.len(), meta: &none };
        self.base.options.limits.check_event(&parts)?;
        let payload = promethean_model::json::minify(payload)?;
        if version.is_none() && self.catalog.get(topic).is_none() {
            return Ok(None);
        }
        let info = find(self, topic, version.map_or(WhichSchema::Latest, WhichSchema::Version))?;
        if payload != gate::TOMBSTONE {
            catalog::compiled(self, topic, &info).await?.check(&payload)?;
        }
        Ok(Some(info.version))
    }
}

/// Users' topics have schemas, and those that events are published to in an old form.
fn check_name(topic: &TopicName) -> Result<(), BusError> {
    use promethean_model::name::SystemSuffix;
    let user = match (topic.system_suffix(), topic.base()) {
        (Some(SystemSuffix::Version(_)), Some(base)) => base,
        _ => topic.clone(),
    };
    TopicName::parse_user(user.as_str())?;
    Ok(())
}

pub(super) fn find(schemas: &Schemas, topic: &TopicName, which: WhichSchema) -> Result<SchemaInfo, BusError> {
    let versions = schemas.catalog.get(topic);
    let latest = versions.as_ref().and_then(|versions| versions.latest());
    let (found, asked) = match which {
        WhichSchema::Latest => (latest, "latest".to_owned()),
        WhichSchema::Version(version) => {
            (versions.as_ref().and_then(|versions| versions.find(version)), version.to_string())
        }
    };
    let unknown = || BusError::UnknownSchema {
        topic: topic.clone(),
        version: asked,
        latest: latest.map(|known| known.info.version),
    };
    found.map(|known| known.info.clone()).ok_or_else(unknown)
}

/// What a comparison depends on. No hold on the versions, which would keep them from being deleted.
#[derive(PartialEq)]
struct Seen {
    versions: Vec<SchemaInfo>,
    settings: Arc<TopicSettings>,
}

impl Seen {
    fn look(schemas: &Schemas, topic: &TopicName) -> Self {
        let versions = schemas.catalog.get(topic);
        let infos = versions.iter().flat_map(|versions| &versions.list).map(|known| known.info.clone());
        Self { versions: infos.collect(), settings: schemas.topics.settings.get(topic) }
    }
}

/// Where a schema belongs.
enum Place {
    /// It is the latest version already.
    Same(u32),
    /// It becomes this version.
    New(u32),
}

fn place(
    topic: &TopicName,
    versions: &[SchemaInfo],
    compiled: &Compiled,
    options: RegisterOptions,
) -> Result<Place, BusError> {
    let latest = versions.last();
    let number = latest.map_or(0, |latest| latest.version);
    if latest.is_some_and(|latest| latest.fingerprint == compiled.fingerprint)
        && options.version.is_none_or(|version| version == number)
    {
        return Ok(Place::Same(number));
    }
    let given = options.version.unwrap_or(number.saturating_add(1));
    if given <= number {
        return Err(BusError::VersionTaken { topic: topic.clone(), given, latest: number });
    }
    if versions.len() >= VERSIONS_MAX {
        return Err(BusError::TooManySchemas { topic: topic.clone(), max: VERSIONS_MAX });
    }
    Ok(Place::New(given))
}

/// Under the topic's lock, with what is true now and was compared.
async fn register(
    schemas: &Schemas,
    topic: &TopicName,
    text: SchemaText,
    options: RegisterOptions,
    compiled: Arc<Compiled>,
    seen: &Seen,
    compared: Vec<Compared>,
) -> Result<Registered, BusError> {
    let RegisterOptions { force, dry_run, .. } = options;
    let answer = |version, compared| Registered {
        topic: topic.clone(),
        version,
        unchanged: false,
        forced: false,
        dry_run,
        compared,
    };
    let given = match place(topic, &seen.versions, &compiled, options)? {
        Place::Same(version) => return Ok(Registered { unchanged: true, ..answer(version, compared) }),
        Place::New(given) => given,
    };
    let settings = &seen.settings;
    let forced = judge(topic, settings.compat, &compared, force)?;
    if dry_run {
        return Ok(Registered { forced, ..answer(given, compared) });
    }
    let (created, end) = (schemas.base.clock.wall_ms(), schemas.base.store.durable_end(topic));
    let text_kept = text.text().to_owned();
    let mut row = SchemaRow::new(text_kept, settings.compat, settings.undeclared, created, end);
    row.forced = forced;
    let (table, key) = (Table::Schemas, SchemaKey::encode(topic, given));
    let op = RowOp::Put { table, key, value: row.encode()?, must_be_new: true };
    schemas.base.store.commit(Batch::new().with(op)).await?;
    let versions = schemas.catalog.get(topic);
    let mut versions =
        versions.map_or_else(TopicVersions::default, |versions| TopicVersions::clone(&versions));
    versions.list.push(VersionEntry::new(given, &row, &text));
    schemas.catalog.cache.put(&Arc::new(Compiled { version: given, ..Compiled::clone(&compiled) }));
    schemas.catalog.put(topic, versions);
    Ok(Registered { forced, ..answer(given, compared) })
}

/// Under the topic's lock. From when it is taken out nobody publishes with it; that nobody did before is what the commit
/// makes sure of, since every event that was sequenced meanwhile has moved the end.
async fn delete(schemas: &Schemas, topic: &TopicName, version: u32) -> Result<(), BusError> {
    find(schemas, topic, WhichSchema::Version(version))?;
    let since = schemas.catalog.get(topic).and_then(|versions| versions.find(version).map(|known| known.end));
    let used = |reason| BusError::SchemaInUse { topic: topic.clone(), version, reason };
    if schemas.catalog.configured(topic).contains(&version) {
        return Err(used("the configuration has its file"));
    }
    // Before it is taken out, or publishes meanwhile would be held to another version, or to none.
    if since.is_some_and(|end| schemas.base.store.durable_end(topic) > end) {
        return Err(used("events were published since it was registered"));
    }
    let before = schemas.catalog.take_out(topic, version);
    let before = before.ok_or_else(|| used("an event is being published with it"))?;
    let end = before.find(version).map(|known| known.end).unwrap_or_default();
    let op = RowOp::Delete { table: Table::Schemas, key: SchemaKey::encode(topic, version) };
    let batch = Batch::new().with(op).expect_end(topic.clone(), end);
    match schemas.base.store.commit(batch).await.map_err(BusError::from) {
        Ok(_) => Ok(()),
        Err(error) => {
            schemas.catalog.put(topic, before);
            match error {
                BusError::Conflict { .. } => Err(used("events were published since it was registered")),
                error => Err(error),
            }
        }
    }
}
