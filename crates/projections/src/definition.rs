//! Definitions: the collections, projectors, compactors and reducers that are declared.
//!
//! An option of projectors is a field of [`Projector`] with its default in [`Projector::new`], and a check in
//! [`Declared::validate`] if some values cannot work. The configuration file reads it with the types of this
//! module.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use promethean_jq::Program;
use promethean_model::{CollectionName, GroupName, TopicName};
use promethean_store::port::{Collection, Field, Index, Keeping};
use serde::Deserialize;

use crate::compactor::CompactorOptions;
use crate::error::ProjectionError;
use crate::logic::Logic;
use crate::publish_literals::publish_literals;
use crate::time_travel::Reducer;

/// The end of the name of a collection that a rebuild writes.
const SHADOW: &str = ":rebuild";
/// The end of the name of a collection that has the versions of deleted documents.
const DELETED: &str = ":deleted";

/// Names of query parameters, which therefore cannot be names of fields.
const LIST_PARAMETERS: [&str; 2] = ["offset", "limit"];

/// The most events of one commit of a projector, by default.
pub const BATCH_DEFAULT: usize = 200;
/// The most events of one commit of a changelog, by default.
pub const CHANGELOG_BATCH_DEFAULT: usize = 500;
/// The largest `batch` that can be set.
pub const BATCH_MAX: usize = 10_000;
/// How often an event is tried again, by default.
pub const RETRIES_DEFAULT: u32 = 3;

/// Everything that is declared.
#[derive(Debug, Clone, Default)]
pub struct Declared {
    /// Collections.
    pub collections: Vec<CollectionDeclared>,
    /// Projectors.
    pub projectors: Vec<Projector>,
    /// Compactors.
    pub compactors: Vec<CompactorOptions>,
    /// How the state of a key follows from its events, for topics where it is not the latest event.
    pub reducers: BTreeMap<TopicName, Reducer>,
    /// The collection of `/snap` and `/list`.
    pub default_collection: Option<CollectionName>,
    /// Topics of the server, beside the ones whose names say so, that no projector may publish to.
    pub reserved: BTreeSet<TopicName>,
}

/// A collection that is declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectionDeclared {
    /// Its name.
    pub name: CollectionName,
    /// The fields that queries may name.
    pub fields: Vec<Field>,
    /// Its indexes.
    pub indexes: Vec<Index>,
    /// Whether every change of a document is published to `<name>.changed`.
    pub history: bool,
}

/// Where a new projector begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartAt {
    /// At the first event of the topic.
    #[default]
    Earliest,
    /// At the next event that is published.
    Latest,
}

/// What happens to an event that failed at every try.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// It becomes a dead letter, and the projector goes on.
    #[default]
    DeadLetter,
    /// The projector halts at the event.
    Halt,
}

/// A projector that is declared.
#[derive(Debug, Clone)]
pub struct Projector {
    /// Its name, and the name of its group.
    pub name: GroupName,
    /// The topic it reads.
    pub topic: TopicName,
    /// The function from an event to changes.
    pub logic: Logic,
    /// The collections it writes, as their only writer.
    pub collections: Vec<CollectionName>,
    /// Where it begins when it is new. Default: the first event.
    pub from: StartAt,
    /// The topic of the snapshots that it reads when it is new or rebuilt, in place of the events that are in
    /// them. Where there are none it begins at the first event. Default: none.
    pub snapshots: Option<TopicName>,
    /// The most events of one commit. Default: 200, of a changelog 500. Maximum: 10,000.
    pub batch: usize,
    /// How often an event is tried again. Default: 3.
    pub retries: u32,
    /// What happens to an event after the last try. Default: it becomes a dead letter.
    pub on_failure: OnFailure,
    /// Whether old events are lifted to the latest version of their schema. Default: no.
    pub normalize: bool,
    /// Whether it goes on where retention took events that it had not read. Default: no, it halts.
    pub accept_loss: bool,
    /// Its timer. Default: none.
    pub timer: Option<Timer>,
}

