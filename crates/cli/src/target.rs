//! The server that a command talks to: its address, its token and the certificates to trust.
//!
//! The address is that of `--url`, of `PROMETHEAN_URL` (or its older name `PROMETHEAN_SERVER`), of the context that
//! `--context` or `PROMETHEAN_CONTEXT` names, of the context in use, or that of a server on this machine. The token
//! is that of `--token-file`, of the context that gave the address, or of `PROMETHEAN_TOKEN_FILE` or
//! `PROMETHEAN_TOKEN`. The token of a context is sent to the server of this context only.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use hyper::Uri;
use promethean_client::Client;
use promethean_gateway::auth::Secret;

use crate::contexts::Contexts;

const URL_DEFAULT: &str = "http://127.0.0.1:8090";
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// The flags that name a server and the token to send.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct TargetArgs {
    /// Address of the server [env: PROMETHEAN_URL] [default: http://127.0.0.1:8090]
    #[arg(long, alias = "server", value_name = "URL")]
    url: Option<String>,
    /// Context to use [env: PROMETHEAN_CONTEXT]
    #[arg(long, value_name = "NAME", conflicts_with = "url")]
    context: Option<String>,
    /// File with the token [env: PROMETHEAN_TOKEN_FILE, or the token itself in PROMETHEAN_TOKEN]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The token to send. Other users of the machine can see it here.
    #[arg(long, value_name = "TOKEN", hide = true, conflicts_with = "token_file")]
    token: Option<Secret>,
    /// Trust the certificates in this file instead of the machine's
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

/// A server, how to reach it, and what to show it.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) url: String,
    pub(crate) token: Option<Secret>,
    pub(crate) ca_file: Option<PathBuf>,
}

impl TargetArgs {
    /// The flags for a server that another flag named.
    pub(crate) fn of(url: String, token: Option<Secret>, ca_file: Option<PathBuf>) -> Self {
        Self { url: Some(url), token, ca_file, ..Self::default() }
    }

    /// Whether a flag names the server.
    pub(crate) fn is_named(&self) -> bool {
        self.url.is_some() || self.context.is_some()
    }

    /// The server that flags, environment and contexts name.
    pub(crate) fn resolve(&self) -> Result<Target> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        self.resolve_with(variable, Contexts::read)
    }

    fn resolve_with(
        &self,
        variable: impl Fn(&str) -> Option<String>,
        contexts: impl FnOnce() -> Result<Contexts>,
    ) -> Result<Target> {
        let mut target = match (&self.url, &self.context) {
            (Some(url), _) => Target { url: url.clone(), token: None, ca_file: None },
            (None, Some(name)) => from_context(&contexts()?, name)?,
            (None, None) => {
                let url = variable("PROMETHEAN_URL").or_else(|| variable("PROMETHEAN_SERVER"));
                match (url, variable("PROMETHEAN_CONTEXT")) {
                    (Some(url), _) => Target { url, token: None, ca_file: None },
                    (None, Some(name)) => from_context(&contexts()?, &name)?,
                    (None, None) => from_current(&contexts()?)?,
                }
            }
        };
        target.token = match (&self.token_file, &self.token) {
            (Some(path), _) => Some(read_token(path)?),
            (None, Some(token)) => Some(token.clone()),
            (None, None) => match (target.token, variable("PROMETHEAN_TOKEN_FILE")) {
                (Some(token), _) => Some(token),
                (None, Some(path)) => Some(read_token(Path::new(&path))?),
                (None, None) => variable("PROMETHEAN_TOKEN").map(Secret::from),
            },
        };
        target.ca_file = self.ca_file.clone().or(target.ca_file);
        if !target.url.contains("://") && target.url.contains(':') {
            // `localhost:8090` names a server too.
            target.url = format!("http://{}", target.url);
        }
        target.check()?;
        Ok(target)
    }
}

