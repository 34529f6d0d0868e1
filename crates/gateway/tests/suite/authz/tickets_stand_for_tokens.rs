//! A ticket stands for its client's token in a URL: once, for a minute, for one path.

use std::sync::Arc;

use http_body_util::BodyExt;
use promethean_gateway::GatewayOptions;
use promethean_gateway::auth::{Grants, Quota, StaticToken, StaticTokens, TokenHash};
use promethean_testkit::ManualClock;
use serde_json::{Value, json};

use super::super::http::client::Answer;
use crate::suite::auth::secrets_are_never_shown::Recorder;
use crate::suite::world::{NOW, World, soon};

const TOKEN: &str = "prom_reader";

fn entry(scopes: &str) -> StaticToken {
    StaticToken {
        name: "reader".into(),
        hash: TokenHash::of(TOKEN),
        grants: Arc::new(Grants::parse(scopes.split_whitespace()).unwrap()),
        expires_ms: Some(NOW + 3_600_000),
        quota: Quota::default(),
    }
}

async fn world(scopes: &str) -> (World, StaticTokens) {
    let tokens = StaticTokens::new(vec![entry(scopes)], Arc::new(ManualClock::new(NOW)));
    let options = GatewayOptions { auth_check_every_ms: 5, ..GatewayOptions::default() };
    (World::with_auth(options, Arc::new(tokens.clone())).await, tokens)
}

async fn with_token(world: &World, method: &str, path: &str, body: &str) -> Answer {
    let bearer = format!("Bearer {TOKEN}");
    world.http().await.send(method, path, &[("authorization", &bearer)], body.to_owned()).await
}

