//! Registering, listing and deleting versions.

use std::sync::Arc;

use promethean_model::limits::EventParts;
use promethean_model::name::SystemSuffix;
use promethean_model::{EventMeta, TopicName, TopicSettings};
use promethean_schema::compat::{self, CompatDirection};
use promethean_schema::{Compared, SchemaText, judge};
use promethean_store::port::{Batch, RowOp, Table};
use serde_json::Value;

use super::cache::CompiledSchema;
use super::catalog::{TopicVersions, VersionEntry};
use super::info::{
    RegisterOptions, Registered, SchemaInfo, SchemaTopic, SchemaTopics, StoredSchema, WhichSchema,
};
use super::{Schemas, VERSIONS_MAX, compiler, gate};
use crate::error::BusError;
use crate::rows::{SchemaKey, SchemaRow};

/// Topics on a page, at most.
const PAGE_MAX: usize = 1_000;
/// How often a schema is compared, at most: again when other versions came or went meanwhile.
const ROUNDS_MAX: usize = 8;

impl Schemas {
    /// Does the work of [`crate::Bus::register_schema`].
    pub(crate) async fn register(
        self: &Arc<Self>,
        topic: &TopicName,
        text: SchemaText,
        options: RegisterOptions,
    ) -> Result<Registered, BusError> {
        check_name(topic)?;
        let compiled = compiler::compile(self, topic, 0, text.clone()).await?;
        for _ in 0..ROUNDS_MAX {
            // Compared before the lock is taken, which other topics share. If the caller is cancelled,
            // nothing is written.
            let basis = ComparisonBasis::now(self, topic);
            let compared = match placement(topic, &basis.versions, &compiled, options)? {
                Placement::Same(_) => Ok(Vec::new()),
                Placement::New(_) => compare(self, topic, &basis.settings, &basis.versions, &text).await,
            };
            let (schemas, topic) = (Arc::clone(self), topic.clone());
            let (text, compiled) = (text.clone(), Arc::clone(&compiled));
            let registered = self.base.run_to_end(async move {
                let _lock = schemas.topics.locks.lock(&topic).await;
                if ComparisonBasis::now(&schemas, &topic) != basis {
                    return Ok(None);
                }
                register(&schemas, &topic, text, options, compiled, &basis, compared?).await.map(Some)
            });
            if let Some(registered) = registered.await? {
                return Ok(registered);
            }
        }
        Err(BusError::Busy { what: "other changes of the topic's schemas" })
    }

    /// Does the work of [`crate::Bus::check_schema`].
    pub(crate) async fn check(&self, topic: &TopicName, text: SchemaText) -> Result<Vec<Compared>, BusError> {
        check_name(topic)?;
        compiler::compile(self, topic, 0, text.clone()).await?;
        let basis = ComparisonBasis::now(self, topic);
        compare(self, topic, &basis.settings, &basis.versions, &text).await
    }

    /// Does the work of [`crate::Bus::schemas`].
    pub(crate) fn list(&self, topic: &TopicName) -> Vec<SchemaInfo> {
        let versions = self.catalog.get(topic);
        versions.iter().flat_map(|versions| &versions.list).map(|known| known.info.clone()).collect()
    }

    /// Does the work of [`crate::Bus::schema`].
    pub(crate) async fn find(&self, topic: &TopicName, which: WhichSchema) -> Result<StoredSchema, BusError> {
        let info = find(self, topic, which)?;
        let schema = compiler::stored(self, topic, info.version).await?.text().to_owned();
        Ok(StoredSchema { info, schema })
    }

    /// Does the work of [`crate::Bus::all_schemas`].
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

    /// Does the work of [`crate::Bus::delete_schema`].
    pub(crate) async fn delete(self: &Arc<Self>, topic: &TopicName, version: u32) -> Result<(), BusError> {
        let (schemas, topic) = (Arc::clone(self), topic.clone());
        self.base
            .run_to_end(async move {
                let _lock = schemas.topics.locks.lock(&topic).await;
                delete(&schemas, &topic, version).await
            })
            .await
    }

    /// Does the work of [`crate::Bus::validate`].
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
            let compiled = compiler::compiled(self, topic, &info).await?;
            self.fit(&compiled, &payload).await?;
        }
        Ok(Some(info.version))
    }
}

/// Refuses topics that cannot have schemas: only users' topics can, and the `.vN` topics of dual-write.
fn check_name(topic: &TopicName) -> Result<(), BusError> {
    let user = match (topic.system_suffix(), topic.base()) {
        (Some(SystemSuffix::Version(_)), Some(base)) => base,
        _ => topic.clone(),
    };
    TopicName::parse_user(user.as_str())?;
    Ok(())
}

