//! The repository on disk: its root and its own files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The checkout this tool was built from.
pub(crate) struct Repo {
    root: PathBuf,
}

/// A file that holds text, with its path relative to the root, `/` between its parts.
pub(crate) struct TextFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Repo {
    pub(crate) fn find() -> Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest.parent().context("find the workspace above xtask")?.to_path_buf();
        if !root.join("Cargo.lock").is_file() {
            bail!("no Cargo.lock in {}; was the checkout moved? run through `cargo xtask`", root.display());
        }
        Ok(Self { root })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// A cargo command that runs at the root with the cargo that started us.
    pub(crate) fn cargo(&self) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut command = Command::new(cargo);
        command.current_dir(&self.root);
        command
    }

    pub(crate) fn read(&self, path: &str) -> Result<String> {
        std::fs::read_to_string(self.root.join(path)).with_context(|| format!("read {path}"))
    }

    /// Every text file that git tracks or would track, sorted; without git, every file outside build folders.
    pub(crate) fn text_files(&self) -> Result<Vec<TextFile>> {
        let mut paths = match self.git_paths() {
            Some(paths) => paths,
            None => self.walked_paths()?,
        };
        paths.sort();
        let mut files = Vec::new();
        for path in paths {
            let full = self.root.join(&path);
            if !full.is_file() {
                continue; // deleted but not yet committed, or a link
            }
            let bytes = std::fs::read(&full).with_context(|| format!("read {path}"))?;
            if let Ok(text) = String::from_utf8(bytes)
                && !text.contains('\0')
            {
                files.push(TextFile { path, text });
            }
        }
        Ok(files)
    }

    fn git_paths(&self) -> Option<Vec<String>> {
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&self.root)
            .stderr(Stdio::null())
            .output()
            .ok()?;
        if !output.status.success() {
            return None;
        }
        let names = String::from_utf8(output.stdout).ok()?;
        Some(names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    fn walked_paths(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            let entries =
                std::fs::read_dir(self.root.join(&folder)).with_context(|| format!("list {folder}"))?;
            for entry in entries {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
                if !entry.file_type()?.is_dir() {
                    found.push(path);
                } else if !matches!(name.as_str(), ".git" | "target" | "promethean-data") {
                    folders.push(path);
                }
            }
        }
        Ok(found)
    }
}
