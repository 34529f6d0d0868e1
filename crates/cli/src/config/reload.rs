//! Reads tokens and keys again while the server runs.

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

/// A file that reads the same after this time is written completely.
const SETTLES_WITHIN: Duration = Duration::from_millis(50);

/// The parts of a configuration that take effect without a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Live {
    pub(super) tokens: Vec<StaticToken>,
    /// Only its keys take effect; every other change needs a restart.
    pub(super) jwt: Option<JwtOptions>,
}

/// An authenticator that follows the files it was made from.
#[derive(Debug)]
pub(super) struct Reloading {
    file: PathBuf,
    /// The last content of the files, or the error of reading them.
    last: Mutex<Result<Live, String>>,
    /// Held while the files are read and used, so that an older read never replaces a newer one.
    turn: tokio::sync::Mutex<()>,
    /// The token of the command line; no file has it.
    operator: Option<StaticToken>,
    listed: StaticTokens,
    /// Signed tokens, with the options they were made from.
    signed: Option<(Jwt, JwtOptions)>,
    /// Listed and signed tokens together.
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

    /// The new content of the files. `None` if it did not change, or if two reads differ because a file is
    /// being written.
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

    /// Uses new content. An error is logged once, and the old tokens and keys stay.
    fn take_over(&self, read: Result<Live, String>) {
        match &read {
            Ok(live) => self.replace(live),
            Err(error) => warn!(%error, "cannot read the tokens again; the old tokens stay"),
        }
        *self.last.lock().ignore_poison() = read;
    }

    fn replace(&self, live: &Live) {
        let tokens: Vec<_> = live.tokens.iter().cloned().chain(self.operator.clone()).collect();
        let count = tokens.len();
        if self.listed.replace(tokens) {
            info!(count, "using new tokens");
        }
        match (&self.signed, &live.jwt) {
            (None, None) => {}
            (Some((signed, made_of)), Some(now)) => {
                // Keys of a new issuer must not be used with the checks that were made for the old one.
                if needs_restart(made_of, now) {
                    warn!("[auth.jwt] has changed, not only keys in files; restart the server to use it");
                } else {
                    replace_keys(signed, &now.keys);
                }
            }
            _ => warn!("[auth.jwt] was added or removed; restart the server to use it"),
        }
    }
}

fn replace_keys(signed: &Jwt, keys: &KeySource) {
    match keys {
        // Keys from a URL are replaced when they are fetched again.
        KeySource::Url(_) => {}
        keys => match signed.replace_keys(keys) {
            Ok(()) => info!("using new keys of signed tokens"),
            Err(error) => warn!(%error, "the new keys of signed tokens cannot be used; the old keys stay"),
        },
    }
}

