//! Browsers send along where a page comes from. A page from elsewhere must not use what its reader may reach.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};

use crate::app::App;
use crate::refusal::Refusal;

/// Where a request comes from, as far as it matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// No page, the same origin, or this machine: nothing needs to be said about it.
    Plain,
    /// A page that the configuration names: its scripts may read the answer.
    Allowed(HeaderValue),
}

/// Refuses pages from elsewhere. Origins are compared whole, never by a part.
pub(crate) fn check(app: &App, headers: &HeaderMap, uri: &Uri) -> Result<Origin, Refusal> {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else { return Ok(Origin::Plain) };
    let text = origin.to_str().unwrap_or_default();
    let single = origins.next().is_none();
    if single && app.options.allowed_origins.iter().any(|allowed| allowed == text) {
        return Ok(Origin::Allowed(origin.clone()));
    }
    // HTTP/2 has it in the address.
    let host = headers
        .get(header::HOST)
        .map_or(uri.authority().map(|host| host.as_str()), |host| host.to_str().ok());
    if single && (is_loopback(text) || is_same(text, host)) {
        return Ok(Origin::Plain);
    }
    let message = "pages of this origin may not use the server; add the origin to the allowed ones";
    Err(Refusal::new(StatusCode::FORBIDDEN, "forbidden_origin", message))
}

fn is_same(origin: &str, host: Option<&str>) -> bool {
    let Some(authority) = authority(origin) else { return false };
    host.is_some_and(|host| host.eq_ignore_ascii_case(authority))
}

fn is_loopback(origin: &str) -> bool {
    let Some(authority) = authority(origin) else { return false };
    let host = match authority.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, port)) if port.is_empty() || is_port(port) => host,
            _ => return false,
        },
        None => match authority.split_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            Some(_) => return false,
            None => authority,
        },
    };
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// `host:port` of `scheme://host:port`.
fn authority(origin: &str) -> Option<&str> {
    let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"))?;
    (!rest.is_empty() && !rest.contains(['/', '@', '?', '#'])).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_this_machine_and_nothing_that_looks_like_it() {
        for origin in
            ["http://localhost", "http://localhost:3000", "https://127.0.0.1:1", "http://[::1]:8090"]
        {
            assert!(is_loopback(origin), "{origin}");
        }
        for origin in [
            "null",
            "",
            "localhost",
            "http://localhost.evil.com",
            "http://evil.com/localhost",
            "http://localhost@evil.com",
            "http://127.0.0.1.evil.com",
            "http://[::1].evil.com",
            "http://localhost:80.evil.com",
            "ftp://localhost",
        ] {
            assert!(!is_loopback(origin), "{origin}");
        }
    }

    #[test]
    fn the_same_origin_is_the_whole_of_it() {
        assert!(is_same("https://bus.example:8090", Some("Bus.Example:8090")));
        assert!(!is_same("https://bus.example", Some("bus.example:8090")));
        assert!(!is_same("https://bus.example.evil", Some("bus.example")));
        assert!(!is_same("null", Some("null")));
        assert!(!is_same("https://bus.example", None));
    }
}
