//! Schemas and programs from a folder of files.
//!
//! ```text
//! schemas/
//!   orders.placed/
//!     v1.json            a version of the topic's schema
//!     v2.json
//!     v1-to-v2.jq        lifts events of version 1 on read
//!     v2-to-v1.jq        publishes every event in its form of version 1 too, to orders.placed.v1
//! ```
//!
//! Files whose name begins with `.`, and `README.md`, are passed over. Any other file is refused: a file with
//! a misspelt name would be a schema that is not checked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use promethean_jq::Program;
use promethean_model::TopicName;
use promethean_schema::{SCHEMA_BYTES_MAX, SchemaText};
use serde::Serialize;
use thiserror::Error;

use super::Schemas;
use super::evolution::{DualWrite, Upcaster};
use super::info::RegisterOptions;
use crate::error::BusError;

/// The schemas and programs of a folder, read and compiled.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SchemaFolder {
    topics: BTreeMap<TopicName, TopicFiles>,
}

/// The files of a topic.
#[derive(Debug, Clone, Default, PartialEq)]
struct TopicFiles {
    schemas: BTreeMap<u32, (PathBuf, SchemaText)>,
    upcasters: Vec<Upcaster>,
    dual: Option<(PathBuf, u32, DualWrite)>,
}

/// The refusal of a file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{}`: {reason}", path.display())]
pub struct FolderError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong and what to change.
    pub reason: String,
    /// The refusal by the bus, if the bus refused it.
    pub refusal: Option<Box<BusError>>,
}

/// What applying a folder changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FolderReport {
    /// What changed for each topic.
    pub topics: Vec<TopicReport>,
}

/// What applying a folder changed for a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TopicReport {
    /// The topic.
    pub topic: TopicName,
    /// Versions that were registered.
    pub registered: Vec<u32>,
    /// Versions that were registered before.
    pub unchanged: Vec<u32>,
    /// Upcasters that were set.
    pub upcasters: usize,
    /// The old version that events are published in too.
    pub dual_write: Option<u32>,
}

impl SchemaFolder {
    /// Reads a folder. It waits for the disk and compiles programs, so it does not belong on an async thread.
    pub fn read(root: &Path) -> Result<Self, FolderError> {
        let mut folder = Self::default();
        for path in entries(root)? {
            let name = name_of(&path);
            if passed_over(&name) {
                continue;
            }
            let topic = name.parse::<TopicName>().map_err(|error| fail(&path, error))?;
            if !path.is_dir() {
                return Err(fail(&path, "a folder with the topic's name belongs here"));
            }
            let files = TopicFiles::read(&path)?;
            folder.topics.insert(topic, files);
        }
        Ok(folder)
    }

    /// The topics it has files for.
    pub fn topics(&self) -> impl Iterator<Item = &TopicName> {
        self.topics.keys()
    }
}

impl TopicFiles {
    fn read(folder: &Path) -> Result<Self, FolderError> {
        let mut files = Self::default();
        for path in entries(folder)? {
            let name = name_of(&path);
            if passed_over(&name) {
                continue;
            }
            match parse(&name) {
                Some(SchemaFile::Schema(version)) => {
                    let text = text(&path, SCHEMA_BYTES_MAX)?;
                    let text = SchemaText::parse(text).map_err(|error| refused(&path, error.into()))?;
                    files.schemas.insert(version, (path, text));
                }
                Some(SchemaFile::Program(from, to)) => {
                    let text = text(&path, SCHEMA_BYTES_MAX)?;
                    let program = Program::compile(&text).map_err(|error| fail(&path, error))?;
                    files.add(path, from, to, program)?;
                }
                None => {
                    let message =
                        "the name of the file is not known; use v1.json, v1-to-v2.jq, or v2-to-v1.jq";
                    return Err(fail(&path, message));
                }
            }
        }
        Ok(files)
    }

    fn add(&mut self, path: PathBuf, from: u32, to: u32, program: Program) -> Result<(), FolderError> {
        if from < to {
            if self.upcasters.iter().any(|known| known.from == from) {
                return Err(fail(&path, format!("there is another program from version {from}; keep one")));
            }
            self.upcasters.push(Upcaster { from, to, program });
        } else if self.dual.is_some() {
            return Err(fail(&path, "events are published in one old form only; keep one downcaster"));
        } else {
            self.dual = Some((path, from, DualWrite { from, version: to, program }));
        }
        Ok(())
    }
}

