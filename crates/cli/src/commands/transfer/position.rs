//! The position of an export or import, in a file beside the file that it reads or writes.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// How far a file was written or read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TransferPosition {
    pub(super) topic: String,
    /// The next offset to export, or the number of lines that are imported.
    pub(super) next: u64,
    /// The bytes of the file up to there; 0 for an import.
    pub(super) bytes: u64,
}

impl TransferPosition {
    /// Reads the position of a file; `None` if there is none.
    pub(super) fn read(file: &Path, word: &str, topic: &str) -> Result<Option<Self>> {
        let path = place(file, word);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read `{}`", path.display())),
        };
        let position: Self = serde_json::from_str(&text).with_context(|| {
            format!("`{}` does not hold a position; remove it to begin anew", path.display())
        })?;
        if position.topic != topic {
            bail!(
                "`{}` is about topic `{}`, not `{topic}`; name another file, or remove the position to begin anew",
                path.display(),
                position.topic
            );
        }
        Ok(Some(position))
    }

    /// Keeps the position, all or nothing.
    pub(super) fn write(&self, file: &Path, word: &str) -> Result<()> {
        let path = place(file, word);
        let beside = path.with_extension("tmp");
        let write = || -> io::Result<()> {
            std::fs::write(&beside, serde_json::to_string(self)?)?;
            std::fs::rename(&beside, &path)
        };
        write().with_context(|| format!("cannot write `{}`", path.display()))
    }
}

fn place(file: &Path, word: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{word}"));
    name.into()
}
