use serde_json::json;

use promethean_projections::Declared;
use promethean_projections::compactor::CompactorOptions;

use crate::suite::world::World;

#[tokio::test]
async fn health_ready_and_the_index() {
    let world = World::new().await;
    assert_eq!(
        world.get("/health").await.json(200),
        json!({"status": "ok", "writable": true, "slow": false, "damaged_ranges": 0, "projectors_halted": 0,
            "retention_waits": 0, "rebuilds_incomplete": 0, "compactors_failing": 0, "topics_scarce": false})
    );
    assert_eq!(world.get("/ready").await.json(200), json!({"ready": true}));
    assert_eq!(world.get("/").await.json(200)["name"], "promethean");
    world.store.close().await;
    assert_eq!(world.get("/health").await.json(200)["status"], "degraded");
    world.get("/ready").await.refused(503, "not_ready");
    world.send("POST", "/publish/a", "1").await.refused(503, "closed");
    world.stop().await;
}

#[tokio::test]
async fn a_compactor_that_fails_is_in_health() {
    let topic: promethean_model::TopicName = "in".parse().unwrap();
    let program = promethean_jq::Program::compile(r#"error("no")"#).unwrap();
    let reducer = promethean_projections::time_travel::Reducer::Jq(program);
    let options = CompactorOptions {
        every: std::time::Duration::from_millis(10),
        reducer,
        ..CompactorOptions::new(topic)
    };
    let declared = Declared { compactors: vec![options], ..Declared::default() };
    let world = World::with_state(std::sync::Arc::new(promethean_gateway::auth::Open), declared).await;
    assert_eq!(world.get("/health").await.json(200)["compactors_failing"], 0);
    world.publish("in?key=k", "1").await;
    promethean_testkit::until("the compactor fails", async || world.projections.failing_compactors() == 1)
        .await;
    let health = world.get("/health").await.json(200);
    assert_eq!((&health["status"], &health["compactors_failing"]), (&json!("degraded"), &json!(1)));
    let shown = world.get("/projectors").await.json(200);
    assert!(shown["compactors"][0]["last_error"].as_str().unwrap().contains("no"), "{shown}");
    world.stop().await;
}

#[tokio::test]
async fn metrics_count_requests_and_connections() {
    let world = World::new().await;
    let mut client = world.http().await;
    client.send("POST", "/publish/a", &[], "1").await.json(200);
    client.send("POST", "/publish/a", &[], "{").await.refused(400, "invalid_json");
    client.send("GET", "/nowhere/at/all", &[], "").await.refused(404, "not_found");
    let page = client.send("GET", "/metrics", &[], "").await;
    assert_eq!(page.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let page = page.text();
    for line in [
        "connections 1",
        "topics 1",
        "events_published_total{topic=\"a\"} 1",
        "requests_rejected_total{code=\"invalid_json\"} 1",
        "http_request_duration_seconds_count{route=\"/publish/{topic}\",status_class=\"2xx\"} 1",
        "http_request_duration_seconds_bucket{route=\"/publish/{topic}\",status_class=\"4xx\",le=\"0.001\"} 1",
        "http_request_duration_seconds_sum{route=\"/publish/{topic}\",status_class=\"2xx\"} 0",
        "# TYPE http_request_duration_seconds histogram",
        "# TYPE ws_frames_total counter",
        "ws_frames_total{op=\"PUBLISH\"} 0",
        "quota_refusals_total{limit=\"auth_failures\"} 0",
        "http_requests_total{method=\"POST\",route=\"/publish/{topic}\",status=\"2xx\"} 1",
        "http_requests_total{method=\"POST\",route=\"/publish/{topic}\",status=\"4xx\"} 1",
        "http_requests_total{method=\"\",route=\"unmatched\",status=\"4xx\"} 1",
    ] {
        assert!(page.lines().any(|l| l == line), "no `{line}` in\n{page}");
    }
    let families = |page: &str| page.lines().filter(|line| line.starts_with("# TYPE")).count();
    let names: std::collections::BTreeSet<_> =
        page.lines().filter(|l| l.starts_with("# TYPE")).map(|l| l.split(' ').nth(2).unwrap()).collect();
    assert_eq!(families(&page), names.len(), "a family is shown twice");
    world.stop().await;
}

#[tokio::test]
async fn the_description_names_every_route_and_form() {
    let world = World::new().await;
    let document = world.get("/openapi.json").await.json(200);
    assert_eq!(document["openapi"], "3.1.0");
    // Refusals that a client must expect: groups of projectors and topics that are being deleted conflict, and a
    // token may have too many requests under way.
    for (verb, path) in [
        ("post", "/groups/{group}/pause"),
        ("post", "/groups/{group}/resume"),
        ("post", "/groups/{group}/seek"),
        ("delete", "/groups/{group}"),
    ] {
        let answers = &document["paths"][path][verb]["responses"];
        assert!(answers["409"].is_object() && answers["429"].is_object(), "{verb} {path}: {answers}");
    }
    let paths = document["paths"].as_object().unwrap();
    for path in [
        "/publish/{topic}",
        "/publish/{topic}/batch",
        "/replay",
        "/export",
        "/stream/{topic}",
        "/dlq/redrive",
    ] {
        assert!(paths.contains_key(path), "{path}");
    }
    // Every reference has its target.
    let text = document.to_string();
    for part in text.split("#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(document["components"]["schemas"].get(name).is_some(), "{name}");
    }
    world.stop().await;
}

#[tokio::test]
async fn unknown_paths_and_methods() {
    let world = World::new().await;
    for path in [
        "/nowhere",
        "/health/",
        "//health",
        "/publish",
        "/publish/",
        "/publish/a/b",
        "/Health",
        "/groups/g/x",
    ] {
        world.get(path).await.refused(404, "not_found");
    }
    for (method, path, allow) in [
        ("POST", "/health", "GET, HEAD, OPTIONS"),
        ("GET", "/publish/a", "POST, OPTIONS"),
        ("PATCH", "/topics/a", "GET, PUT, DELETE, HEAD, OPTIONS"),
        ("TRACE", "/topics", "GET, HEAD, OPTIONS"),
        ("BREW", "/topics", "GET, HEAD, OPTIONS"),
    ] {
        let answer = world.send(method, path, "").await;
        answer.refused(405, "method_not_allowed");
        assert_eq!(answer.headers["allow"], allow, "{method} {path}");
    }
    let options = world.send("OPTIONS", "/topics", "").await;
    assert_eq!(
        (options.status.as_u16(), &options.headers["allow"]),
        (204, &"GET, HEAD, OPTIONS".parse().unwrap())
    );
    let ws = world.get("/ws").await;
    ws.refused(426, "upgrade_required");
    assert_eq!(ws.headers["upgrade"], "websocket");
    world.stop().await;
}

#[tokio::test]
async fn head_is_get_without_its_body() {
    let world = World::new().await;
    world.publish("a", "1").await;
    let mut client = world.http().await;
    for path in [
        "/health",
        "/ready",
        "/",
        "/topics",
        "/topics/a",
        "/replay?topic=a",
        "/metrics",
        "/openapi.json",
        "/ops",
        "/topics/b",
    ] {
        let get = client.send("GET", path, &[], "").await;
        let head = client.send("HEAD", path, &[], "").await;
        assert_eq!((head.status, head.body.len()), (get.status, 0), "{path}");
        assert_eq!(head.headers.get("content-type"), get.headers.get("content-type"), "{path}");
        if path != "/metrics" && path != "/topics/b" {
            assert_eq!(head.headers["content-length"], get.headers["content-length"], "{path}");
        }
    }
    world.stop().await;
}

#[tokio::test]
async fn request_ids_are_echoed_if_sane_and_made_if_not() {
    let world = World::new().await;
    let mut client = world.http().await;
    let echoed = client.send("GET", "/health", &[("x-request-id", "abc-123")], "").await;
    assert_eq!(echoed.headers["x-request-id"], "abc-123");
    let long = "x".repeat(129);
    let mut made = std::collections::BTreeSet::new();
    for bad in ["", "a b", "<script>", "a\tb", long.as_str()] {
        let answer = client.send("GET", "/nowhere", &[("x-request-id", bad)], "").await;
        let refused = answer.refused(404, "not_found");
        made.insert(refused["request_id"].as_str().unwrap().to_owned());
    }
    assert_eq!(made.len(), 5);
    world.stop().await;
}
