//! Authentication as the configuration sets it up, and whether other machines may be served without it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use promethean_gateway::auth::jwt::{JwksUrl, KeySource};
use promethean_gateway::auth::{
    Authenticator, Either, Grants, Jwt, JwtOptions, Open, Secret, StaticToken, StaticTokens,
};
use promethean_model::Clock;

use super::file::{AuthSection, JwtSection, OneOrMany, TokenEntry, TokensFile};
use super::reload::{Live, Reloading};
use super::{Config, explain, read_bytes, read_text};

/// How far `nbf` may be in the future if `leeway` is not set.
const LEEWAY_MS_DEFAULT: u64 = 10_000;
/// The name of the client with the token of the command line.
const OPERATOR: &str = "operator";

/// The tokens and keys of `[auth]`, with all files read.
#[derive(Debug, Default)]
pub(super) struct Auth {
    pub(super) tokens: Vec<StaticToken>,
    pub(super) jwt: Option<JwtOptions>,
    pub(super) check_every_ms: Option<u64>,
    /// The files that hold a secret as it is.
    pub(super) secret_files: Vec<PathBuf>,
}

impl Auth {
    /// Reads the section and the files it names. It must accept at least one client.
    pub(super) fn read(section: AuthSection, dir: &Path) -> Result<Self> {
        let auth = Self::read_any(section, dir)?;
        if auth.tokens.is_empty() && auth.jwt.is_none() {
            bail!(
                "[auth] accepts no client; add [[auth.tokens]] or [auth.jwt], or leave it out to serve this machine only"
            );
        }
        Ok(auth)
    }

    /// As [`Auth::read`], but the section may accept no client.
    pub(super) fn read_any(section: AuthSection, dir: &Path) -> Result<Self> {
        let check_every_ms = section.check_every.map(|span| span.0);
        let mut entries = section.tokens;
        if let Some(file) = &section.tokens_file {
            let path = dir.join(file);
            let text = read_text(&path).context("`auth.tokens_file`")?;
            let listed: TokensFile = toml::from_str(&text)
                .map_err(|error| explain(&text, &error))
                .with_context(|| format!("`{}`", path.display()))?;
            entries.extend(listed.tokens);
        }
        let tokens = tokens(&entries)?;
        let secret_file = section.jwt.as_ref().and_then(|jwt| jwt.secret_file.as_ref());
        let secret_files = secret_file.map(|file| dir.join(file)).into_iter().collect();
        let jwt = section.jwt.map(|jwt| jwt_options(jwt, dir)).transpose().context("[auth.jwt]")?;
        Ok(Self { tokens, jwt, check_every_ms, secret_files })
    }
}

impl Config {
    /// Makes the authenticator of the server.
    pub(crate) fn authenticator(&self, clock: &Arc<dyn Clock>) -> Result<Arc<dyn Authenticator>> {
        let operator = self.token.as_ref().map(|token| StaticTokens::admin(OPERATOR, token));
        let tokens: Vec<_> = self.auth.tokens.iter().cloned().chain(operator.clone()).collect();
        let jwt = self.auth.jwt.clone().map(|options| Jwt::new(options, Arc::clone(clock))).transpose();
        let signed = jwt.context("[auth.jwt]")?;
        if tokens.is_empty() && signed.is_none() {
            return Ok(Arc::new(Open));
        }
        let listed = StaticTokens::new(tokens, Arc::clone(clock));
        let inner: Arc<dyn Authenticator> = match signed.clone() {
            Some(signed) => Arc::new(Either { listed: listed.clone(), signed }),
            None => Arc::new(listed.clone()),
        };
        let Some(file) = self.source.clone() else { return Ok(inner) };
        let read = Live { tokens: self.auth.tokens.clone(), jwt: self.auth.jwt.clone() };
        Ok(Arc::new(Reloading::new(file, read, operator, listed, signed, inner)))
    }

    /// Refuses to serve other machines without authentication, unless that was asked for.
    pub(crate) fn check_exposure(&self, auth: &dyn Authenticator) -> Result<()> {
        if !auth.is_open() || self.insecure {
            return Ok(());
        }
        if let Some(address) = self.exposed_address() {
            bail!(
                "{address} can be reached from other machines, and without authentication every client may do \
                 everything; give --token TOKEN, or [auth] in the configuration, or listen on 127.0.0.1, or give \
                 --insecure if that is what you want"
            );
        }
        Ok(())
    }

    /// An address that other machines can reach.
    pub(crate) fn exposed_address(&self) -> Option<&SocketAddr> {
        self.listen.iter().find(|address| !address.ip().to_canonical().is_loopback())
    }

