//! Tokens and keys that change while the server runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use async_trait::async_trait;
use promethean_gateway::auth::jwt::KeySource;
use promethean_gateway::auth::{AuthError, Authenticator, Identity, Jwt, StaticToken, StaticTokens};
use tracing::{info, warn};

use super::auth::Auth;
use super::file::File;
use super::{explain, read_text};

/// What of a configuration counts as soon as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Live {
    pub(super) tokens: Vec<StaticToken>,
    pub(super) keys: Option<KeySource>,
}

/// An authenticator that follows the files it was made from.
#[derive(Debug)]
pub(super) struct Reloading {
    file: PathBuf,
    /// What the files said last, or what was wrong with them.
    last: Mutex<Result<Live, String>>,
    /// The token of the command line, which is in no file.
    operator: Option<StaticToken>,
    listed: StaticTokens,
    signed: Option<Jwt>,
    /// Both together.
    inner: Arc<dyn Authenticator>,
}

impl Reloading {
    pub(super) fn new(
        file: PathBuf,
        read: Live,
        operator: Option<StaticToken>,
        listed: StaticTokens,
        signed: Option<Jwt>,
        inner: Arc<dyn Authenticator>,
    ) -> Self {
        Self { file, last: Mutex::new(Ok(read)), operator, listed, signed, inner }
    }

    /// Takes over what changed. What is of no use is said once, and what was there before stays.
    fn take_over(&self, read: Result<Live, String>) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if *last == read {
            return;
        }
        match &read {
            Ok(live) => self.replace(live),
            Err(error) => warn!(%error, "the tokens cannot be read again; those that were known stay"),
        }
        *last = read;
    }

    fn replace(&self, live: &Live) {
        let tokens: Vec<_> = live.tokens.iter().cloned().chain(self.operator.clone()).collect();
        let count = tokens.len();
        if self.listed.replace(tokens) {
            info!(count, "took over new tokens");
        }
        match (&self.signed, &live.keys) {
            (None, None) => {}
            // Keys that are fetched are replaced by fetching them.
            (Some(_), Some(KeySource::Url(_))) => {}
            (Some(signed), Some(keys)) => match signed.replace_keys(keys) {
                Ok(()) => info!("took over the keys of signed tokens"),
                Err(error) => warn!(%error, "the keys of signed tokens are of no use; the old ones stay"),
            },
            _ => warn!("[auth.jwt] came or went; that counts after a restart"),
        }
    }
}

#[async_trait]
impl Authenticator for Reloading {
    async fn authenticate(&self, token: Option<&str>) -> Result<Identity, AuthError> {
        self.inner.authenticate(token).await
    }

    fn generation(&self) -> u64 {
        self.inner.generation()
    }

    async fn refresh(&self) {
        let file = self.file.clone();
        let read = tokio::task::spawn_blocking(move || read(&file)).await;
        if let Ok(read) = read {
            self.take_over(read.map_err(|error| format!("{error:#}")));
        }
        self.inner.refresh().await;
    }
}

/// Reads what counts at once. A file without tokens lets nobody in, which at the start would be a mistake.
fn read(path: &Path) -> Result<Live> {
    let text = read_text(path)?;
    let dir = path.parent().unwrap_or(Path::new(""));
    let read = || {
        let file: File = toml::from_str(&text).map_err(|error| explain(&text, &error))?;
        let auth = Auth::read_any(file.auth.unwrap_or_default(), dir)?;
        Ok::<_, anyhow::Error>(Live { tokens: auth.tokens, keys: auth.jwt.map(|jwt| jwt.keys) })
    };
    read().with_context(|| format!("the configuration `{}`", path.display()))
}
