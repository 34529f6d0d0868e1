//! Which web pages may connect.
//!
//! Any web page can make a browser send requests, with the user's place in the network and the user's
//! credentials. The `Origin` header names the page. Browsers leave it out of some requests, for example for an
//! image; then `Sec-Fetch-Site` still says whether the page is one of this server. Programs other than browsers
//! send neither and are not stopped by this check.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use thiserror::Error;

use crate::options::GatewayOptions;
use crate::refusal::Refusal;

/// Where the page behind a request is from, in the words of the browser.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// The rule of one gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Origins {
    /// Whether this gateway serves over TLS. A page that came without TLS is then not ours.
    secure: bool,
    /// Whether only this machine is served, without tokens: a client is allowed because it runs on this
    /// machine.
    local: bool,
    /// Whether clients need no token. Only the browser then knows that a page of another site asks.
    open: bool,
    others: Vec<Origin>,
}

/// The page behind a request, as far as the answer depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PageOrigin {
    /// No page, or a page of this server: the answer needs no CORS headers.
    Plain,
    /// A page that the configuration allows, or one of this machine: its scripts may read the answer.
    Allowed(HeaderValue),
}

/// A text that is not an origin.
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
    /// In lower case.
    host: String,
    port: u16,
}

impl Origins {
    /// The rule of a gateway with these options and addresses.
    pub(crate) fn of(options: &GatewayOptions, is_open: bool, addresses: &[SocketAddr]) -> Self {
        let is_this_machine = |address: &SocketAddr| address.ip().to_canonical().is_loopback();
        let local = is_open && addresses.iter().all(is_this_machine);
        Self { open: is_open, ..Self::new(options.tls.is_some(), local, &options.allowed_origins) }
    }

    /// A text in `allowed` that is not an origin matches nothing.
    pub(crate) fn new<S: AsRef<str>>(
        secure: bool,
        local: bool,
        allowed: impl IntoIterator<Item = S>,
    ) -> Self {
        let others = allowed.into_iter().filter_map(|text| Origin::parse(text.as_ref())).collect();
        Self { secure, local, open: local, others }
    }

    /// Allows a request without an origin, or whose origin is its own host, a loopback address or in the
    /// configuration.
    pub(crate) fn check(&self, headers: &HeaderMap, uri: &Uri) -> Result<PageOrigin, Refusal> {
        let host = host_of(headers, uri);
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let page = match (origins.next(), origins.next()) {
            (None, _) => (!self.open || is_own_site(headers, host)).then_some(PageOrigin::Plain),
            (Some(origin), None) => self.page(origin, host),
            (Some(_), Some(_)) => None,
        };
        page.filter(|_| self.trusts(host)).ok_or_else(forbidden_origin)
    }

    /// Allows a request for what holds no data, from any page, if the request addresses a host that can be trusted.
    pub(crate) fn check_host(&self, headers: &HeaderMap, uri: &Uri) -> Result<PageOrigin, Refusal> {
        match self.trusts(host_of(headers, uri)) {
            true => Ok(PageOrigin::Plain),
            false => Err(forbidden_origin()),
        }
    }

    fn page(&self, text: &HeaderValue, host: Option<&str>) -> Option<PageOrigin> {
        let origin = Origin::parse(text.to_str().ok()?)?;
        if self.others.contains(&origin) {
            return Some(PageOrigin::Allowed(text.clone()));
        }
        if host.is_some_and(|host| self.is_same(&origin, host)) {
            return Some(PageOrigin::Plain);
        }
        // A page of this machine may open a WebSocket, so it may read answers too.
        is_loopback(&origin.host).then(|| PageOrigin::Allowed(text.clone()))
    }

    /// Whether the host of a request can be trusted. A page can point a DNS name of its own at this server's
    /// address; the page then has the same origin, for which browsers send no header at all. IP addresses,
    /// `localhost` and names of one word cannot be taken over like that. With tokens this attack does no
    /// harm.
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

    /// Whether the page came from the address that it connects to. If this server has no TLS, a proxy may
    /// have added it, so both schemes are accepted.
    fn is_same(&self, origin: &Origin, host: &str) -> bool {
        let Some((host, port)) = split_host(host) else { return false };
        let port = port.unwrap_or(if origin.secure { 443 } else { 80 });
        origin.host == host && origin.port == port && (origin.secure || !self.secure)
    }
}