    /// Which clients are accepted and how, in a line for the operator.
    pub(crate) fn describe_exposure(&self, auth: &dyn Authenticator) -> String {
        let elsewhere = self.exposed_address().is_some();
        let who = match (auth.is_open(), elsewhere) {
            (true, true) => "every client that can reach it, INSECURE",
            (true, false) => "every client on this machine",
            (false, _) => "clients with a token",
        };
        let how = match (self.file.tls.is_some(), elsewhere) {
            (true, _) => "over TLS",
            (false, true) => "without TLS, so tokens and events can be read on the way",
            (false, false) => "without TLS",
        };
        format!("accepts {who}, {how}")
    }

    /// The URL of the dashboard of a server that listens on this address.
    pub(crate) fn dashboard_url(&self, address: &SocketAddr) -> String {
        let scheme = if self.file.tls.is_some() { "https" } else { "http" };
        match address.ip().is_unspecified() {
            // The server listens on all addresses of this machine; a browser needs one.
            true => format!("{scheme}://localhost:{}/", address.port()),
            false => format!("{scheme}://{address}/"),
        }
    }
}

fn tokens(entries: &[TokenEntry]) -> Result<Vec<StaticToken>> {
    let mut names = BTreeSet::new();
    let mut tokens: Vec<StaticToken> = Vec::new();
    for entry in entries {
        let TokenEntry { name, sha256, scopes, expires, limits } = entry;
        let token = || format!("the token `{}`", name.escape_debug());
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(anyhow!(
                "{} has a name that is empty or has control characters, so a log cannot show it; give it another",
                token()
            ));
        }
        if !names.insert(name) {
            bail!("{} is listed twice; give each a name of its own", token());
        }
        if let Some(other) = tokens.iter().find(|other| other.hash == *sha256) {
            bail!("{} has the hash of `{}`; make a new token for it", token(), other.name);
        }
        let grants = Arc::new(Grants::parse(scopes).with_context(token)?);
        let expires_ms = expires.map(|moment| moment.ms());
        let (name, hash, quota) = (name.as_str().into(), *sha256, *limits);
        tokens.push(StaticToken { name, hash, grants, expires_ms, quota });
    }
    Ok(tokens)
}

fn jwt_options(section: JwtSection, dir: &Path) -> Result<JwtOptions> {
    let keys = key_source(&section, dir)?;
    let audience = section.audience.map_or_else(Vec::new, OneOrMany::into_vec);
    let leeway_ms = section.leeway.map_or(LEEWAY_MS_DEFAULT, |leeway| leeway.get());
    Ok(JwtOptions { keys, issuer: section.issuer, audience, leeway_ms })
}

fn key_source(section: &JwtSection, dir: &Path) -> Result<KeySource> {
    let JwtSection { secret, secret_file, public_key_file, jwks_file, jwks_url, .. } = section;
    let mut given = Vec::new();
    given.extend(secret.clone().map(|secret| Ok(KeySource::Secret(secret))));
    given.extend(secret_file.as_ref().map(|file| read_secret(&dir.join(file)).map(KeySource::Secret)));
    let read = |file: &PathBuf| read_bytes(&dir.join(file)).map(Secret::from);
    given.extend(public_key_file.as_ref().map(|file| read(file).map(KeySource::Pem)));
    given.extend(jwks_file.as_ref().map(|file| read(file).map(KeySource::Jwks)));
    given.extend(jwks_url.as_ref().map(|url| {
        let defaults = JwksUrl::new(url);
        let authorities =
            section.jwks_ca_file.as_ref().map(|file| read_bytes(&dir.join(file))).transpose()?;
        Ok(KeySource::Url(JwksUrl {
            plain_http: section.jwks_plain_http,
            authorities,
            refresh_ms: section.jwks_refresh.map_or(defaults.refresh_ms, |span| span.0),
            max_age_ms: section.jwks_max_age.map_or(defaults.max_age_ms, |span| span.0),
            ..defaults
        }))
    }));
    let (Some(one), 0) = (given.pop(), given.len()) else {
        bail!(
            "give one of `secret`, `secret_file`, `public_key_file`, `jwks_file` and `jwks_url`, and only one"
        );
    };
    one
}

/// Reads a secret from a file, without the line end that editors add.
pub(crate) fn read_secret(path: &Path) -> Result<Secret> {
    let bytes = read_bytes(path)?;
    Ok(bytes.trim_ascii_end().to_vec().into())
}