/// Finds a version in the catalog.
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

/// Compares a schema with every version that the topic's rule names, the latest first.
async fn compare(
    schemas: &Schemas,
    topic: &TopicName,
    settings: &TopicSettings,
    versions: &[SchemaInfo],
    new: &SchemaText,
) -> Result<Vec<Compared>, BusError> {
    let (directions, all) = CompatDirection::asked_by(settings.compat);
    let numbers = versions.iter().rev().map(|known| known.version).take(if all { usize::MAX } else { 1 });
    let mut compared = Vec::new();
    if directions.is_empty() {
        return Ok(compared);
    }
    let undeclared = settings.undeclared;
    let new = Arc::new(new.value().clone());
    for version in numbers {
        if schemas.base.is_closed() {
            return Err(BusError::Closed);
        }
        let old = compiler::stored(schemas, topic, version).await?;
        let new: Arc<Value> = Arc::clone(&new);
        let one = move |direction: &CompatDirection| Compared {
            version,
            direction: *direction,
            report: compat::check(old.value(), &new, *direction, undeclared),
        };
        compared.extend(
            compiler::off_thread(schemas, move || directions.iter().map(one).collect::<Vec<_>>()).await?,
        );
    }
    Ok(compared)
}

/// The facts that a comparison depends on. It holds copies: a hold on the versions would keep them from being
/// deleted.
#[derive(PartialEq)]
struct ComparisonBasis {
    versions: Vec<SchemaInfo>,
    settings: Arc<TopicSettings>,
}

impl ComparisonBasis {
    fn now(schemas: &Schemas, topic: &TopicName) -> Self {
        let versions = schemas.catalog.get(topic);
        let infos = versions.iter().flat_map(|versions| &versions.list).map(|known| known.info.clone());
        Self { versions: infos.collect(), settings: schemas.topics.settings.get(topic) }
    }
}

/// The version that a schema becomes.
enum Placement {
    /// It says the same as the latest version, which has this number.
    Same(u32),
    /// It becomes a new version with this number.
    New(u32),
}

fn placement(
    topic: &TopicName,
    versions: &[SchemaInfo],
    compiled: &CompiledSchema,
    options: RegisterOptions,
) -> Result<Placement, BusError> {
    let latest = versions.last();
    let number = latest.map_or(0, |latest| latest.version);
    if latest.is_some_and(|latest| latest.fingerprint == compiled.fingerprint)
        && options.version.is_none_or(|version| version == number)
    {
        return Ok(Placement::Same(number));
    }
    let given = options.version.unwrap_or(number.saturating_add(1));
    if given <= number {
        return Err(BusError::VersionTaken { topic: topic.clone(), given, latest: number });
    }
    if versions.len() >= VERSIONS_MAX {
        return Err(BusError::TooManySchemas { topic: topic.clone(), max: VERSIONS_MAX });
    }
    Ok(Placement::New(given))
}

/// Registers a schema after its comparison. The topic's lock is held, and the basis of the comparison still
/// holds.
async fn register(
    schemas: &Schemas,
    topic: &TopicName,
    text: SchemaText,
    options: RegisterOptions,
    compiled: Arc<CompiledSchema>,
    basis: &ComparisonBasis,
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
    let given = match placement(topic, &basis.versions, &compiled, options)? {
        Placement::Same(version) => return Ok(Registered { unchanged: true, ..answer(version, compared) }),
        Placement::New(given) => given,
    };
    let settings = &basis.settings;
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
    schemas
        .catalog
        .cache
        .put(&Arc::new(CompiledSchema { version: given, ..CompiledSchema::clone(&compiled) }));
    schemas.catalog.put(topic, versions);
    Ok(Registered { forced, ..answer(given, compared) })
}

/// Deletes a version; the topic's lock is held. Once the version is taken out, no event is published with it.
/// That none was published before is checked by the commit: every event moves the topic's end, and the commit
/// expects the end of when the version was registered.
async fn delete(schemas: &Schemas, topic: &TopicName, version: u32) -> Result<(), BusError> {
    find(schemas, topic, WhichSchema::Version(version))?;
    let since = schemas.catalog.get(topic).and_then(|versions| versions.find(version).map(|known| known.end));
    let used = |reason| BusError::SchemaInUse { topic: topic.clone(), version, reason };
    if schemas.catalog.configured(topic).contains(&version) {
        return Err(used("the configuration has its file"));
    }
    // Checked before the version is taken out: publishes meanwhile would be held to another version, or to
    // none.
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
