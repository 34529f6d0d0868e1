//! Changelogs: projectors for topics whose events are whole documents, or say that a document is gone.
//!
//! A changelog in jq is one program, made of the programs that the configuration gives.

use promethean_jq::{BadProgram, Program};
use promethean_model::{CollectionName, Event};
use serde_json::{Map, Value};

use crate::change::{Change, Removal, Upsert};
use crate::logic::{Logic, Project};

/// The jq programs of a changelog. The input of each is the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangelogPrograms {
    /// The collection that it writes.
    pub collection: CollectionName,
    /// Gives the document's key; no output, `null` or an empty text passes the event over. Default: `.key`.
    pub key: Option<String>,
    /// Gives the document. Default: `.payload`.
    pub map: Option<String>,
    /// Gives `true` if the document is to be removed. A `null` payload and `_deleted: true` always remove it.
    /// Default: `false`.
    pub tombstone: Option<String>,
    /// Gives the document's version; an event whose version is not later than the document's is passed over.
    /// Default: no version.
    pub version: Option<String>,
}

impl ChangelogPrograms {
    /// Compiles the programs to one. Each is compiled alone first, so that an error names its setting and
    /// line.
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
        // Each program has lines of its own, so that a comment at its end does not reach the next.
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

type EventFn<T> = Box<dyn Fn(&Event) -> T + Send + Sync>;

/// The functions of a changelog in Rust.
pub struct Changelog {
    collection: CollectionName,
    key: EventFn<Option<String>>,
    map: EventFn<Result<Map<String, Value>, String>>,
    tombstone: EventFn<bool>,
    version: EventFn<Option<i64>>,
}

impl Changelog {
    /// A changelog whose documents have the event's key and payload.
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

    /// Sets the function for the document's key; `None` passes the event over.
    #[must_use]
    pub fn key(mut self, key: impl Fn(&Event) -> Option<String> + Send + Sync + 'static) -> Self {
        self.key = Box::new(key);
        self
    }

    /// Sets the function for the document's fields.
    #[must_use]
    pub fn map(
        mut self,
        map: impl Fn(&Event) -> Result<Map<String, Value>, String> + Send + Sync + 'static,
    ) -> Self {
        self.map = Box::new(map);
        self
    }

    /// Sets a function that says which further events remove the document.
    #[must_use]
    pub fn tombstone(mut self, tombstone: impl Fn(&Event) -> bool + Send + Sync + 'static) -> Self {
        self.tombstone = Box::new(tombstone);
        self
    }

    /// Sets the function for the document's version.
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
