//! The address of a server, and why a server cannot be reached.

use std::fmt;

use hyper::Uri;
use hyper::http::uri::InvalidUri;

use crate::error::ClientError;

/// The address of a server: scheme, host, port and perhaps a path in front of the routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    is_secure: bool,
    host: String,
    port: u16,
    authority: String,
    /// Without a slash at its end.
    path: String,
}

impl ServerAddress {
    /// Reads a URL with the scheme `ws`, `wss`, `http` or `https`.
    pub fn parse(url: &str) -> Result<Self, ClientError> {
        let uri: Uri = url.trim().parse().map_err(|cause: InvalidUri| wrong(url).because(cause))?;
        let is_secure = match uri.scheme_str() {
            Some("ws" | "http") => false,
            Some("wss" | "https") => true,
            _ => return Err(wrong(url)),
        };
        let authority = uri.authority().ok_or_else(|| wrong(url))?;
        if url.contains('@') || uri.query().is_some() || url.contains('#') {
            let message = format!(
                "the URL {} has more than scheme, host and path; give the token as an option",
                without_secrets(url)
            );
            return Err(ClientError::new("bad_url", message));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(wrong(url));
        }
        if uri.port_u16().is_none() && authority.as_str().len() > authority.host().len() {
            return Err(wrong(url));
        }
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let path = uri.path().strip_suffix("/ws").unwrap_or(uri.path()).trim_end_matches('/').to_owned();
        Ok(Self { is_secure, host, port, authority: authority.as_str().to_owned(), path })
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.is_secure
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// What comes before the path of a route.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn unreachable(&self, why: impl fmt::Display) -> ClientError {
        let message =
            format!("cannot reach {self}: {why}; check that the server runs there and that the URL is right");
        ClientError::new("unreachable", message)
    }

    pub(crate) fn not_a_server(&self) -> ClientError {
        let message = format!("{self} answers, but is not a Promethean server; correct the URL");
        ClientError::new("wrong_url", message)
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_secure { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.path)
    }
}

fn wrong(url: &str) -> ClientError {
    let url = without_secrets(url);
    let message = format!("`{url}` is not the URL of a server; write, for example, ws://127.0.0.1:8090");
    ClientError::new("bad_url", message)
}

/// The scheme and the host of a URL: a user, a path or a query may have secrets in it, and errors are logged.
fn without_secrets(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // A password may have a slash in it that should be escaped.
    let host = if rest.contains('@') { rest.rsplit('@').next().unwrap_or_default() } else { authority };
    let host = host.split(['/', '?', '#']).next().unwrap_or_default();
    let host: String = host.chars().take(100).collect();
    let more = if rest.len() > host.len() { "..." } else { "" };
    match scheme {
        "" => format!("{host}{more}"),
        scheme => format!("{scheme}://{host}{more}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_of_the_four_schemes_names_a_server() {
        let check = |url: &str, shown: &str, port: u16| {
            let address = ServerAddress::parse(url).unwrap();
            assert_eq!((address.to_string().as_str(), address.port), (shown, port), "{url}");
        };
        check("ws://127.0.0.1:8090", "http://127.0.0.1:8090", 8090);
        check("http://127.0.0.1:8090/", "http://127.0.0.1:8090", 8090);
        check("wss://bus.example.com/ws", "https://bus.example.com", 443);
        check("https://example.com/bus/ws", "https://example.com/bus", 443);
        check("ws://[::1]:9", "http://[::1]:9", 9);
    }

    #[test]
    fn wrong_urls_are_named() {
        for url in [
            "",
            "127.0.0.1:8090",
            "ftp://a",
            "ws://",
            "ws://h:port",
            "ws://h:",
            "ws://h:99999",
            "ws://u:p@h",
            "ws://h/?token=x",
            "http://h/#a",
            "a b",
        ] {
            let error = ServerAddress::parse(url).unwrap_err();
            assert_eq!(error.code(), "bad_url", "{url}");
        }
    }

    #[test]
    fn errors_show_no_user_and_no_query() {
        for url in [
            "ws://u:secret@host/bus",
            "ws://u:se/secret@host",
            "ftp://u:secret@host",
            "ws://host/?token=secret",
            "host/?token=secret",
            "http://host/#secret",
            "ws://host/a b?token=secret",
        ] {
            let error = ServerAddress::parse(url).unwrap_err();
            assert!(!error.message().contains("secret") && error.message().contains("host"), "{error}");
        }
    }
}