impl Origin {
    /// Parses `scheme://host[:port]`, as browsers write it, and nothing else.
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

fn forbidden_origin() -> Refusal {
    let message = "pages of this origin may not use the server; add it to `allowed_origins`";
    Refusal::new(StatusCode::FORBIDDEN, "forbidden_origin", message)
}

/// The host that a request addresses. HTTP/2 has it in the URI.
fn host_of<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<&'a str> {
    let named = headers.get(header::HOST).map(|host| host.to_str().unwrap_or_default());
    uri.authority().map(Authority::as_str).or(named)
}

fn parse(text: &str) -> Result<Origin, OriginError> {
    Origin::parse(text).ok_or_else(|| OriginError(text.chars().take(100).collect()))
}

/// Splits into the host in lower case and the port. A user, a path or an encoding is not accepted.
fn split_host(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            // Parsed and printed again, because one address can be written in several forms.
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

/// Whether the host is this machine. Browsers write addresses in one form, so other forms are not accepted.
fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host == "[::1]"
        || host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

/// Whether a request without an origin comes from no page, from a page of this server, or from a page of this
/// machine. `same-site` includes pages of neighbouring hosts and ports, so it counts for this machine only.
fn is_own_site(headers: &HeaderMap, host: Option<&str>) -> bool {
    let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
    let is_this_machine = || host.and_then(split_host).is_some_and(|(host, _)| is_loopback(&host));
    match (sites.next().map(HeaderValue::as_bytes), sites.next()) {
        (None, _) | (Some(b"none" | b"same-origin"), None) => true,
        (Some(b"same-site"), None) => is_this_machine(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(origins: &Origins, origin: &[&str], host: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        for origin in origin {
            headers.append(header::ORIGIN, HeaderValue::from_bytes(origin.as_bytes()).unwrap());
        }
        if let Some(host) = host {
            headers.insert(header::HOST, host.parse().unwrap());
        }
        origins.check(&headers, &Uri::from_static("/ws")).is_ok()
    }

    const HOST: &str = "bus.example.com";

    /// Origins, and whether they are let in.
    const TRICKY: &[(&str, bool)] = &[
        ("https://app.example.com", true),
        ("https://app.example.com:443", true),
        ("HTTPS://APP.example.COM", true),
        ("http://dev.example.com:3000", true),
        // The same as the host, which a proxy may serve over TLS.
        ("http://bus.example.com", true),
        ("https://bus.example.com", true),
        // This machine, on any port.
        ("http://localhost", true),
        ("http://localhost:5173", true),
        ("https://127.0.0.1:8443", true),
        ("http://127.8.9.10", true),
        ("http://[::1]:3000", true),
        // Substrings, on either side.
        ("https://app.example.com.evil.com", false),
        ("https://evilapp.example.com", false),
        ("https://x.app.example.com", false),
        ("https://example.com", false),
        ("https://app.example.co", false),
        ("http://localhost.evil.com", false),
        ("http://127.0.0.1.evil.com", false),
        ("http://evil-localhost", false),
        ("https://bus.example.com.evil.com", false),
        // Port and scheme.
        ("https://app.example.com:8443", false),
        ("http://app.example.com", false),
        ("http://dev.example.com", false),
        ("https://dev.example.com:3000", false),
        ("http://bus.example.com:8081", false),
        ("https://app.example.com:", false),
        ("https://app.example.com:0443x", false),
        ("https://app.example.com:99999", false),
        ("wss://app.example.com", false),
        ("file://localhost", false),
        ("chrome-extension://localhost", false),
        // No origin at all.
        ("null", false),
        ("NULL", false),
        ("", false),
        ("*", false),
        ("https://", false),
        ("https://*", false),
        ("app.example.com", false),
        ("//app.example.com", false),
        // Userinfo, paths, encodings, whitespace, lists.
        ("https://app.example.com@evil.com", false),
        ("https://evil.com@app.example.com", false),
        ("http://localhost:80@evil.com", false),
        ("http://localhost@evil.com", false),
        ("https://app.example.com/", false),
        ("https://app.example.com/x", false),
        ("https://app.example.com?x", false),
        ("https://app.example.com#x", false),
        ("https://app.example.com\\.evil.com", false),
        ("https://app%2eexample.com", false),
        ("https://app.example.com evil.com", false),
        (" https://app.example.com", false),
        ("https://app.example.com, https://evil.com", false),
        ("https://app.example.com.", false),
        ("https://\u{ff41}pp.example.com", false),
        // Other ways to write a loopback address.
        ("http://127.1", false),
        ("http://2130706433", false),
        ("http://0x7f.0.0.1", false),
        ("http://0.0.0.0", false),
        ("http://[::]", false),
        ("http://[::ffff:127.0.0.1]", false),
        ("http://[::1", false),
        ("http://[::1].evil.com", false),
        ("http://::1", false),
        ("http://192.168.0.1", false),
    ];

    #[test]
    fn tricky_origins_are_refused_and_good_ones_let_in() {
        let origins = Origins::new(false, false, ["https://app.example.com", "http://dev.example.com:3000"]);
        for &(origin, allowed) in TRICKY {
            assert_eq!(ask(&origins, &[origin], Some(HOST)), allowed, "{origin:?}");
        }
    }

    #[test]
    fn no_origin_is_let_in_and_two_are_not() {
        let origins = Origins::default();
        assert!(ask(&origins, &[], Some(HOST)));
        assert!(ask(&origins, &[], None));
        assert!(!ask(&origins, &["http://localhost", "http://localhost"], Some(HOST)));
        assert!(!ask(&origins, &["http://bus.example.com"], None));
    }

    #[test]
    fn the_same_origin_has_the_same_port_and_under_tls_the_same_scheme() {
        let (plain, secure) = (Origins::default(), Origins::new(true, false, [""; 0]));
        let same = [
            ("http://bus.example.com:8090", "bus.example.com:8090"),
            ("http://bus.example.com", "bus.example.com:80"),
            ("http://bus.example.com:80", "bus.example.com"),
            ("http://bus.example.com", "BUS.example.com"),
            ("http://10.0.0.7:8090", "10.0.0.7:8090"),
            ("http://[2001:db8::1]:8090", "[2001:0db8::1]:8090"),
        ];
        for (origin, host) in same {
            assert!(ask(&plain, &[origin], Some(host)), "{origin} {host}");
            assert!(!ask(&secure, &[origin], Some(host)), "{origin} {host} under TLS");
            // With the ports written out, the other scheme is fine under TLS.
            let (origin, host) = (origin.replace("http:", "https:"), host.replace(":80", ":443"));
            let origin = if origin.ends_with(":80") { origin.replace(":80", "") } else { origin };
            if !origin.contains(":8090") {
                assert!(ask(&secure, &[&origin], Some(&host)), "{origin} {host} under TLS");
            }
        }
        for (origin, host) in [
            ("http://bus.example.com:8090", "bus.example.com"),
            ("http://bus.example.com", "bus.example.com:8090"),
            ("http://bus.example.com", "bus.example.com@evil.com"),
            ("http://bus.example.com", "evil.com"),
            ("http://bus.example.com", ""),
        ] {
            assert!(!ask(&plain, &[origin], Some(host)), "{origin} {host}");
        }
    }

    #[test]
    fn the_address_of_http2_counts_as_the_host() {
        let mut headers = HeaderMap::new();
        headers.insert(header::ORIGIN, HeaderValue::from_static("https://bus.example.com"));
        let origins = Origins::new(true, false, [""; 0]);
        assert!(origins.check(&headers, &Uri::from_static("https://bus.example.com/ws")).is_ok());
        assert!(origins.check(&headers, &Uri::from_static("https://other.example.com/ws")).is_err());
    }

    #[test]
    fn a_name_given_to_our_address_does_not_open_a_server_without_tokens() {
        let local = Origins::new(false, true, ["https://proxied.example.com"]);
        for host in ["127.0.0.1:8090", "localhost:8090", "[::1]:8090", "proxied.example.com"] {
            assert!(ask(&local, &[], Some(host)), "{host}");
        }
        assert!(ask(&local, &[], None));
        for host in ["evil.com:8090", "localhost.evil.com", "evil.com:8090, localhost", ""] {
            assert!(!ask(&local, &[], Some(host)), "{host}");
            assert!(!ask(&local, &["http://evil.com:8090"], Some(host)), "{host}");
        }
    }

    #[test]
    fn the_host_counts_where_this_machine_alone_is_served_without_tokens() {
        let rule = |is_open: bool, addresses: &[&str]| {
            let addresses: Vec<SocketAddr> =
                addresses.iter().map(|address| address.parse().unwrap()).collect();
            Origins::of(&GatewayOptions::default(), is_open, &addresses)
        };
        let named = |origins: &Origins| ask(origins, &[], Some("evil.com"));
        assert!(!named(&rule(true, &["127.0.0.1:1", "[::1]:1"])));
        assert!(named(&rule(false, &["127.0.0.1:1"])), "a page has no token");
        assert!(named(&rule(true, &["127.0.0.1:1", "0.0.0.0:1"])), "with --insecure");
    }

    #[test]
    fn pages_of_other_sites_do_not_reach_a_server_without_tokens() {
        let asked = |origins: &Origins, host: &'static str, sites: &[&'static str]| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static(host));
            for site in sites {
                headers.append(SEC_FETCH_SITE, HeaderValue::from_static(site));
            }
            origins.check(&headers, &Uri::from_static("/export?topic=t")).is_ok()
        };
        let address = |text: &str| vec![text.parse::<SocketAddr>().unwrap()];
        let rule = |is_open, text| Origins::of(&GatewayOptions::default(), is_open, &address(text));
        for open in [rule(true, "127.0.0.1:1"), rule(true, "0.0.0.0:1")] {
            for sites in [&[][..], &["none"], &["same-origin"], &["same-site"]] {
                assert!(asked(&open, "localhost:1", sites), "{sites:?}");
            }
            for sites in [&["cross-site"][..], &["Cross-Site"], &[""], &["new-word"], &["none", "cross-site"]]
            {
                assert!(!asked(&open, "localhost:1", sites), "{sites:?}");
            }
            assert!(!asked(&open, "10.0.0.7:1", &["same-site"]), "another host of the same site");
        }
        // A page has no token to show.
        assert!(asked(&rule(false, "0.0.0.0:1"), "bus.example.com", &["cross-site"]));
        // The origin decides if there is one: this page is of this machine, though of another site.
        let mut headers = HeaderMap::new();
        headers.insert(header::ORIGIN, HeaderValue::from_static("http://127.0.0.1:3000"));
        headers.insert(header::HOST, HeaderValue::from_static("localhost:1"));
        headers.insert(SEC_FETCH_SITE, HeaderValue::from_static("cross-site"));
        assert!(rule(true, "127.0.0.1:1").check(&headers, &Uri::from_static("/ws")).is_ok());
    }

    #[test]
    fn what_is_no_origin_is_refused_in_the_configuration() {
        assert_eq!(check_origins(["https://a.example", "http://localhost:3000"]), Ok(()));
        for text in ["*", "null", "https://*.example.com", "https://a.example/", "a.example", ""] {
            assert!(check_origins([text]).is_err(), "{text}");
        }
    }

    #[test]
    fn answers_say_so_to_pages_that_are_allowed_and_to_no_others() {
        let origins = Origins::new(false, false, ["https://app.example.com"]);
        let page = |origin: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
            headers.insert(header::HOST, HeaderValue::from_static(HOST));
            origins.check(&headers, &Uri::from_static("/ws"))
        };
        let allowed = HeaderValue::from_static("https://app.example.com");
        assert_eq!(page("https://app.example.com").unwrap(), PageOrigin::Allowed(allowed));
        assert_eq!(page("http://bus.example.com").unwrap(), PageOrigin::Plain);
        let local = HeaderValue::from_static("http://localhost:5173");
        assert_eq!(page("http://localhost:5173").unwrap(), PageOrigin::Allowed(local));
        let refusal = page("https://evil.com").unwrap_err();
        assert_eq!((refusal.status, refusal.code), (StatusCode::FORBIDDEN, "forbidden_origin"));
        assert!(refusal.message.contains("allowed_origins"));
    }
}
