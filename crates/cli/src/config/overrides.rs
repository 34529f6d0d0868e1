//! Keys that the environment and flags set.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use promethean_gateway::auth::Secret;

use super::{Config, parse_listen};

/// Values that replace those of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Overrides {
    /// The addresses to listen on; empty to keep the configured ones.
    pub(crate) listen: Vec<SocketAddr>,
    /// The data directory.
    pub(crate) data: Option<PathBuf>,
    /// The name of the store.
    pub(crate) store: Option<String>,
    /// A token that allows everything, beside the configured ones.
    pub(crate) token: Option<Secret>,
    /// Whether other machines may be served without authentication.
    pub(crate) insecure: bool,
}

impl Overrides {
    /// Reads `PROMETHEAN_LISTEN`, `_DATA`, `_STORE` and `_TOKEN`, and `WS_PORT` and `WS_TOKEN` where those
    /// are missing. An empty variable counts as missing, because many programs set one that way.
    pub(crate) fn from_environment(get: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        let mut listen = Vec::new();
        if let Some(addresses) = get("PROMETHEAN_LISTEN") {
            for address in addresses.split(',') {
                let parsed = parse_listen(address.trim());
                listen.push(parsed.map_err(|reason| anyhow!("PROMETHEAN_LISTEN: {reason}"))?);
            }
        } else if let Some(port) = get("WS_PORT") {
            let port: u16 = port.parse().with_context(|| format!("WS_PORT: `{port}` is not a port"))?;
            listen.push(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        }
        let data = get("PROMETHEAN_DATA").map(PathBuf::from);
        let token = get("PROMETHEAN_TOKEN").or_else(|| get("WS_TOKEN")).map(Secret::from);
        Ok(Self { listen, data, store: get("PROMETHEAN_STORE"), token, insecure: false })
    }
}

impl Config {
    /// Replaces values; called for the environment first, then for the flags.
    pub(crate) fn apply(&mut self, over: Overrides) -> Result<()> {
        let Overrides { listen, data, store, token, insecure } = over;
        if token.as_ref().is_some_and(|token| token.reveal().trim_ascii().is_empty()) {
            bail!("the token is empty, so every client would have it; `promethean token new` makes one");
        }
        if !listen.is_empty() {
            self.listen = listen;
        }
        self.data = data.unwrap_or_else(|| std::mem::take(&mut self.data));
        self.store = store.or_else(|| self.store.take());
        self.token = token.or_else(|| self.token.take());
        self.insecure |= insecure;
        Ok(())
    }
}
