//! The sections of collections, projectors, changelogs, compactors and reducers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use promethean_jq::Program;
use promethean_model::{CollectionName, GroupName, TopicName};
use promethean_projections::definition::CHANGELOG_BATCH_DEFAULT;
use promethean_projections::{
    ChangelogPrograms, CollectionDeclared, CompactorOptions, Declared, Direction, Field, FieldType, Index,
    Logic, OnFailure, Projector, Reducer, StartAt, Timer,
};
use serde::Deserialize;

use super::file::SpanText;
use super::read_text;

/// The sections of a file that declare state.
#[derive(Debug, Default)]
pub(super) struct Sections {
    pub(super) collections: BTreeMap<CollectionName, CollectionSection>,
    pub(super) projectors: Vec<ProjectorSection>,
    pub(super) changelogs: Vec<ChangelogSection>,
    pub(super) compactors: Vec<CompactorSection>,
    /// For each topic `latest`, `merge`, or a program.
    pub(super) reducers: BTreeMap<TopicName, String>,
    /// Topics that no projector may publish to, beside the ones whose names say so.
    pub(super) reserved: BTreeSet<TopicName>,
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

/// The fields of an index; a `-` before a name means that the field descends.
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

/// Declares the section of a kind of projector: its own settings, then the options of every projector.
///
/// An option is a field of [`Projector`] and an entry of the list below. If the entry is missing,
/// `with_options` does not compile. The list repeats names because serde refuses unknown names only of structs
/// that have all fields themselves, not of structs with a flattened one.
macro_rules! projector_section {
    ($section:ident { $($own:tt)* }) => {
        projector_section! {
            @list $section { $($own)* }
            batch: usize,
            retries: u32,
            on_failure: OnFailure,
            normalize: bool,
            accept_loss: bool,
        }
    };
    (@list $section:ident { $($own:tt)* } $($option:ident: $type:ty,)*) => {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $section {
            $($own)*
            from: Option<StartAt>,
            #[serde(default)]
            start: StartWith,
            $($option: Option<$type>,)*
        }

        impl $section {
            /// Sets the options that the section gives; the others stay as they are.
            fn with_options(self, projector: Projector) -> Result<Projector> {
                let snapshots = (self.start == StartWith::Snapshot).then(|| projector.topic.snapshot());
                let snapshots = snapshots.transpose().context("`start`")?;
                let Projector { name, topic, logic, collections, from, snapshots: _, timer, $($option,)* } =
                    projector;
                let from = self.from.unwrap_or(from);
                $(let $option = self.$option.unwrap_or($option);)*
                Ok(Projector { name, topic, logic, collections, from, snapshots, timer, $($option,)* })
            }
        }
    };
}

projector_section!(ProjectorSection {
    name: GroupName,
    topic: TopicName,
    #[serde(default)]
    collections: Vec<CollectionName>,
    program: Option<String>,
    program_file: Option<PathBuf>,
    /// The time between two runs of the timer.
    every: Option<SpanText>,
    timer: Option<String>,
    timer_file: Option<PathBuf>,
    over: Option<CollectionName>,
});

projector_section!(ChangelogSection {
    name: Option<GroupName>,
    topic: TopicName,
    collection: CollectionName,
    key: Option<String>,
    map: Option<String>,
    tombstone: Option<String>,
    version: Option<String>,
});

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CompactorSection {
    topic: TopicName,
    snapshot: Option<TopicName>,
    every: Option<SpanText>,
    key: Option<String>,
    keys: Option<BTreeSet<String>>,
}

/// What a projector reads first when it is new or rebuilt: the events of its topic, or snapshots of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StartWith {
    #[default]
    Log,
    Snapshot,
}

impl Sections {
    /// Makes the declarations. Paths of program files are relative to `dir`.
    pub(super) fn declared(self, dir: &Path) -> Result<Declared> {
        let defaults: Vec<CollectionName> = self
            .collections
            .iter()
            .filter(|(_, section)| section.default)
            .map(|(name, _)| name.clone())
            .collect();
        if let [first, second, ..] = defaults.as_slice() {
            bail!("`{first}` and `{second}` are both the default collection; set `default` for one only");
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
        let reserved = self.reserved;
        let declared =
            Declared { collections, projectors, compactors, reducers, default_collection, reserved };
        declared.validate()?;
        Ok(declared)
    }
}

impl CompactorSection {
    fn options(self, reducer: Option<&Reducer>) -> Result<CompactorOptions> {
        let default = CompactorOptions::new(self.topic);
        Ok(CompactorOptions {
            snapshot_topic: self.snapshot,
            every: self.every.map_or(default.every, |SpanText(ms)| Duration::from_millis(ms)),
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
    fn projector(mut self, dir: &Path) -> Result<Projector> {
        let program = text_of("program", self.program.take(), self.program_file.take(), dir)?
            .ok_or_else(|| anyhow!("has no `program`; give one, or a `program_file`"))?;
        let timer = self.timer(dir)?;
        let logic = Logic::Jq(compile("program", &program)?);
        let projector = Projector::new(self.name.clone(), self.topic.clone(), logic);
        let projector = projector.writes(std::mem::take(&mut self.collections));
        self.with_options(Projector { timer, ..projector })
    }

    fn timer(&mut self, dir: &Path) -> Result<Option<Timer>> {
        let text = text_of("timer", self.timer.take(), self.timer_file.take(), dir)?;
        let (text, SpanText(ms)) = match (text, self.every) {
            (None, None) => return Ok(None),
            (Some(text), Some(every)) => (text, every),
            _ => bail!("`timer` and `every` belong together; give both, or neither"),
        };
        let over = self.over.take().or_else(|| self.collections.first().cloned());
        let over =
            over.ok_or_else(|| anyhow!("has a `timer` and no collection for it; name it with `over`"))?;
        Ok(Some(Timer { every: Duration::from_millis(ms), over, program: compile("timer", &text)? }))
    }
}

impl ChangelogSection {
    fn projector(mut self) -> Result<Projector> {
        let name = match self.name.take() {
            Some(name) => name,
            None => format!("changelog:{}", self.collection)
                .parse()
                .context("its name is too long; give `name`")?,
        };
        let programs = ChangelogPrograms {
            collection: self.collection.clone(),
            key: self.key.take(),
            map: self.map.take(),
            tombstone: self.tombstone.take(),
            version: self.version.take(),
        };
        let logic = programs.logic().map_err(|(part, error)| anyhow!("`{part}`: {error}"))?;
        let projector = Projector::new(name, self.topic.clone(), logic).writes([self.collection.clone()]);
        self.with_options(Projector { batch: CHANGELOG_BATCH_DEFAULT, ..projector })
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
