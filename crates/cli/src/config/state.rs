//! Collections and projectors.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use promethean_bus::jq::Program;
use promethean_model::{CollectionName, GroupName, TopicName};
use promethean_projections::definition::{BATCH_DEFAULT, CHANGELOG_BATCH_DEFAULT, RETRIES_DEFAULT};
use promethean_projections::{
    ChangelogPrograms, CollectionDeclared, CompactorOptions, Declared, Direction, Field, FieldType, Index,
    Logic, OnFailure, Projector, Reducer, StartAt, Timer,
};
use serde::Deserialize;

use super::file::Span;
use super::read_text;

/// What a file may say of state.
#[derive(Debug, Default)]
pub(super) struct Sections {
    pub(super) collections: BTreeMap<CollectionName, CollectionSection>,
    pub(super) projectors: Vec<ProjectorSection>,
    pub(super) changelogs: Vec<ChangelogSection>,
    pub(super) compactors: Vec<CompactorSection>,
    /// `latest`, `merge`, or a program.
    pub(super) reducers: BTreeMap<TopicName, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CollectionSection {
    default: bool,
    history: bool,
    fields: BTreeMap<String, Kind>,
    indexes: Vec<IndexSection>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    String,
    Number,
    Bool,
}

/// Fields, greatest first where a `-` is before the name.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "not understood; give `[\"field\", \"-field\"]` or `{ fields = [...], unique = true }`"
)]
enum IndexSection {
    Fields(Vec<String>),
    Whole(WholeIndex),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WholeIndex {
    fields: Vec<String>,
    #[serde(default)]
    unique: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProjectorSection {
    name: GroupName,
    topic: TopicName,
    #[serde(default)]
    collections: Vec<CollectionName>,
    program: Option<String>,
    program_file: Option<PathBuf>,
    /// How often the timer's program runs.
    every: Option<Span>,
    timer: Option<String>,
    timer_file: Option<PathBuf>,
    over: Option<CollectionName>,
    #[serde(default)]
    from: Begin,
    #[serde(default)]
    start: StartWith,
    batch: Option<usize>,
    retries: Option<u32>,
    #[serde(default)]
    on_failure: Failing,
    #[serde(default)]
    normalize: bool,
    #[serde(default)]
    accept_loss: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangelogSection {
    name: Option<GroupName>,
    topic: TopicName,
    collection: CollectionName,
    key: Option<String>,
    map: Option<String>,
    tombstone: Option<String>,
    version: Option<String>,
    #[serde(default)]
    from: Begin,
    #[serde(default)]
    start: StartWith,
    batch: Option<usize>,
    retries: Option<u32>,
    #[serde(default)]
    on_failure: Failing,
    #[serde(default)]
    normalize: bool,
    #[serde(default)]
    accept_loss: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CompactorSection {
    topic: TopicName,
    snapshot: Option<TopicName>,
    every: Option<Span>,
    key: Option<String>,
    keys: Option<BTreeSet<String>>,
}

/// What both kinds of projectors can be told.
struct Options {
    from: Begin,
    start: StartWith,
    batch: Option<usize>,
    retries: Option<u32>,
    on_failure: Failing,
    normalize: bool,
    accept_loss: bool,
}

/// Serde refuses unknown names only of structs that have all theirs themselves, so both sections list these.
macro_rules! options {
    ($section:expr) => {
        Options {
            from: $section.from,
            start: $section.start,
            batch: $section.batch,
            retries: $section.retries,
            on_failure: $section.on_failure,
            normalize: $section.normalize,
            accept_loss: $section.accept_loss,
        }
    };
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Begin {
    #[default]
    Earliest,
    Latest,
}

/// What a projector begins with when it is new, or rebuilt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StartWith {
    #[default]
    Log,
    Snapshot,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Failing {
    #[default]
    DeadLetter,
    Halt,
}

impl Sections {
    /// What is declared; programs in files are relative to `dir`.
    pub(super) fn declared(self, dir: &Path) -> Result<Declared> {
        let defaults: Vec<CollectionName> = self
            .collections
            .iter()
            .filter(|(_, section)| section.default)
            .map(|(name, _)| name.clone())
            .collect();
        if let [first, second, ..] = defaults.as_slice() {
            bail!("`{first}` and `{second}` are both the default collection; let it be one");
        }
        let collections =
            self.collections.into_iter().map(|(name, section)| section.declared(name)).collect();
        let mut projectors = Vec::new();
        for section in self.projectors {
            let name = section.name.clone();
            projectors.push(section.projector(dir).with_context(|| format!("projector `{name}`"))?);
        }
        for section in self.changelogs {
            let collection = section.collection.clone();
            projectors.push(section.projector().with_context(|| format!("changelog of `{collection}`"))?);
        }
        let mut reducers = BTreeMap::new();
        for (topic, text) in self.reducers {
            let reducer = reducer(&text).with_context(|| format!("the reducer of `{topic}`"))?;
            reducers.insert(topic, reducer);
        }
        let mut compactors = Vec::new();
        for section in self.compactors {
            let topic = section.topic.clone();
            let options = section.options(reducers.get(&topic));
            compactors.push(options.with_context(|| format!("the compactor of `{topic}`"))?);
        }
        for projector in projectors.iter_mut().filter(|projector| projector.snapshots.is_some()) {
            let compactor = compactors.iter().find(|compactor| compactor.topic == projector.topic);
            if let Some(snapshots) = compactor.and_then(|compactor| compactor.snapshot_topic.clone()) {
                projector.snapshots = Some(snapshots);
            }
        }
        let default_collection = defaults.into_iter().next();
        let declared = Declared { collections, projectors, compactors, reducers, default_collection };
        declared.validate()?;
        Ok(declared)
    }
}

impl CompactorSection {
    fn options(self, reducer: Option<&Reducer>) -> Result<CompactorOptions> {
        let default = CompactorOptions::new(self.topic);
        Ok(CompactorOptions {
            snapshot_topic: self.snapshot,
            every: self.every.map_or(default.every, |Span(ms)| Duration::from_millis(ms)),
            key: self.key.map(|text| compile("key", &text)).transpose()?,
            keys: self.keys,
            reducer: reducer.cloned().unwrap_or_default(),
            ..default
        })
    }
}

fn reducer(text: &str) -> Result<Reducer> {
    match text {
        "latest" => Ok(Reducer::Latest),
        "merge" => Ok(Reducer::Merge),
        program => Ok(Reducer::Jq(compile("program", program)?)),
    }
}

impl CollectionSection {
    fn declared(self, name: CollectionName) -> CollectionDeclared {
        let field = |(name, kind): (String, Kind)| Field {
            name,
            kind: match kind {
                Kind::String => FieldType::Text,
                Kind::Number => FieldType::Number,
                Kind::Bool => FieldType::Bool,
            },
        };
        CollectionDeclared {
            name,
            fields: self.fields.into_iter().map(field).collect(),
            indexes: self.indexes.into_iter().map(IndexSection::index).collect(),
            history: self.history,
        }
    }
}

impl IndexSection {
    fn index(self) -> Index {
        let (fields, unique) = match self {
            Self::Fields(fields) => (fields, false),
            Self::Whole(WholeIndex { fields, unique }) => (fields, unique),
        };
        let directed = |name: String| match name.strip_prefix('-') {
            Some(rest) => (rest.to_owned(), Direction::Descending),
            None => (name, Direction::Ascending),
        };
        Index { fields: fields.into_iter().map(directed).collect(), unique }
    }
}

impl ProjectorSection {
    fn projector(self, dir: &Path) -> Result<Projector> {
        let options = options!(self);
        let program = text_of("program", self.program, self.program_file, dir)?
            .ok_or_else(|| anyhow!("has no `program`; give one, or a `program_file`"))?;
        let timer = text_of("timer", self.timer, self.timer_file, dir)?;
        let timer = match (timer, self.every) {
            (None, None) => None,
            (Some(text), Some(Span(ms))) => Some(Timer {
                every: Duration::from_millis(ms),
                over: self
                    .over
                    .or_else(|| self.collections.first().cloned())
                    .ok_or_else(|| anyhow!("has a `timer` and no collection for it; say which by `over`"))?,
                program: compile("timer", &text)?,
            }),
            _ => bail!("`timer` and `every` belong together; give both, or neither"),
        };
        let logic = Logic::Jq(compile("program", &program)?);
        let projector = Projector::new(self.name, self.topic, logic).writes(self.collections);
        Ok(Projector { timer, ..options.apply(projector, BATCH_DEFAULT)? })
    }
}

impl ChangelogSection {
    fn projector(self) -> Result<Projector> {
        let options = options!(self);
        let name = match self.name {
            Some(name) => name,
            None => format!("changelog:{}", self.collection)
                .parse()
                .context("its name is too long; give `name`")?,
        };
        let programs = ChangelogPrograms {
            collection: self.collection.clone(),
            key: self.key,
            map: self.map,
            tombstone: self.tombstone,
            version: self.version,
        };
        let logic = programs.logic().map_err(|(part, error)| anyhow!("`{part}`: {error}"))?;
        let projector = Projector::new(name, self.topic, logic).writes([self.collection]);
        options.apply(projector, CHANGELOG_BATCH_DEFAULT)
    }
}

impl Options {
    fn apply(self, projector: Projector, batch: usize) -> Result<Projector> {
        let snapshots = (self.start == StartWith::Snapshot).then(|| projector.topic.snapshot());
        Ok(Projector {
            snapshots: snapshots.transpose().context("`start`")?,
            from: match self.from {
                Begin::Earliest => StartAt::Earliest,
                Begin::Latest => StartAt::Latest,
            },
            batch: self.batch.unwrap_or(batch),
            retries: self.retries.unwrap_or(RETRIES_DEFAULT),
            on_failure: match self.on_failure {
                Failing::DeadLetter => OnFailure::DeadLetter,
                Failing::Halt => OnFailure::Halt,
            },
            normalize: self.normalize,
            accept_loss: self.accept_loss,
            ..projector
        })
    }
}

fn text_of(what: &str, text: Option<String>, file: Option<PathBuf>, dir: &Path) -> Result<Option<String>> {
    match (text, file) {
        (Some(_), Some(_)) => bail!("has `{what}` and `{what}_file`; give one of them"),
        (Some(text), None) => Ok(Some(text)),
        (None, Some(file)) => read_text(&dir.join(file)).map(Some),
        (None, None) => Ok(None),
    }
}

fn compile(what: &str, text: &str) -> Result<Program> {
    Program::compile(text).map_err(|error| anyhow!("`{what}`: {error}"))
}
