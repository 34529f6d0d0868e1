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
        let addresses: Vec<SocketAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        Origins::of(&GatewayOptions::default(), is_open, &addresses)
    };
    let named = |origins: &Origins| ask(origins, &[], Some("evil.com"));
    assert!(!named(&rule(true, &["127.0.0.1:1", "[::1]:1"])));
    assert!(named(&rule(false, &["127.0.0.1:1"])), "a page has no token");
    assert!(named(&rule(true, &["127.0.0.1:1", "0.0.0.0:1"])), "somebody said --insecure");
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
    assert_eq!(page("https://app.example.com").unwrap(), Page::Allowed(allowed));
    assert_eq!(page("http://bus.example.com").unwrap(), Page::Plain);
    assert_eq!(page("http://localhost").unwrap(), Page::Plain);
    let refusal = page("https://evil.com").unwrap_err();
    assert_eq!((refusal.status, refusal.code), (StatusCode::FORBIDDEN, "forbidden_origin"));
    assert!(refusal.message.contains("allowed_origins"));
}
