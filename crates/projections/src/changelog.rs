//! A topic that says what documents are: each event is the new state of its key, or says that it is gone.
//!
//! In jq this is a program made of the parts that the configuration gives.

use promethean_jq::{BadProgram, Program};
use promethean_model::{CollectionName, Event};
use serde_json::{Map, Value};

use crate::change::{Change, Removal, Upsert};
use crate::logic::{Logic, Project};

/// A changelog as jq: each program's input is the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangelogPrograms {
    /// Where documents go.
    pub collection: CollectionName,
    /// The document's key; nothing, null or an empty text passes the event over. Default: `.key`.
    pub key: Option<String>,
    /// The document. Default: `.payload`.
    pub map: Option<String>,
    /// Whether the document goes, beside `null` and `_deleted: true`, with which it always does.
    pub tombstone: Option<String>,
    /// The document's version; an event with one that is not later is passed over.
    pub version: Option<String>,
}

impl ChangelogPrograms {
    /// The program that they are together. Each is compiled by itself too, so that an error has its own line.
    pub fn logic(&self) -> Result<Logic, (&'static str, BadProgram)> {
        let part = |name: &'static str, given: &Option<String>, default: &str| {
            let text = given.clone().unwrap_or_else(|| default.to_owned());
            Program::compile(&text).map_err(|error| (name, error))?;
            Ok::<String, (&'static str, BadProgram)>(text)
        };
        let key = part("key", &self.key, ".key")?;
        let map = part("map", &self.map, ".payload")?;
        let tombstone = part("tombstone", &self.tombstone, "false")?;
        let version = part("version", &self.version, "null")?;
        let collection = Value::String(self.collection.to_string());
        // Each on lines of its own: a comment in one ends with it.
        let text = format!(
            r#"([(
{key}
)][0] | if . == null then . else tostring end) as $key
| ([(
{version}
)][0] | if . == null then {{}} else {{version: .}} end) as $version
| if $key == null or $key == "" then empty
  elif .payload == null or ((.payload | type) == "object" and .payload._deleted == true) or ([(
{tombstone}
)][0] == true) then {{delete: ({{collection: {collection}, key: $key}} + $version)}}
  else {{upsert: ({{collection: {collection}, key: $key, set: [(
{map}
)][0]}} + $version)}} end"#
        );
        Program::compile(&text).map(Logic::Jq).map_err(|error| ("changelog", error))
    }
}

type Part<T> = Box<dyn Fn(&Event) -> T + Send + Sync>;

/// A changelog in Rust.
pub struct Changelog {
    collection: CollectionName,
    key: Part<Option<String>>,
    map: Part<Result<Map<String, Value>, String>>,
    tombstone: Part<bool>,
    version: Part<Option<i64>>,
}

impl Changelog {
    /// Documents by the event's key that are the event's payload.
    pub fn new(collection: CollectionName) -> Self {
        Self {
            collection,
            key: Box::new(|event| event.key.clone()),
            map: Box::new(|event| {
                serde_json::from_str(event.payload.get()).map_err(|error| error.to_string())
            }),
            tombstone: Box::new(|_| false),
            version: Box::new(|_| None),
        }
    }

    /// With another key; none passes the event over.
    #[must_use]
    pub fn key(mut self, key: impl Fn(&Event) -> Option<String> + Send + Sync + 'static) -> Self {
        self.key = Box::new(key);
        self
    }

    /// With other fields.
    #[must_use]
    pub fn map(
        mut self,
        map: impl Fn(&Event) -> Result<Map<String, Value>, String> + Send + Sync + 'static,
    ) -> Self {
        self.map = Box::new(map);
        self
    }

    /// With more events after which the document goes.
    #[must_use]
    pub fn tombstone(mut self, tombstone: impl Fn(&Event) -> bool + Send + Sync + 'static) -> Self {
        self.tombstone = Box::new(tombstone);
        self
    }

    /// With versions.
    #[must_use]
    pub fn version(mut self, version: impl Fn(&Event) -> Option<i64> + Send + Sync + 'static) -> Self {
        self.version = Box::new(version);
        self
    }
}

impl Project for Changelog {
    fn project(&self, event: &Event) -> Result<Vec<Change>, String> {
        let Some(key) = (self.key)(event).filter(|key| !key.is_empty()) else { return Ok(Vec::new()) };
        if event.is_tombstone() || is_deleted(event) || (self.tombstone)(event) {
            let version = (self.version)(event);
            return Ok(vec![Change::Delete(Removal { collection: self.collection.clone(), key, version })]);
        }
        let mut change = Change::upsert(self.collection.clone(), key);
        if let Change::Upsert(Upsert { set, version, .. }) = &mut change {
            *set = (self.map)(event)?;
            *version = (self.version)(event);
        }
        Ok(vec![change])
    }
}

fn is_deleted(event: &Event) -> bool {
    event.payload.get().contains("_deleted")
        && serde_json::from_str::<Map<String, Value>>(event.payload.get())
            .is_ok_and(|fields| fields.get("_deleted") == Some(&Value::Bool(true)))
}

impl std::fmt::Debug for Changelog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changelog").field("collection", &self.collection).finish_non_exhaustive()
    }
}
