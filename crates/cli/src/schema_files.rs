//! A folder of schemas, read with every mistake in it. The server reads the same layout with
//! `promethean_bus::schemas::folder` and stops at the first mistake.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use promethean_bus::schemas::folder;
use promethean_jq::Program;
use promethean_schema::{SCHEMA_BYTES_MAX, SchemaText};

/// The content of a folder of schemas.
#[derive(Debug, Default)]
pub(crate) struct SchemaFiles {
    /// The folders of topics by name, which may not be a valid topic name.
    pub(crate) topics: BTreeMap<String, LocalVersions>,
    /// Files whose names mean nothing.
    pub(crate) strays: Vec<PathBuf>,
}

/// The content of the folder of one topic.
#[derive(Debug, Default)]
pub(crate) struct LocalVersions {
    pub(crate) path: PathBuf,
    pub(crate) versions: BTreeMap<u32, LocalVersion>,
    pub(crate) programs: Vec<ProgramFile>,
}

/// The file of a version, with its schema or the reason why it has none.
#[derive(Debug)]
pub(crate) struct LocalVersion {
    pub(crate) path: PathBuf,
    pub(crate) text: Result<SchemaText, String>,
}

/// The file of a program from one version to another, with its fault if it does not compile.
#[derive(Debug)]
pub(crate) struct ProgramFile {
    pub(crate) path: PathBuf,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) fault: Option<String>,
}

impl SchemaFiles {
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut files = Self::default();
        for path in entries(root)? {
            if path.is_dir() {
                let topic = LocalVersions::read(&path, &mut files.strays)?;
                files.topics.insert(name_of(&path), topic);
            } else {
                files.strays.push(path);
            }
        }
        Ok(files)
    }
}

impl LocalVersions {
    fn read(path: &Path, strays: &mut Vec<PathBuf>) -> Result<Self> {
        let mut files = Self { path: path.to_owned(), ..Self::default() };
        for path in entries(path)? {
            match folder::parse(&name_of(&path)) {
                Some(folder::SchemaFile::Schema(version)) => {
                    let text = text(&path)
                        .and_then(|text| SchemaText::parse(text).map_err(|error| error.to_string()));
                    files.versions.insert(version, LocalVersion { path, text });
                }
                Some(folder::SchemaFile::Program(from, to)) => {
                    let compiled =
                        text(&path).and_then(|text| Program::compile(&text).map_err(|e| e.to_string()));
                    files.programs.push(ProgramFile { path, from, to, fault: compiled.err() });
                }
                None => strays.push(path),
            }
        }
        Ok(files)
    }
}

/// The entries of a folder that are not skipped, sorted by name.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = || format!("cannot read the folder `{}`", folder.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(failed)? {
        let path = entry.with_context(failed)?.path();
        if !folder::passed_over(&name_of(&path)) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Reads a file; one that is longer than a schema may be is not read.
fn text(path: &Path) -> Result<String, String> {
    let bytes = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    if bytes > SCHEMA_BYTES_MAX as u64 {
        return Err(format!("it has {bytes} bytes; the limit is {SCHEMA_BYTES_MAX}"));
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}
