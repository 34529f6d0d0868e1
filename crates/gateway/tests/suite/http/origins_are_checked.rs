use std::sync::Arc;

use promethean_gateway::options::GatewayOptions;

use crate::suite::auth::secrets_are_never_shown::Recorder;
use crate::suite::world::World;

fn options() -> GatewayOptions {
    GatewayOptions { allowed_origins: vec!["https://app.example".to_owned()], ..GatewayOptions::default() }
}

#[tokio::test]
async fn pages_from_elsewhere_are_refused() {
    let world = World::with_options(options()).await;
    let mut client = world.http().await;
    for origin in [
        "https://evil.example",
        "https://app.example.evil",
        "https://app.example:444",
        "http://app.example",
        "https://sub.app.example",
        "null",
        "",
        "http://localhost.evil",
    ] {
        let answer = client.send("POST", "/publish/a", &[("origin", origin)], "1").await;
        answer.refused(403, "forbidden_origin");
        assert!(!answer.headers.contains_key("access-control-allow-origin"));
    }
    world.get("/topics/a").await.refused(404, "unknown_topic");
    for origin in ["http://localhost:3000", "http://127.0.0.1", "http://[::1]:1"] {
        let answer = client.send("POST", "/publish/a", &[("origin", origin)], "1").await;
        assert_eq!(answer.status, 200, "{origin}");
        // As on a WebSocket, a page of this machine may use the server.
        assert_eq!(answer.header("access-control-allow-origin"), Some(origin));
    }
    world.stop().await;
}

#[tokio::test]
async fn pages_from_elsewhere_cannot_load_answers_without_cors_either() {
    let world = World::with_options(options()).await;
    let mut client = world.http().await;
    client.send("POST", "/publish/a", &[], "1").await.json(200);
    for path in ["/export?topic=a", "/replay?topic=a", "/health", "/stream/a"] {
        let answer = client.send("GET", path, &[("sec-fetch-site", "cross-site")], "").await;
        // The refusal itself is no secret: a page learns that the server is there.
        assert_eq!(answer.headers["cross-origin-resource-policy"], "cross-origin");
        answer.refused(403, "forbidden_origin");
    }
    // A form of another page needs no CORS to send a body.
    let form = [("sec-fetch-site", "cross-site"), ("content-type", "text/plain")];
    client.send("POST", "/publish/a", &form, "2").await.refused(403, "forbidden_origin");
    for site in ["none", "same-origin", "same-site"] {
        let answer = client.send("GET", "/replay?topic=a", &[("sec-fetch-site", site)], "").await;
        assert_eq!(answer.json(200)["count"], 1, "{site}");
        assert_eq!(answer.headers["cross-origin-resource-policy"], "same-origin");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_refused_origin_is_logged_with_the_setting_that_lets_it_in() {
    let _second = tracing::Dispatch::new(Recorder::default());
    let recorder = Recorder::default();
    let log = Arc::clone(&recorder.0);
    let _guard = tracing::subscriber::set_default(recorder);
    let world = World::with_options(options()).await;
    let mut client = world.http().await;
    for _ in 0..100 {
        let answer = client.send("GET", "/topics", &[("origin", "https://shop.example")], "").await;
        answer.refused(403, "forbidden_origin");
    }
    world.stop().await;
    let log = log.lock().unwrap();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("https://shop.example")).collect();
    assert_eq!(lines.len(), 1, "one line stands for many: {lines:?}");
    assert!(log.contains("add the origin to `allowed_origins`"), "{log}");
}

#[tokio::test]
async fn scripts_of_an_allowed_origin_may_read_answers() {
    let world = World::with_options(options()).await;
    let mut client = world.http().await;
    let origin = ("origin", "https://app.example");
    let answer = client.send("POST", "/publish/a", &[origin], "1").await;
    assert_eq!(
        (answer.status.as_u16(), &answer.headers["access-control-allow-origin"]),
        (200, &"https://app.example".parse().unwrap())
    );
    assert_eq!(answer.headers["vary"], "Origin");
    let asked = [
        origin,
        ("access-control-request-method", "PUT"),
        ("access-control-request-headers", "authorization"),
    ];
    let preflight = client.send("OPTIONS", "/topics/a", &asked, "").await;
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.headers["access-control-allow-methods"], "GET, PUT, DELETE, HEAD, OPTIONS");
    assert_eq!(preflight.headers["access-control-allow-headers"], "authorization");
    assert!(!preflight.headers.contains_key("access-control-allow-credentials"));
    world.stop().await;
}
