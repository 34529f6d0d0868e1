//! Which pages a browser may connect for.
//!
//! A browser sends along the user's network position and, if there were any, credentials, to whoever asks it to. What it
//! says about the page that asked is the `Origin` header. Programs that are no browser send none, and are not stopped.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use thiserror::Error;

use crate::options::GatewayOptions;
use crate::refusal::Refusal;

/// The rule of one gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Origins {
    /// Whether we serve over TLS. Pages that came without it are then none of ours.
    secure: bool,
    /// Whether this machine alone is served, and without tokens: being on it is what lets a client in.
    local: bool,
    others: Vec<Origin>,
}

/// Who asks, as far as it matters to the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Page {
    /// No page, one of ours, or one of this machine: nothing needs to be said about it.
    Plain,
    /// One that the configuration names: its scripts may read the answer.
    Allowed(HeaderValue),
}

/// An origin that cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{0}` is not an origin; write `https://HOST` or `https://HOST:PORT`, without a path and without `*`"
)]
pub struct OriginError(String);

/// Checks the texts of `GatewayOptions::allowed_origins`.
pub fn check_origins<S: AsRef<str>>(texts: impl IntoIterator<Item = S>) -> Result<(), OriginError> {
    texts.into_iter().try_for_each(|text| parse(text.as_ref()).map(|_| ()))
}

/// Scheme, host and port of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Origin {
    secure: bool,
    /// In small letters.
    host: String,
    port: u16,
}

impl Origins {
    /// The rule of a gateway with these options, which listens on these addresses.
    pub(crate) fn of(options: &GatewayOptions, is_open: bool, addresses: &[SocketAddr]) -> Self {
        let is_this_machine = |address: &SocketAddr| address.ip().to_canonical().is_loopback();
        let local = is_open && addresses.iter().all(is_this_machine);
        Self::new(options.tls.is_some(), local, &options.allowed_origins)
    }

    /// Texts that are no origins match nothing.
    pub(crate) fn new<S: AsRef<str>>(
        secure: bool,
        local: bool,
        allowed: impl IntoIterator<Item = S>,
    ) -> Self {
        let others = allowed.into_iter().filter_map(|text| Origin::parse(text.as_ref())).collect();
        Self { secure, local, others }
    }

    /// Lets a request in that has no origin, the same as its host, a loopback one, or one that is allowed.
    pub(crate) fn check(&self, headers: &HeaderMap, uri: &Uri) -> Result<Page, Refusal> {
        // HTTP/2 has the host in the address.
        let named = headers.get(header::HOST).map(|host| host.to_str().unwrap_or_default());
        let host = uri.authority().map(Authority::as_str).or(named);
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let page = match (origins.next(), origins.next()) {
            (None, _) => Some(Page::Plain),
            (Some(origin), None) => self.page(origin, host),
            (Some(_), Some(_)) => None,
        };
        page.filter(|_| self.trusts(host)).ok_or_else(|| {
            let message = "pages of this origin may not use the server; add it to `allowed_origins`";
            Refusal::new(StatusCode::FORBIDDEN, "forbidden_origin", message)
        })
    }

    fn page(&self, text: &HeaderValue, host: Option<&str>) -> Option<Page> {
        let origin = Origin::parse(text.to_str().ok()?)?;
        if self.others.contains(&origin) {
            return Some(Page::Allowed(text.clone()));
        }
        let is_same = host.is_some_and(|host| self.is_same(&origin, host));
        (is_same || is_loopback(&origin.host)).then_some(Page::Plain)
    }

    /// A page can give a name of its own our address, and is then of the same origin, for which browsers send no header
    /// at all. Numbers, `localhost` and names of one word cannot be given away like that. With tokens it does no harm.
    fn trusts(&self, host: Option<&str>) -> bool {
        if !self.local {
            return true;
        }
        let Some(host) = host else { return true };
        let Some((host, _)) = split_host(host) else { return false };
        let is_number = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        let is_one_word = !host.contains(['.', ':']);
        is_number || is_one_word || is_loopback(&host) || self.others.iter().any(|other| other.host == host)
    }

    /// Whether the page came from the address that it connects to. Without TLS of our own, a proxy may have added it, so
    /// either scheme will do.
    fn is_same(&self, origin: &Origin, host: &str) -> bool {
        let Some((host, port)) = split_host(host) else { return false };
        let port = port.unwrap_or(if origin.secure { 443 } else { 80 });
        origin.host == host && origin.port == port && (origin.secure || !self.secure)
    }
}

impl Origin {
    /// As browsers write it, `scheme://host[:port]`, and nothing else.
    fn parse(text: &str) -> Option<Self> {
        let (secure, rest) = match text.split_once("://")? {
            (scheme, rest) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            (scheme, rest) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            _ => return None,
        };
        let (host, port) = split_host(rest)?;
        Some(Self { secure, host, port: port.unwrap_or(if secure { 443 } else { 80 }) })
    }
}

fn parse(text: &str) -> Result<Origin, OriginError> {
    Origin::parse(text).ok_or_else(|| OriginError(text.chars().take(100).collect()))
}

/// Host in small letters, and port. Nothing of a user, a path or an encoding is accepted.
fn split_host(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            // In one form only, as numbers can be written in several.
            let address: Ipv6Addr = host.parse().ok()?;
            (format!("[{address}]"), rest)
        }
        None => {
            let end = text.find(':').unwrap_or(text.len());
            let (host, rest) = text.split_at_checked(end)?;
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
            if host.is_empty() || !host.chars().all(is_name) {
                return None;
            }
            (host.to_ascii_lowercase(), rest)
        }
    };
    match port.strip_prefix(':') {
        None => port.is_empty().then_some((host, None)),
        Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some((host, Some(digits.parse().ok()?)))
        }
        Some(_) => None,
    }
}

/// Pages of this machine. Browsers write addresses in one form, so no other is looked for.
fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host == "[::1]"
        || host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests;
