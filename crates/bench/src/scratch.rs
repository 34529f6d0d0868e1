//! Directories that a benchmark works in.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Where all measurements of one run keep their files.
#[derive(Debug)]
pub(crate) struct Scratch {
    root: PathBuf,
    temporary: bool,
}

impl Scratch {
    /// Uses `data`, or a new directory inside the current one that is removed at the end.
    pub(crate) fn new(data: Option<&Path>) -> Result<Scratch> {
        let (root, temporary) = match data {
            Some(data) => (data.to_path_buf(), false),
            None => (PathBuf::from(format!("promethean-bench-{}", std::process::id())), true),
        };
        fs::create_dir_all(&root).with_context(|| format!("create `{}`", root.display()))?;
        Ok(Scratch { root, temporary })
    }

    /// The directory of the log that stays behind if the user named a directory.
    pub(crate) fn kept(&self) -> &Path {
        &self.root
    }

    /// An empty directory that is removed when the measurement is over.
    pub(crate) fn fresh(&self, name: &str) -> Result<FreshDir> {
        let path = self.root.join(format!("bench-{name}"));
        if path.exists() {
            fs::remove_dir_all(&path).with_context(|| format!("remove `{}`", path.display()))?;
        }
        fs::create_dir(&path).with_context(|| format!("create `{}`", path.display()))?;
        Ok(FreshDir(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.temporary {
            // Nothing depends on it; the name says what it was.
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

/// Removed with everything in it when dropped.
#[derive(Debug)]
pub(crate) struct FreshDir(PathBuf);

impl FreshDir {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for FreshDir {
    fn drop(&mut self) {
        // As above.
        let _ = fs::remove_dir_all(&self.0);
    }
}
