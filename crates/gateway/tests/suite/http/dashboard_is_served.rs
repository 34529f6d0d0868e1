use std::io::Read;
use std::sync::Arc;

use async_trait::async_trait;
use flate2::read::GzDecoder;
use promethean_gateway::GatewayOptions;
use promethean_gateway::auth::{AuthError, Authenticator, Grants, Identity};

use super::client::Answer;
use crate::suite::world::World;

/// What a browser sends when its user opens a page.
const ACCEPT: (&str, &str) = ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");

fn is_page(answer: &Answer) -> bool {
    answer.status == 200
        && answer.headers["content-type"] == "text/html; charset=utf-8"
        && answer.text().starts_with("<!doctype html>")
}

/// Accepts only `good`.
#[derive(Debug)]
struct NeedsToken;

#[async_trait]
impl Authenticator for NeedsToken {
    async fn authenticate(&self, token: Option<&str>) -> Result<Identity, AuthError> {
        match token {
            Some("good") => Ok(Identity::new("good", Grants::everything())),
            _ => Err(AuthError::Missing),
        }
    }
}

#[tokio::test]
async fn a_browser_gets_the_page_and_a_program_the_index() {
    let world = World::new().await;
    let mut client = world.http().await;
    assert!(is_page(&client.send("GET", "/", &[ACCEPT], "").await));
    assert!(is_page(&client.send("GET", "/dashboard", &[], "").await));
    for accept in ["*/*", "application/json", "text/html;q=0", ""] {
        let answer = client.send("GET", "/", &[("accept", accept)], "").await;
        assert_eq!(answer.json(200)["name"], "promethean", "{accept}");
        assert_eq!(answer.headers["vary"], "Accept", "a cache must not mix page and index");
    }
    // The WebSocket is at the same path.
    let mut socket = world.ws().await;
    socket.ok(serde_json::json!({"op": "AUTH"})).await;
    world.stop().await;
}

#[tokio::test]
async fn code_needs_no_token_and_data_does() {
    let world = World::with_auth(GatewayOptions::default(), Arc::new(NeedsToken)).await;
    let mut client = world.http().await;
    assert!(is_page(&client.send("GET", "/", &[ACCEPT], "").await));
    for path in
        ["/dashboard/main.js", "/dashboard/lib/dom.js", "/dashboard/src/http.js", "/dashboard/icon.svg"]
    {
        assert_eq!(client.send("GET", path, &[], "").await.status, 200, "{path}");
    }
    client.send("GET", "/", &[], "").await.refused(401, "unauthorized");
    client.send("GET", "/topics", &[ACCEPT], "").await.refused(401, "unauthorized");
    world.stop().await;
}

#[tokio::test]
async fn files_have_tags_types_and_a_strict_policy() {
    let world = World::new().await;
    let mut client = world.http().await;
    for (path, media) in [
        ("/dashboard", "text/html; charset=utf-8"),
        ("/dashboard/main.js", "text/javascript; charset=utf-8"),
        ("/dashboard/style.css", "text/css; charset=utf-8"),
        ("/dashboard/icon.svg", "image/svg+xml"),
    ] {
        let plain = client.send("GET", path, &[], "").await;
        assert_eq!(plain.headers["content-type"], media, "{path}");
        assert_eq!(plain.headers["cache-control"], "no-cache");
        assert_eq!(plain.headers["x-content-type-options"], "nosniff");
        let policy = plain.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"), "{policy}");

        let packed = client.send("GET", path, &[("accept-encoding", "br, gzip")], "").await;
        assert_eq!(packed.headers["content-encoding"], "gzip");
        let mut unpacked = Vec::new();
        GzDecoder::new(&packed.body[..]).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, plain.body, "{path}");
        assert_ne!(packed.headers["etag"], plain.headers["etag"], "two bodies have two tags");

        for (answer, encoding) in [(&plain, "identity"), (&packed, "gzip")] {
            let known = answer.header("etag").unwrap();
            let asked = [("if-none-match", known), ("accept-encoding", encoding)];
            let again = client.send("GET", path, &asked, "").await;
            assert_eq!((again.status.as_u16(), again.body.len()), (304, 0), "{path} {encoding}");
            assert_eq!(again.headers["etag"], answer.headers["etag"]);
            assert!(!again.headers.contains_key("content-encoding"));
        }
        let head = client.send("HEAD", path, &[], "").await;
        assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
        assert_eq!(head.headers["content-length"], plain.headers["content-length"]);
    }
    world.stop().await;
}

#[tokio::test]
async fn only_embedded_files_are_served() {
    let world = World::new().await;
    let mut client = world.http().await;
    for path in [
        "/dashboard/nothing.js",
        "/dashboard/lib/nothing.js",
        "/dashboard/lib%2Fdom.js/x",
        "/dashboard/..%2f..%2fCargo.toml",
        "/dashboard/lib/..%2fmain.js",
        "/dashboard/src/subscription.js",
        "/dashboard/a/b/c",
        "/dashboard/",
    ] {
        client.send("GET", path, &[], "").await.refused(404, "not_found");
    }
    client.send("POST", "/dashboard", &[], "").await.refused(405, "method_not_allowed");
    client.send("POST", "/", &[ACCEPT], "").await.refused(405, "method_not_allowed");
    world.stop().await;
}

#[tokio::test]
async fn a_link_of_any_page_leads_to_the_page_and_to_nothing_else() {
    let world = World::new().await;
    let mut client = world.http().await;
    let visit = [
        ACCEPT,
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-dest", "document"),
    ];
    assert!(is_page(&client.send("GET", "/", &visit, "").await));
    client.send("GET", "/topics", &visit, "").await.refused(403, "forbidden_origin");
    client.send("POST", "/publish/a", &visit, "1").await.refused(403, "forbidden_origin");
    // Another page may neither frame it nor load it as an image or script.
    for (mode, dest) in
        [("navigate", "iframe"), ("no-cors", "script"), ("no-cors", "image"), ("cors", "empty")]
    {
        let load = [ACCEPT, visit[1], ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)];
        client.send("GET", "/", &load, "").await.refused(403, "forbidden_origin");
    }
    // A name that a page could point at this machine is refused, as for every other path.
    let raw = "GET / HTTP/1.1\r\nhost: evil.example\r\naccept: text/html\r\nsec-fetch-site: none\r\n\
               sec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\nconnection: close\r\n\r\n";
    let answer = super::client::raw(world.address(), raw.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    world.stop().await;
}

#[tokio::test]
async fn the_first_view_is_small() {
    let world = World::new().await;
    let mut client = world.http().await;
    let gzip = [("accept-encoding", "gzip")];
    let page = client.send("GET", "/dashboard", &[], "").await.text();
    let mut bytes = client.send("GET", "/dashboard", &gzip, "").await.body.len();
    let overview =
        ["lib/sampler.js", "lib/metrics_text.js", "lib/since.js", "lib/words.js", "lib/settings.js"];
    let parts = ["views/overview.js", "parts/chart.js", "parts/rows.js"];
    let named = page.split('"').filter_map(|text| text.strip_prefix("dashboard/"));
    for path in named.chain(overview).chain(parts) {
        let answer = client.send("GET", &format!("/dashboard/{path}"), &gzip, "").await;
        assert_eq!(answer.status, 200, "{path}");
        // Headers of request and answer count too.
        bytes += answer.body.len() + 800;
    }
    assert!(bytes < 150_000, "{bytes} bytes until the overview is shown");
    world.stop().await;
}