/// Whether more than keys in files differs.
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

    fn revision(&self) -> u64 {
        self.inner.revision()
    }

    fn listed(&self, from: usize, limit: usize) -> Vec<StaticToken> {
        self.inner.listed(from, limit)
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

/// Reads the parts that take effect without a restart. A list without tokens is allowed here; at the start it
/// is an error.
fn read(path: &Path) -> Result<Live> {
    // A pipe can be read only once.
    ensure!(path.is_file(), "`{}` is not a file that can be read again", path.display());
    let text = read_text(path)?;
    let dir = path.parent().unwrap_or(Path::new(""));
    let read = || {
        let file: File = toml::from_str(&text).map_err(|error| explain(&text, &error))?;
        let auth = file.auth.context("[auth] was removed; restart the server to use that")?;
        let auth = Auth::read_any(auth, dir)?;
        Ok::<_, anyhow::Error>(Live { tokens: auth.tokens, jwt: auth.jwt })
    };
    read().with_context(|| format!("the configuration `{}`", path.display()))
}

#[cfg(test)]
mod tests {
    use promethean_gateway::auth::TokenHash;
    use promethean_gateway::auth::jwt::sign;

    use super::*;
    use crate::config::tests::{ENTRY, clock};
    use crate::config::{Overrides, load};

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

    /// A configuration in a folder, with tokens `test` and, in a file of their own, `more`.
    fn with_files() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let text = format!("[auth]\ntokens_file = \"tokens.toml\"\n{ENTRY}");
        std::fs::write(dir.path().join("c.toml"), text).unwrap();
        more_tokens(dir.path(), &["more"]);
        let path = dir.path().join("c.toml");
        (dir, path)
    }

    fn more_tokens(dir: &Path, tokens: &[&str]) {
        let hash = TokenHash::of;
        let entry = |token: &&str| {
            format!("[[tokens]]\nname = \"{token}\"\nscopes = [\"admin\"]\nsha256 = \"{}\"\n", hash(token))
        };
        let text = tokens.iter().map(entry).collect::<String>();
        std::fs::write(
            dir.join("tokens.toml"),
            if text.is_empty() { "tokens = []".to_owned() } else { text },
        )
        .unwrap();
    }

    #[tokio::test]
    async fn added_and_removed_tokens_take_effect_without_a_restart() {
        let (dir, path) = with_files();
        let mut config = load(&path).unwrap();
        config.apply(Overrides { token: Some("mine".into()), ..Overrides::default() }).unwrap();
        let auth = config.authenticator(&clock()).unwrap();
        let known = async || {
            let mut known = Vec::new();
            for token in ["test", "more", "new", "mine"] {
                known.extend(auth.authenticate(Some(token)).await.is_ok().then_some(token));
            }
            known
        };
        assert_eq!(known().await, ["test", "more", "mine"]);
        auth.refresh().await;
        assert_eq!((known().await.len(), auth.revision()), (3, 0));
        more_tokens(dir.path(), &["new"]);
        auth.refresh().await;
        assert_eq!((known().await, auth.revision()), (vec!["test", "new", "mine"], 1));
        // A broken file changes nothing.
        for (file, text) in
            [("tokens.toml", "tokens = 7"), ("c.toml", "[auth]\nno_such_key = 1"), ("c.toml", "[[[")]
        {
            let good = std::fs::read(dir.path().join(file)).unwrap();
            std::fs::write(dir.path().join(file), text).unwrap();
            auth.refresh().await;
            assert_eq!((known().await, auth.revision()), (vec!["test", "new", "mine"], 1), "{file} {text}");
            std::fs::write(dir.path().join(file), good).unwrap();
        }
        std::fs::remove_file(dir.path().join("tokens.toml")).unwrap();
        auth.refresh().await;
        assert_eq!(known().await, ["test", "new", "mine"]);
        // An empty list accepts no client but the one with the token of the flag.
        more_tokens(dir.path(), &[]);
        std::fs::write(&path, "[auth]\ntokens_file = \"tokens.toml\"").unwrap();
        auth.refresh().await;
        assert_eq!((known().await, auth.revision()), (vec!["mine"], 2));
        std::fs::write(&path, "").unwrap();
        auth.refresh().await;
        assert_eq!((known().await, auth.is_open()), (vec!["mine"], false));
    }

    #[tokio::test]
    async fn keys_in_files_take_effect_without_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let (path, secret) = (dir.path().join("c.toml"), dir.path().join("secret"));
        std::fs::write(&path, "[auth.jwt]\nsecret_file = \"secret\"").unwrap();
        let (first, second) =
            ("0123456789012345678901234567890123456789", "9876543210987654321098765432109876543210");
        std::fs::write(&secret, first).unwrap();
        let auth = load(&path).unwrap().authenticator(&clock()).unwrap();
        let claims = serde_json::json!({"sub": "s", "exp": 4_000_000_000_i64, "scope": "admin"});
        let by = |secret: &str| sign::hs256(&secret.into(), &claims).unwrap();
        let known = async |secret: &str| auth.authenticate(by(secret).reveal_text()).await.is_ok();
        assert!(known(first).await && !known(second).await);
        for bad in ["short", ""] {
            std::fs::write(&secret, bad).unwrap();
            auth.refresh().await;
            assert!(known(first).await && auth.revision() == 0, "{bad}");
        }
        std::fs::write(&secret, second).unwrap();
        auth.refresh().await;
        assert!(!known(first).await && known(second).await && auth.revision() == 1);
    }
}
