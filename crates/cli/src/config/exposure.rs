//! Who may be served without authentication.

use std::net::SocketAddr;

use anyhow::{Result, bail};
use promethean_gateway::auth::Authenticator;

use super::Config;
impl Config {
    /// Refuses to serve other machines without authentication, unless that was asked for.
    pub(crate) fn check_exposure(&self, auth: &dyn Authenticator) -> Result<()> {
        if !auth.is_open() || self.insecure {
            return Ok(());
        }
        if let Some(address) = self.listen.iter().find(|address| !is_this_machine(address)) {
            bail!(
                "{address} can be reached from other machines, and without authentication whoever reaches it may do \
                 everything; give --token TOKEN, or [auth] in the configuration, or listen on 127.0.0.1, or give \
                 --insecure if that is what you want"
            );
        }
        Ok(())
    }

    /// Who is let in and how, in a line for people.
    pub(crate) fn describe_exposure(&self, auth: &dyn Authenticator) -> String {
        let elsewhere = self.listen.iter().any(|address| !is_this_machine(address));
        let who = match (auth.is_open(), elsewhere) {
            (true, true) => "anybody who can reach it, INSECURE",
            (true, false) => "anybody on this machine",
            (false, _) => "whoever has a token",
        };
        let how = match (self.tls.is_some(), elsewhere) {
            (true, _) => "over TLS",
            (false, true) => "without TLS, so tokens and events can be read on the way",
            (false, false) => "without TLS",
        };
        format!("lets in {who}, {how}")
    }
}

fn is_this_machine(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}