impl Target {
    /// A client for this server. It connects when it is first used.
    pub(crate) fn client(&self) -> Result<Client> {
        let mut builder = Client::builder(&self.url).open_timeout(OPEN_TIMEOUT).on_error(|error| {
            eprintln!("promethean: {error} ({})", error.code());
        });
        if let Some(token) = &self.token {
            builder = builder.token(token.reveal_text().context("the token is not text")?);
        }
        if let Some(path) = &self.ca_file {
            builder = builder.authorities(
                std::fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))?,
            );
        }
        Ok(builder.build()?)
    }

    /// Refuses an address that is none, and a token that others could read on the way.
    fn check(&self) -> Result<()> {
        let bad = || {
            format!("`{}` is not the address of a server; write http://HOST:PORT or https://HOST", self.url)
        };
        let uri: Uri = self.url.parse().with_context(bad)?;
        let authority = uri.authority().with_context(bad)?;
        ensure!(
            !authority.as_str().contains('@'),
            "the URL has a user in it; give a token with --token-file instead"
        );
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let is_local =
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        match uri.scheme_str() {
            Some("http" | "ws") if self.token.is_some() && !is_local => {
                bail!("the token would be sent over plain http to another machine; use https")
            }
            Some("http" | "https" | "ws" | "wss") => Ok(()),
            _ => bail!(bad()),
        }
    }
}

fn from_context(contexts: &Contexts, name: &str) -> Result<Target> {
    let context = contexts.named(name)?;
    let token = context.token_file.as_deref().map(read_token).transpose();
    let token = token.with_context(|| format!("the context `{name}`"))?;
    Ok(Target { url: context.url.clone(), token, ca_file: context.ca_file.clone() })
}

/// The context in use, or a server on this machine.
fn from_current(contexts: &Contexts) -> Result<Target> {
    match &contexts.current {
        Some(name) => from_context(contexts, name),
        None => Ok(Target { url: URL_DEFAULT.to_owned(), token: None, ca_file: None }),
    }
}

/// Reads a token from a file; white space around it does not count.
pub(crate) fn read_token(path: &Path) -> Result<Secret> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the token in `{}`", path.display()))?;
    ensure!(!text.trim().is_empty(), "`{}` is empty; it should hold a token", path.display());
    Ok(Secret::from(text.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contexts::ServerContext;

    fn resolve(args: &TargetArgs, variables: &[(&str, &str)], current: bool) -> Target {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        args.resolve_with(variable, || {
            let mut contexts = Contexts::default();
            let context =
                ServerContext { url: "http://localhost:1".to_owned(), token_file: None, ca_file: None };
            contexts.contexts.insert("one".to_owned(), context);
            contexts.current = current.then(|| "one".to_owned());
            Ok(contexts)
        })
        .unwrap()
    }

    #[test]
    fn flags_come_before_the_environment_and_the_environment_before_contexts() {
        let none = TargetArgs::default();
        assert_eq!(resolve(&none, &[], false).url, URL_DEFAULT);
        assert_eq!(resolve(&none, &[], true).url, "http://localhost:1");
        let variables = [("PROMETHEAN_URL", "http://localhost:2"), ("PROMETHEAN_CONTEXT", "one")];
        assert_eq!(resolve(&none, &variables, true).url, "http://localhost:2");
        assert_eq!(
            resolve(&none, &[("PROMETHEAN_SERVER", "http://localhost:3")], true).url,
            "http://localhost:3"
        );
        let flag = TargetArgs { url: Some("http://localhost:4".to_owned()), ..TargetArgs::default() };
        assert_eq!(resolve(&flag, &variables, true).url, "http://localhost:4");
        let short = TargetArgs { url: Some("localhost:4".to_owned()), ..TargetArgs::default() };
        assert_eq!(resolve(&short, &variables, true).url, "http://localhost:4");
        let named = TargetArgs { context: Some("one".to_owned()), ..TargetArgs::default() };
        assert_eq!(resolve(&named, &variables, false).url, "http://localhost:1");
        assert!(resolve(&none, &[("PROMETHEAN_TOKEN", "t")], false).token.is_some());
    }

    #[test]
    fn tokens_are_not_sent_where_others_can_read_them() {
        let args = TargetArgs {
            url: Some("http://bus.example.com".to_owned()),
            token: Some(Secret::from("t".to_owned())),
            ..TargetArgs::default()
        };
        let refused = args.resolve_with(|_| None, || Ok(Contexts::default())).unwrap_err();
        assert!(refused.to_string().contains("use https"), "{refused}");
    }
}
