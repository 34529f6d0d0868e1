//! Directories that a benchmark works in.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The directory of one run.
#[derive(Debug)]
pub(crate) struct Scratch {
    root: PathBuf,
    temporary: bool,
}

impl Scratch {
    /// Uses `data`, or makes a directory inside the current one that is removed at the end.
    pub(crate) fn new(data: Option<&Path>) -> Result<Scratch> {
        let (root, temporary) = match data {
            Some(data) => (data.to_path_buf(), false),
            None => (PathBuf::from(format!("promethean-bench-{}", std::process::id())), true),
        };
        fs::create_dir_all(&root).with_context(|| format!("create `{}`", root.display()))?;
        Ok(Scratch { root, temporary })
    }

    /// The directory itself; it is kept if the user named it.
    pub(crate) fn kept(&self) -> &Path {
        &self.root
    }

    /// Makes an empty directory that is removed when the measurement is over.
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
            // A directory that cannot be removed stays; its name tells where it comes from.
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

/// A directory that is removed with its content when dropped.
#[derive(Debug)]
pub(crate) struct FreshDir(PathBuf);

impl FreshDir {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for FreshDir {
    fn drop(&mut self) {
        // As in `Scratch`.
        let _ = fs::remove_dir_all(&self.0);
    }
}
