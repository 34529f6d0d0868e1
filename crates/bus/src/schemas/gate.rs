//! The check of payloads against their topic's schema when they are published.

use std::sync::Arc;

use promethean_model::{EventMeta, SchemaRule, TopicName, TopicSettings};
use promethean_schema::VERSION_HEADER;

use super::catalog::{TopicVersions, VersionEntry};
use super::{Schemas, compiler};
use crate::error::BusError;

/// The payload of a tombstone.
pub(super) const TOMBSTONE: &str = "null";

/// The schema version of an event on its way to the store. While this is held, the version is not deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaVersion {
    /// The number of the version.
    pub version: u32,
    /// Whether the payload must still be checked: the compiled schema was not in memory, or the check takes long.
    pub(crate) unchecked: bool,
    /// Counts as one use of the version for as long as it is held.
    pub(crate) uses: Arc<()>,
}

impl Schemas {
    /// Checks a payload against its topic's schema, and puts the version into the header [`VERSION_HEADER`].
    /// Never waits and never takes long: a schema that must be read from the store first, and a payload that takes
    /// many steps to check, are left to [`Schemas::finish_gate`].
    pub(crate) fn gate(
        &self,
        topic: &TopicName,
        payload: &str,
        meta: &mut EventMeta,
        settings: &TopicSettings,
    ) -> Result<Option<SchemaVersion>, BusError> {
        // Taken out whatever the rule is: readers trust this header to be the server's.
        let named = take_header(meta, VERSION_HEADER);
        if settings.schema == SchemaRule::Off || payload == TOMBSTONE {
            return Ok(None);
        }
        let unknown = |version, latest| BusError::UnknownSchema { topic: topic.clone(), version, latest };
        let Some(versions) = self.catalog.get(topic) else {
            return match (named, settings.schema) {
                (Some(version), _) => Err(unknown(version, None)),
                (None, SchemaRule::Required) => Err(BusError::SchemaRequired { topic: topic.clone() }),
                (None, _) => Ok(None),
            };
        };
        let Some(known) = choose(&versions, named.as_deref()) else {
            let latest = versions.latest().map(|known| known.info.version);
            return Err(unknown(named.unwrap_or_default(), latest));
        };
        let compiled = self.catalog.cache.get(topic, &known.info.fingerprint, known.info.version);
        let checked = match &compiled {
            Some(compiled) => {
                compiled.check_at_once(payload).inspect_err(|error| self.count_rejection(error))?
            }
            None => false,
        };
        let version = known.info.version;
        meta.headers.get_or_insert_default().insert(VERSION_HEADER.to_owned(), version.to_string());
        Ok(Some(SchemaVersion { version, unchecked: !checked, uses: Arc::clone(&known.uses) }))
    }

    /// Checks a payload that [`Schemas::gate`] could not, and refuses it if its version was deleted
    /// meanwhile.
    pub(crate) async fn finish_gate(
        &self,
        topic: &TopicName,
        payload: &str,
        version: &mut SchemaVersion,
    ) -> Result<(), BusError> {
        let versions = self.catalog.get(topic);
        let known = versions.as_ref().and_then(|versions| versions.find(version.version));
        // The topic can be deleted meanwhile, its schemas with it, and other schemas be registered under the
        // same numbers.
        let known = known.filter(|known| Arc::ptr_eq(&known.uses, &version.uses));
        let known = known.ok_or_else(|| BusError::TopicDeleted { topic: topic.clone() })?;
        if !version.unchecked {
            return Ok(());
        }
        let info = known.info.clone();
        let compiled = compiler::compiled(self, topic, &info).await?;
        self.fit(&compiled, payload).await.inspect_err(|error| self.count_rejection(error))?;
        version.unchecked = false;
        Ok(())
    }

    fn count_rejection(&self, error: &BusError) {
        if let BusError::SchemaRejected(rejected) = error {
            self.base.metrics.topic(&rejected.topic).schema_rejected.inc();
        }
    }
}

fn take_header(meta: &mut EventMeta, name: &str) -> Option<String> {
    let headers = meta.headers.as_mut()?;
    let value = headers.remove(name)?;
    if headers.is_empty() {
        meta.headers = None;
    }
    Some(value)
}

fn choose<'a>(versions: &'a TopicVersions, named: Option<&str>) -> Option<&'a VersionEntry> {
    let Some(named) = named else { return versions.latest() };
    versions.find(named.parse().ok()?)
}
