//! Contexts: names for servers, with their addresses and tokens, in a file of the user.
//!
//! The file is `promethean/contexts.json` in `$XDG_CONFIG_HOME` or `~/.config`. It has no tokens: a context names a
//! file with its token, which may be one that `promethean context add` made in `promethean/tokens`, for the user
//! alone. Without either folder there are no contexts, and every command works without them.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

const FILE: &str = "contexts.json";
const TOKENS: &str = "tokens";

/// One server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerContext {
    pub(crate) url: String,
    /// The file with the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<PathBuf>,
    /// The file with the certificates to trust.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<PathBuf>,
}

/// All contexts of the user, and which one commands use.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contexts {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    #[serde(default)]
    pub(crate) contexts: BTreeMap<String, ServerContext>,
    /// The folder of the file; `None` if the user has no place for files.
    #[serde(skip)]
    dir: Option<PathBuf>,
}

impl Contexts {
    /// Reads the contexts of the user.
    pub(crate) fn read() -> Result<Self> {
        let dir = folder(|name| std::env::var_os(name).map(PathBuf::from));
        let Some(dir) = dir else { return Ok(Self::default()) };
        Self::read_from(&dir)
    }

    fn read_from(dir: &Path) -> Result<Self> {
        let path = dir.join(FILE);
        let contexts = match std::fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).with_context(|| {
                format!("`{}` does not hold contexts; repair or remove it", path.display())
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::default(),
            Err(error) => return Err(error).with_context(|| format!("cannot read `{}`", path.display())),
        };
        Ok(Self { dir: Some(dir.to_owned()), ..contexts })
    }

    /// The context with this name.
    pub(crate) fn named(&self, name: &str) -> Result<&ServerContext> {
        self.contexts.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
            match known.is_empty() {
                true => anyhow!(
                    "there is no context `{name}`; add it with `promethean context add {name} --url URL`"
                ),
                false => anyhow!("there is no context `{name}`; there is {}", known.join(", ")),
            }
        })
    }

    /// Writes the contexts, all or nothing.
    pub(crate) fn write(&self) -> Result<()> {
        let path = self.place()?.join(FILE);
        let text = serde_json::to_string_pretty(self)?;
        write_private(&path, text.as_bytes())
    }

    /// Keeps a token in a file that only the user can read; returns its path.
    pub(crate) fn keep_token(&self, name: &str, token: &str) -> Result<PathBuf> {
        let path = self.token_path(name)?;
        write_private(&path, format!("{token}\n").as_bytes())?;
        Ok(path)
    }

    /// Removes the token that [`keep_token`](Contexts::keep_token) wrote for a context.
    pub(crate) fn forget_token(&self, name: &str) -> Result<()> {
        let path = self.token_path(name)?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove `{}`", path.display()))
            }
            _ => Ok(()),
        }
    }

    fn token_path(&self, name: &str) -> Result<PathBuf> {
        Ok(self.place()?.join(TOKENS).join(name))
    }

    fn place(&self) -> Result<&Path> {
        self.dir.as_deref().ok_or_else(|| {
            anyhow!("there is no folder for contexts: set HOME or XDG_CONFIG_HOME, or use --url and PROMETHEAN_TOKEN")
        })
    }
}

/// Checks a name, which is also the name of a file.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.chars().all(is_plain) {
        bail!(
            "`{name}` cannot name a context; use up to 64 letters, digits, `-`, `_` and `.`, as in `staging-eu`"
        );
    }
    Ok(())
}

/// The folder of the contexts.
fn folder(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let given = |name: &str| variable(name).filter(|path| path.is_absolute());
    let base = given("XDG_CONFIG_HOME").or_else(|| given("HOME").map(|home| home.join(".config")))?;
    Some(base.join("promethean"))
}

/// Replaces a file by one that only the user can read.
fn write_private(path: &Path, content: &[u8]) -> Result<()> {
    let write = || -> io::Result<()> {
        if let Some(dir) = path.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        let beside = path.with_extension(format!("{}.tmp", std::process::id()));
        let options =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside);
        options.and_then(|mut file| {
            file.write_all(content)?;
            file.sync_all()
        })?;
        std::fs::rename(&beside, path)
    };
    write().with_context(|| format!("cannot write `{}`", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_follows_the_environment() {
        let folder_of = |pairs: &[(&str, &str)]| {
            let pairs: BTreeMap<String, PathBuf> =
                pairs.iter().map(|(name, value)| ((*name).to_owned(), PathBuf::from(value))).collect();
            folder(|name| pairs.get(name).cloned())
        };
        assert_eq!(folder_of(&[]), None);
        assert_eq!(folder_of(&[("HOME", "")]), None);
        assert_eq!(folder_of(&[("HOME", "/h")]), Some("/h/.config/promethean".into()));
        assert_eq!(folder_of(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x")]), Some("/x/promethean".into()));
        assert_eq!(
            folder_of(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "rel")]),
            Some("/h/.config/promethean".into())
        );
    }

    #[test]
    fn names_are_names_of_files() {
        for name in ["local", "staging-eu", "a_b.c"] {
            check_name(name).unwrap();
        }
        for name in ["", "../x", "a/b", ".hidden", "a b"] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
