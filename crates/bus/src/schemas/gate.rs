//! The check of payloads against their topic's schema when they are published.

use std::sync::Arc;

use promethean_model::{SchemaRule, TopicSettings};
use promethean_schema::VERSION_HEADER;

use super::catalog::{TopicVersions, VersionEntry};
use super::compiler;
use crate::core::Core;
use crate::error::BusError;
use crate::publish::{Checked, Prepared};

/// The payload of a tombstone.
pub(super) const TOMBSTONE: &str = "null";

/// The schema version of an event on its way to the store. While this is held, the version is not deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaVersion {
    /// The number of the version.
    pub version: u32,
    /// Whether the payload must still be checked, because the compiled schema was not in memory.
    pub(crate) unchecked: bool,
    /// Counts as one use of the version for as long as it is held.
    pub(crate) uses: Arc<()>,
}

/// Checks a payload against its topic's schema and puts the version into the event's header. Never waits: a schema that
/// must be read from the store first is left to [`finish`].
pub(crate) fn stamp(
    core: &Core,
    checked: &mut Checked,
    settings: &TopicSettings,
) -> Result<Option<SchemaVersion>, BusError> {
    // Also where no schema is checked: readers trust the header to be the server's.
    let named = checked.take_header(VERSION_HEADER);
    if settings.schema == SchemaRule::Off {
        return Ok(None);
    }
    let versions = core.schemas.get(checked.topic());
    if checked.payload() == TOMBSTONE {
        return Ok(None);
    }
    let Some(versions) = versions else {
        return match (named, settings.schema) {
            (Some(version), _) => {
                Err(BusError::UnknownSchema { topic: checked.topic().clone(), version, latest: None })
            }
            (None, SchemaRule::Required) => Err(BusError::SchemaRequired { topic: checked.topic().clone() }),
            (None, _) => Ok(None),
        };
    };
    let Some(known) = choose(&versions, named.as_deref()) else {
        let latest = versions.latest().map(|known| known.info.version);
        let version = named.unwrap_or_default();
        return Err(BusError::UnknownSchema { topic: checked.topic().clone(), version, latest });
    };
    let compiled = core.schemas.cache.get(checked.topic(), &known.info.fingerprint, known.info.version);
    if let Some(compiled) = &compiled {
        compiled.check(checked.payload()).inspect_err(|error| count(core, error))?;
    }
    let version = known.info.version;
    checked.set_header(VERSION_HEADER, version.to_string());
    Ok(Some(SchemaVersion { version, unchecked: compiled.is_none(), uses: Arc::clone(&known.uses) }))
}

/// Checks a payload that [`stamp`] could not, and that its version still exists.
pub(crate) async fn finish(core: &Core, prepared: &mut Prepared) -> Result<(), BusError> {
    let Some(stamp) = &mut prepared.stamp else { return Ok(()) };
    let topic = &prepared.event.topic;
    let versions = core.schemas.get(topic);
    let known = versions.as_ref().and_then(|versions| versions.find(stamp.version));
    // The topic can be deleted meanwhile, its schemas with it, and other schemas be registered under the same numbers.
    let known = known.filter(|known| Arc::ptr_eq(&known.uses, &stamp.uses));
    let known = known.ok_or_else(|| BusError::TopicDeleted { topic: topic.clone() })?;
    if !stamp.unchecked {
        return Ok(());
    }
    let info = known.info.clone();
    let compiled = compiler::compiled(core, topic, &info).await?;
    compiled.check(&prepared.event.payload).inspect_err(|error| count(core, error))?;
    stamp.unchecked = false;
    Ok(())
}

fn choose<'a>(versions: &'a TopicVersions, named: Option<&str>) -> Option<&'a VersionEntry> {
    let Some(named) = named else { return versions.latest() };
    versions.find(named.parse().ok()?)
}

fn count(core: &Core, error: &BusError) {
    if let BusError::SchemaRejected(rejected) = error {
        core.metrics.topic(&rejected.topic).schema_rejected.inc();
    }
}
