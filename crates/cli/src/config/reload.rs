//! Tokens and keys that change while the server runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use promethean_gateway::auth::jwt::KeySource;
use promethean_gateway::auth::{
    AuthError, Authenticator, Identity, Jwt, JwtOptions, StaticToken, StaticTokens,
};
use promethean_model::IgnorePoison;
use tracing::{info, warn};

use super::auth::Auth;
use super::file::File;
use super::{explain, read_text};

/// What is read again after this time, and is the same, is not being written just now.
const SETTLES_WITHIN: Duration = Duration::from_millis(50);

/// What of a configuration counts as soon as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Live {
    pub(super) tokens: Vec<StaticToken>,
    /// Of which only keys count at once.
    pub(super) jwt: Option<JwtOptions>,
}

/// An authenticator that follows the files it was made from.
#[derive(Debug)]
pub(super) struct Reloading {
    file: PathBuf,
    /// What the files said last, or what was wrong with them.
    last: Mutex<Result<Live, String>>,
    /// Held while the files are read and taken over: what was read earlier must not be taken over later.
    turn: tokio::sync::Mutex<()>,
    /// The token of the command line, which is in no file.
    operator: Option<StaticToken>,
    listed: StaticTokens,
    /// With what it was made of.
    signed: Option<(Jwt, JwtOptions)>,
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
        let signed = signed.zip(read.jwt.clone());
        let (last, turn) = (Mutex::new(Ok(read)), tokio::sync::Mutex::default());
        Self { file, last, turn, operator, listed, signed, inner }
    }

    /// What the files say once they say it twice. `None` if that is what they said before, or they are being written.
    async fn changed(&self) -> Option<Result<Live, String>> {
        let first = self.read().await?;
        if *self.last.lock().ignore_poison() == first {
            return None;
        }
        let mut soon = tokio::time::interval(SETTLES_WITHIN);
        soon.tick().await;
        soon.tick().await;
        self.read().await.filter(|second| *second == first)
    }

    async fn read(&self) -> Option<Result<Live, String>> {
        let file = self.file.clone();
        let read = tokio::task::spawn_blocking(move || read(&file)).await.ok()?;
        Some(read.map_err(|error| format!("{error:#}")))
    }

    /// Takes over what changed. What is of no use is said once, and what was there before stays.
    fn take_over(&self, read: Result<Live, String>) {
        match &read {
            Ok(live) => self.replace(live),
            Err(error) => warn!(%error, "the tokens cannot be read again; those that were known stay"),
        }
        *self.last.lock().ignore_poison() = read;
    }

    fn replace(&self, live: &Live) {
        let tokens: Vec<_> = live.tokens.iter().cloned().chain(self.operator.clone()).collect();
        let count = tokens.len();
        if self.listed.replace(tokens) {
            info!(count, "took over new tokens");
        }
        match (&self.signed, &live.jwt) {
            (None, None) => {}
            (Some((signed, made_of)), Some(now)) => {
                // Keys of another issuer must not count with what was demanded of the old one's tokens.
                if needs_restart(made_of, now) {
                    warn!("[auth.jwt] has changed, not only keys in files; all of it counts after a restart");
                } else {
                    replace_keys(signed, &now.keys);
                }
            }
            _ => warn!("[auth.jwt] came or went; that counts after a restart"),
        }
    }
}

fn replace_keys(signed: &Jwt, keys: &KeySource) {
    match keys {
        // Keys that are fetched are replaced by fetching them.
        KeySource::Url(_) => {}
        keys => match signed.replace_keys(keys) {
            Ok(()) => info!("took over the keys of signed tokens"),
            Err(error) => warn!(%error, "the keys of signed tokens are of no use; the old ones stay"),
        },
    }
}

/// Whether more differs than keys that are at hand.
fn needs_restart(made_of: &JwtOptions, now: &JwtOptions) -> bool {
    let is_fetched = |options: &JwtOptions| matches!(options.keys, KeySource::Url(_));
    let fetches_other = (is_fetched(made_of) || is_fetched(now)) && made_of.keys != now.keys;
    fetches_other || JwtOptions { keys: now.keys.clone(), ..made_of.clone() } != *now
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
        let turn = self.turn.lock().await;
        if let Some(read) = self.changed().await {
            self.take_over(read);
        }
        drop(turn);
        self.inner.refresh().await;
    }
}

/// Reads what counts at once. A list without tokens lets nobody in, which at the start would be a mistake.
fn read(path: &Path) -> Result<Live> {
    // What comes out of a pipe comes once.
    ensure!(path.is_file(), "`{}` is not a file that can be read again", path.display());
    let text = read_text(path)?;
    let dir = path.parent().unwrap_or(Path::new(""));
    let read = || {
        let file: File = toml::from_str(&text).map_err(|error| explain(&text, &error))?;
        let auth = file.auth.context("[auth] is gone; that counts after a restart")?;
        let auth = Auth::read_any(auth, dir)?;
        Ok::<_, anyhow::Error>(Live { tokens: auth.tokens, jwt: auth.jwt })
    };
    read().with_context(|| format!("the configuration `{}`", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_at_hand_count_without_a_restart() {
        let url = |url: &str| KeySource::Url(promethean_gateway::auth::jwt::JwksUrl::new(url));
        let of = |keys: KeySource| JwtOptions { keys, issuer: None, audience: vec![], leeway_ms: 0 };
        let secret = |text: &str| of(KeySource::Secret(text.into()));
        assert!(!needs_restart(&secret("a"), &secret("b")));
        let other = [
            JwtOptions { issuer: Some("i".to_owned()), ..secret("a") },
            JwtOptions { audience: vec!["a".to_owned()], ..secret("a") },
            JwtOptions { leeway_ms: 1, ..secret("a") },
            of(url("http://127.0.0.1/a")),
        ];
        assert!(
            other
                .iter()
                .all(|other| needs_restart(&secret("a"), other) && needs_restart(other, &secret("a")))
        );
        assert!(!needs_restart(&of(url("http://127.0.0.1/a")), &of(url("http://127.0.0.1/a"))));
        assert!(needs_restart(&of(url("http://127.0.0.1/a")), &of(url("http://127.0.0.1/b"))));
    }
}