async fn ticket(world: &World, path: &str) -> String {
    let made = with_token(world, "POST", "/tickets", &json!({"path": path}).to_string()).await.json(200);
    assert_eq!(made["expires"], NOW + 60_000, "{made}");
    made["ticket"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_client_learns_who_it_is() {
    let (world, _) = world("subscribe:a !subscribe:b").await;
    let shown = with_token(&world, "GET", "/whoami", "").await.json(200);
    let scopes = json!(["subscribe:a", "!subscribe:b"]);
    assert_eq!(
        shown,
        json!({"name": "reader", "kind": "listed", "scopes": scopes, "expires": NOW + 3_600_000})
    );
    world.get("/whoami").await.refused(401, "unauthorized");
    world.stop().await;
    let open = World::new().await;
    let shown = open.get("/whoami").await.json(200);
    assert_eq!((&shown["scopes"], &shown["expires"]), (&json!(["admin"]), &Value::Null));
    open.stop().await;
}

#[tokio::test]
async fn a_ticket_works_once_for_one_get_of_its_path() {
    let (world, _) = world("subscribe:a publish:a").await;
    with_token(&world, "POST", "/publish/a", "7").await.json(200);
    let one = ticket(&world, "/replay").await;
    let path = format!("/replay?topic=a&ticket={one}&limit=5");
    assert_eq!(world.get(&path).await.json(200)["count"], 1);
    world.get(&path).await.refused(401, "bad_token");
    // Another path, another query, another method, another minute.
    let other = ticket(&world, "/replay").await;
    world.get(&format!("/export?topic=a&ticket={other}")).await.refused(401, "bad_token");
    world.get(&format!("/replay?topic=a&ticket={other}")).await.refused(401, "bad_token");
    let exact = ticket(&world, "/replay?topic=a").await;
    world.get(&format!("/replay?topic=a&limit=1&ticket={exact}")).await.refused(401, "bad_token");
    let get_only = ticket(&world, "/topics").await;
    assert_eq!(world.send("HEAD", &format!("/topics?ticket={get_only}"), "").await.status, 401);
    world.send("POST", &format!("/publish/a?ticket={get_only}"), "1").await.refused(401, "unauthorized");
    world.get(&format!("/topics?ticket={get_only}")).await.json(200);
    let late = ticket(&world, "/topics").await;
    world.advance(60_000);
    world.get(&format!("/topics?ticket={late}")).await.refused(401, "bad_token");
    world.get("/topics?ticket=ticket_guess").await.refused(401, "bad_token");
    world.get("/topics?ticket=guess").await.refused(401, "unauthorized");
    world.stop().await;
}

#[tokio::test]
async fn a_ticket_is_made_only_for_what_its_client_may_read() {
    let (world, tokens) = world("subscribe:a").await;
    for (path, status, code) in [
        ("/stream/b", 403, "forbidden"),
        ("/replay?topic=b", 403, "forbidden"),
        ("/metrics", 403, "forbidden"),
        ("/health", 400, "bad_request"),
        ("/nothing", 400, "bad_request"),
        ("/publish/a", 400, "bad_request"),
        ("stream/a", 400, "bad_request"),
        ("/stream/a?topics=1", 400, "bad_request"),
        ("", 400, "bad_request"),
    ] {
        let body = json!({"path": path}).to_string();
        with_token(&world, "POST", "/tickets", &body).await.refused(status, code);
    }
    for body in ["", "{}", "[]", r#"{"path":1}"#, r#"{"path":"/topics","ttl":9}"#] {
        with_token(&world, "POST", "/tickets", body).await.refused(400, "bad_request");
    }
    world.send("POST", "/tickets", r#"{"path":"/topics"}"#).await.refused(401, "unauthorized");
    // The scopes count that the token has when the ticket is used.
    let narrowed = ticket(&world, "/replay").await;
    tokens.replace(vec![entry("subscribe:c")]);
    world.get(&format!("/replay?topic=a&ticket={narrowed}")).await.refused(403, "forbidden");
    tokens.replace(vec![entry("subscribe:a")]);
    let revoked = ticket(&world, "/replay").await;
    tokens.replace(vec![]);
    world.get(&format!("/replay?topic=a&ticket={revoked}")).await.refused(401, "bad_token");
    world.stop().await;
}

#[tokio::test]
async fn a_stream_begun_with_a_ticket_ends_with_its_token() {
    let (world, tokens) = world("subscribe:a publish:a").await;
    let text = ticket(&world, "/stream/a").await;
    let mut client = world.http().await;
    let path = format!("/stream/a?from=earliest&ticket={text}");
    let response = client.open("GET", &path, &[], "").await;
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    with_token(&world, "POST", "/publish/a", "\"seen\"").await.json(200);
    let mut seen = String::new();
    while !seen.contains("seen") {
        let frame = soon("an event", body.frame()).await.unwrap().unwrap();
        seen.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
    }
    tokens.replace(vec![]);
    while soon("the end of the stream", body.frame()).await.is_some() {}
    world.stop().await;
}

#[tokio::test]
async fn a_ticket_is_in_no_log() {
    let _second = tracing::Dispatch::new(Recorder::default());
    let recorder = Recorder::default();
    let log = Arc::clone(&recorder.0);
    let _guard = tracing::subscriber::set_default(recorder);
    let (world, _) = world("admin").await;
    for path in ["/topics", "/replay?topic=a", "/admin/tokens", "/stream/a"] {
        let text = ticket(&world, path).await;
        let mark = if path.contains('?') { '&' } else { '?' };
        let answered = async |url: &str| {
            let mut client = world.http().await;
            client.open("GET", url, &[], "").await.status()
        };
        assert_eq!(answered(&format!("{path}{mark}ticket={text}")).await, 200);
        assert_eq!(answered(&format!("{path}{mark}ticket={text}")).await, 401);
        assert_eq!(answered(&format!("/no?ticket={text}")).await, 404);
    }
    world.stop().await;
    let log = log.lock().unwrap();
    assert!(log.contains("message=answered"), "the log was not seen");
    assert!(!log.contains("ticket_"), "{log}");
}