impl Schemas {
    /// Does the work of [`crate::Bus::apply_schemas`].
    pub(crate) async fn apply(self: &Arc<Self>, folder: SchemaFolder) -> Result<FolderReport, FolderError> {
        let mut report = FolderReport::default();
        for (topic, files) in folder.topics {
            report.topics.push(self.apply_topic(topic, files).await?);
        }
        Ok(report)
    }

    async fn apply_topic(
        self: &Arc<Self>,
        topic: TopicName,
        files: TopicFiles,
    ) -> Result<TopicReport, FolderError> {
        let (mut registered, mut unchanged) = (Vec::new(), Vec::new());
        let configured = files.schemas.keys().copied().collect();
        self.catalog.change_evolution(&topic, |evolution| evolution.configured = configured);
        let latest = files.schemas.keys().next_back().copied();
        for (version, (path, text)) in files.schemas {
            if self.register_file(&topic, version, &path, text).await? {
                registered.push(version);
            } else {
                unchanged.push(version);
            }
        }
        let here = || PathBuf::from(topic.as_str());
        let upcasters = files.upcasters.len();
        self.set_upcasters(&topic, files.upcasters).map_err(|error| refused(&here(), error))?;
        let dual_write = files.dual.as_ref().map(|(_, _, dual)| dual.version);
        if let Some((path, from, _)) = &files.dual
            && Some(*from) != latest
        {
            return Err(fail(path, "a downcaster begins with the latest version; rename or remove it"));
        }
        let path = files.dual.as_ref().map_or_else(here, |(path, ..)| path.clone());
        let dual = files.dual.map(|(_, _, dual)| dual);
        self.set_dual_write(&topic, dual).map_err(|error| refused(&path, error))?;
        Ok(TopicReport { topic, registered, unchanged, upcasters, dual_write })
    }

    /// Registers the version of a file; `false` if it was registered before.
    async fn register_file(
        self: &Arc<Self>,
        topic: &TopicName,
        version: u32,
        path: &Path,
        text: SchemaText,
    ) -> Result<bool, FolderError> {
        let known = self.list(topic);
        if let Some(known) = known.iter().find(|known| known.version == version) {
            if known.fingerprint == text.fingerprint() {
                return Ok(false);
            }
            let message = format!(
                "version {version} of topic `{topic}` is registered with another schema; a version never changes, so give the new one a new number"
            );
            return Err(fail(path, message));
        }
        let options = RegisterOptions { version: Some(version), ..RegisterOptions::default() };
        self.register(topic, text, options).await.map_err(|error| refused(path, error))?;
        Ok(true)
    }
}

/// What a file in a topic's folder is, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaFile {
    /// A version.
    Schema(u32),
    /// A program from one version to another: an upcaster or a downcaster.
    Program(u32, u32),
}

/// What a file is, by its name; `None` if the name has no known form.
pub fn parse(name: &str) -> Option<SchemaFile> {
    let number = |text: &str| {
        let digits = text.strip_prefix('v')?;
        let number: u32 = digits.parse().ok()?;
        (number.to_string() == digits).then_some(number)
    };
    if let Some(version) = name.strip_suffix(".json") {
        return Some(SchemaFile::Schema(number(version).filter(|version| *version > 0)?));
    }
    let (from, to) = name.strip_suffix(".jq")?.split_once("-to-")?;
    let (from, to) = (number(from)?, number(to)?);
    (from != to && to > 0).then_some(SchemaFile::Program(from, to))
}

/// Whether a file is passed over: hidden files and `README.md`.
pub fn passed_over(name: &str) -> bool {
    name.starts_with('.') || name == "README.md"
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, FolderError> {
    let listed = std::fs::read_dir(folder).map_err(|error| fail(folder, error))?;
    let mut paths = Vec::new();
    for entry in listed {
        paths.push(entry.map_err(|error| fail(folder, error))?.path());
    }
    paths.sort();
    Ok(paths)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Reads a file, unless it is too long.
fn text(path: &Path, bytes_max: usize) -> Result<String, FolderError> {
    let bytes = std::fs::metadata(path).map_err(|error| fail(path, error))?.len();
    if bytes > bytes_max as u64 {
        return Err(fail(path, format!("it has {bytes} bytes; the limit is {bytes_max}")));
    }
    std::fs::read_to_string(path).map_err(|error| fail(path, error))
}

fn fail(path: &Path, reason: impl ToString) -> FolderError {
    FolderError { path: path.to_owned(), reason: reason.to_string(), refusal: None }
}

fn refused(path: &Path, error: BusError) -> FolderError {
    FolderError { path: path.to_owned(), reason: error.to_string(), refusal: Some(Box::new(error)) }
}