/// A program that looks at every document of a collection again and again, and may publish.
#[derive(Debug, Clone)]
pub struct Timer {
    /// The time between two runs. Minimum: 10 ms.
    pub every: Duration,
    /// The collection whose documents it looks at.
    pub over: CollectionName,
    /// Its input is `{now, key, doc}`, each of its outputs `{publish: ...}`.
    pub program: Program,
}

impl Projector {
    /// A projector with every option at its default.
    pub fn new(name: GroupName, topic: TopicName, logic: Logic) -> Self {
        Self {
            name,
            topic,
            logic,
            collections: Vec::new(),
            from: StartAt::Earliest,
            snapshots: None,
            batch: BATCH_DEFAULT,
            retries: RETRIES_DEFAULT,
            on_failure: OnFailure::DeadLetter,
            normalize: false,
            accept_loss: false,
            timer: None,
        }
    }

    /// Adds collections to write.
    #[must_use]
    pub fn writes(mut self, collections: impl IntoIterator<Item = CollectionName>) -> Self {
        self.collections.extend(collections);
        self
    }

    /// A hash of everything that its state depends on.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut text = format!("{}\0{}\0{}", self.topic, self.normalize, self.logic.text());
        for collection in &self.collections {
            text.push('\0');
            text.push_str(collection.as_str());
        }
        xxhash_rust::xxh3::xxh3_64(text.as_bytes())
    }
}

impl CollectionDeclared {
    /// A collection without fields and indexes.
    pub fn new(name: CollectionName) -> Self {
        Self { name, fields: Vec::new(), indexes: Vec::new(), history: false }
    }

    pub(crate) fn to_store(&self, name: CollectionName) -> Collection {
        let (fields, indexes) = (self.fields.clone(), self.indexes.clone());
        Collection { name, keeping: Keeping::Derived, fields, indexes }
    }
}

impl Declared {
    /// Refuses declarations that cannot work.
    pub fn validate(&self) -> Result<(), ProjectionError> {
        let mut known = BTreeSet::new();
        for collection in &self.collections {
            let name = &collection.name;
            let what = || format!("collection `{name}`");
            if is_hidden(name) {
                let reason = format!(
                    "names that end in `{SHADOW}` or `{DELETED}` are kept for the server; take another"
                );
                return Err(bad(what(), reason));
            }
            deleted(&shadow(name)?)?;
            if collection.history && name.changed_topic().is_err() {
                return Err(bad(
                    what(),
                    "with `history` its name must be a topic's name too; take another".to_owned(),
                ));
            }
            if let Some(field) =
                collection.fields.iter().find(|field| LIST_PARAMETERS.contains(&field.name.as_str()))
            {
                let reason = format!(
                    "field `{}` has the name of a parameter of lists, so that no query could name it; call it something else",
                    field.name
                );
                return Err(bad(what(), reason));
            }
            let unknown = collection.indexes.iter().flat_map(|index| &index.fields);
            let mut unknown =
                unknown.filter(|(field, _)| !collection.fields.iter().any(|one| one.name == *field));
            if let Some((field, _)) = unknown.next() {
                return Err(bad(what(), format!("has an index over `{field}`; declare that field")));
            }
            if !known.insert(name) {
                return Err(bad(what(), "is declared twice; declare it once".to_owned()));
            }
        }
        if let Some(default) = &self.default_collection
            && !known.contains(default)
        {
            return Err(bad(
                format!("collection `{default}`"),
                "is the default and not declared; declare it".to_owned(),
            ));
        }
        self.validate_projectors(&known)
    }

