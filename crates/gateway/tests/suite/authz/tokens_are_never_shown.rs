//! A token must not appear in any answer or log line.

use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use super::super::corpus::http1::{Http1, request};
use super::calls::{ROUTES, filled};
use super::{listed, signed, world};
use crate::suite::auth::secrets_are_never_shown::Recorder;
use crate::suite::world::{World, soon};

/// The token that must not appear anywhere.
struct Canary {
    listed: String,
    signed: String,
}

impl Canary {
    fn is_in(&self, text: &str) -> bool {
        let parts = self.signed.split('.').skip(1).chain([self.listed.as_str(), "wrong-canary-4711"]);
        parts.into_iter().any(|part| text.contains(part))
    }
}

/// Requests with the token in the right place and in wrong places.
async fn over_http(world: &World, token: &str, seen: &mut String) {
    let bearer = format!("Bearer {token}");
    let places: [&[(&str, &str)]; 8] = [
        &[("authorization", &bearer)],
        &[("authorization", "Bearer wrong-canary-4711")],
        &[("authorization", token)],
        &[("authorization", &bearer), ("authorization", &bearer)],
        &[("authorization", &bearer), ("x-api-key", token)],
        &[("authorization", &bearer), ("x-auth-token", token), ("cookie", token)],
        &[("authorization", &bearer), ("proxy-authorization", token), ("x-session-id", token)],
        &[("x-token", token)],
    ];
    for (method, path, query, body, _) in ROUTES {
        for place in places {
            let mut headers = vec![("host".to_owned(), "localhost".to_owned())];
            headers.extend(place.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
            let body = (!body.is_empty()).then_some(body.as_bytes());
            let bytes = request(method, &filled(&format!("{path}{query}"), "orders"), &headers, body);
            let answer = Http1::connect(world.address()).await.send(&bytes, false).await.unwrap();
            *seen += &format!("{}{}", answer.head, String::from_utf8_lossy(&answer.body));
        }
        let headers = [("host".to_owned(), "localhost".to_owned())];
        let bytes = request(method, &format!("{}?token={token}", filled(path, "orders")), &headers, None);
        let answer = Http1::connect(world.address()).await.send(&bytes, false).await.unwrap();
        *seen += &format!("{}{}", answer.head, String::from_utf8_lossy(&answer.body));
    }
}

/// Frames with the token, whole and damaged in several ways.
async fn over_a_socket(world: &World, token: &str, seen: &mut String) {
    let frames = [
        json!({"op": "AUTH", "token": token, "corr": 1}).to_string(),
        json!({"op": "PUBLISH", "topic": "orders", "payload": 1, "corr": 1}).to_string(),
        json!({"op": "AUTH", "token": [token], "corr": 1}).to_string(),
        json!({"op": "AUTH", "token": {"token": token}, "corr": 1}).to_string(),
        json!({"op": "PUBLISH", "token": token, "corr": 1}).to_string(),
        format!("{{\"op\":\"AUTH\",\"token\":\"{token}"),
        format!("{{\"op\":\"AUTH\",\"token\":\"{token}\\x\"}}"),
        format!("{{\"op\":\"AUTH\",\"token\":\"{token}\",\"token\":1}}"),
        format!("AUTH {token}"),
        json!({"op": "AUTH", "token": "wrong-canary-4711"}).to_string(),
        json!({"op": "AUTH", "token": format!("{token}x")}).to_string(),
        json!({"op": "AUTH", "token": "a.wrong-canary-4711.b"}).to_string(),
    ];
    let mut client = world.ws().await;
    for frame in frames {
        client.socket.send(Message::text(frame)).await.unwrap();
    }
    while let Some(Ok(message)) = soon("a message", client.socket.next()).await {
        *seen += &format!("{message:?}");
    }
    assert!(seen.contains("too many tokens"), "the last ones close the connection");
}

#[tokio::test]
async fn a_token_is_in_no_answer_and_no_log() {
    // A second subscriber: with only one, `tracing` caches a log line as disabled if another test reaches it
    // first.
    let _second = tracing::Dispatch::new(Recorder::default());
    let recorder = Recorder::default();
    let log = Arc::clone(&recorder.0);
    let _guard = tracing::subscriber::set_default(recorder);
    let scopes = "admin publish:canary-7f3a9c1e5b2d8046";
    let canary = Canary { listed: listed(scopes), signed: signed(scopes) };
    let world = world(&[scopes.to_owned()]).await;
    let mut seen = String::new();
    for token in [&canary.listed, &canary.signed] {
        over_http(&world, token, &mut seen).await;
        over_a_socket(&world, token, &mut seen).await;
        over_http(&world, token, &mut seen).await;
    }
    world.stop().await;
    let log = log.lock().unwrap();
    for line in ["message=answered", "message=a WebSocket ended"] {
        assert!(log.contains(line), "the log was not seen: no `{line}`");
    }
    assert!(seen.contains("http_requests") || seen.contains("# help"), "metrics were not seen");
    for (what, text) in [("an answer", seen.as_str()), ("a log", log.as_str())] {
        let guilty = text.lines().find(|line| canary.is_in(line));
        assert!(guilty.is_none(), "in {what}: {guilty:?}");
    }
    assert!(canary.is_in(&format!("x {} y", canary.signed)), "it would not be found");
}