    fn validate_projectors(&self, known: &BTreeSet<&CollectionName>) -> Result<(), ProjectionError> {
        let (mut names, mut writers) = (BTreeSet::new(), BTreeMap::new());
        for projector in &self.projectors {
            let name = &projector.name;
            let what = || format!("projector `{name}`");
            if !names.insert(name) {
                return Err(bad(what(), "is declared twice; give each a name of its own".to_owned()));
            }
            if !(1..=BATCH_MAX).contains(&projector.batch) {
                return Err(bad(what(), format!("`batch` is {}; give 1 to {BATCH_MAX}", projector.batch)));
            }
            if projector.snapshots.is_some() && projector.from == StartAt::Latest {
                let reason = "begins with snapshots and with the latest event; leave out `start` or `from`";
                return Err(bad(what(), reason.to_owned()));
            }
            if projector.snapshots.is_some() && projector.normalize {
                let reason = "begins with snapshots, which are of no version, and lifts old events; leave out `start` or `normalize`";
                return Err(bad(what(), reason.to_owned()));
            }
            let over = projector.timer.as_ref().map(|timer| &timer.over);
            if let Some(unknown) = projector.collections.iter().chain(over).find(|name| !known.contains(name))
            {
                return Err(bad(
                    what(),
                    format!("names collection `{unknown}`, which is not declared; declare that collection"),
                ));
            }
            self.validate_targets(projector)?;
            if projector.timer.as_ref().is_some_and(|timer| timer.every < Duration::from_millis(10)) {
                return Err(bad(what(), "`every` is less than 10ms; give more".to_owned()));
            }
            for collection in &projector.collections {
                if let Some(other) = writers.insert(collection, name) {
                    let reason =
                        format!("writes `{collection}`, as `{other}` does; let one of them write it");
                    return Err(bad(what(), reason));
                }
            }
        }
        Ok(())
    }
}

impl Declared {
    /// Refuses programs that name a reserved topic as the target of a publish.
    fn validate_targets(&self, projector: &Projector) -> Result<(), ProjectionError> {
        let timer = projector.timer.as_ref().map(|timer| timer.program.text());
        let logic = match &projector.logic {
            Logic::Rust(_) => None,
            Logic::Jq(program) => Some(program.text()),
        };
        for name in logic.into_iter().chain(timer).flat_map(publish_literals) {
            // A name that is no topic's name fails when it is published to.
            let Ok(topic) = name.parse() else { continue };
            check_target(&topic, &self.reserved)
                .map_err(|reason| bad(format!("projector `{}`", projector.name), reason))?;
        }
        Ok(())
    }
}

/// Refuses topics that only the server writes, as targets of a program's publishes.
pub(crate) fn check_target(topic: &TopicName, reserved: &BTreeSet<TopicName>) -> Result<(), String> {
    if let Err(error) = TopicName::parse_user(topic.as_str()) {
        return Err(format!("it may not publish to a reserved topic: {error}"));
    }
    if reserved.contains(topic) {
        return Err(format!(
            "it may not publish to the reserved topic `{topic}`, which only the server writes; name another"
        ));
    }
    Ok(())
}

/// The name of a collection in the store while a rebuild writes it.
pub(crate) fn shadow(name: &CollectionName) -> Result<CollectionName, ProjectionError> {
    with_end(name, SHADOW)
}

/// The name of the collection that has the versions of deleted documents of a stored collection.
pub(crate) fn deleted(stored_as: &CollectionName) -> Result<CollectionName, ProjectionError> {
    with_end(stored_as, DELETED)
}

/// Whether users do not see a collection of this name.
pub(crate) fn is_hidden(name: &CollectionName) -> bool {
    [SHADOW, DELETED].iter().any(|end| name.as_str().ends_with(end))
}

fn with_end(name: &CollectionName, end: &str) -> Result<CollectionName, ProjectionError> {
    format!("{name}{end}").parse().map_err(|_| {
        let reason = format!("its name with `{end}` at its end is too long; take a shorter one");
        bad(format!("collection `{name}`"), reason)
    })
}

/// The error for a declaration that cannot work.
pub(crate) fn bad(what: String, reason: String) -> ProjectionError {
    ProjectionError::BadDeclaration { what, reason }
}
