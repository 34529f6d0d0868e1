//! Invalid tokens are refused over both transports.

use serde_json::{Value, json};

use super::super::corpus::http1::{Http1, request};
use super::{listed, signed, signed_until, world};
use crate::suite::auth::{SECRET, hs256, token};
use crate::suite::world::NOW;

/// A token with any header and claims, signed with the server's secret.
fn signed_as(header: Value, claims: Value) -> String {
    token(&header, &claims, hs256(SECRET.as_bytes()))
}

fn bad_tokens() -> Vec<(&'static str, String)> {
    let exp = NOW / 1000 + 60;
    let good = signed("admin");
    let (body, signature) = good.rsplit_once('.').unwrap();
    let hs = || json!({"alg": "HS256"});
    let claims = || json!({"exp": exp, "scope": "admin"});
    vec![
        ("unknown", listed("admin subscribe:other")),
        ("expired, listed", listed("expired")),
        ("expired, signed", signed_until("admin", 0)),
        ("long expired", signed_until("admin", -1_000_000)),
        ("its beginning", good[..good.len() / 2].to_owned()),
        ("without signature", format!("{body}.")),
        ("without the last part", body.to_owned()),
        ("another signature", format!("{body}.{}", signature.chars().rev().collect::<String>())),
        ("a fourth part", format!("{good}.{signature}")),
        ("another secret", token(&hs(), &claims(), hs256(b"another secret of the same length, not ours.."))),
        ("no algorithm", token(&json!({"alg": "none"}), &claims(), |_| vec![])),
        ("no algorithm, signed", signed_as(json!({"alg": "none"}), claims())),
        ("no header", signed_as(json!({}), claims())),
        ("another algorithm", signed_as(json!({"alg": "HS512"}), claims())),
        ("asymmetric", signed_as(json!({"alg": "RS256"}), claims())),
        ("critical", signed_as(json!({"alg": "HS256", "crit": ["x"]}), claims())),
        ("another type", signed_as(json!({"alg": "HS256", "typ": "JWE"}), claims())),
        (
            "a key of its own",
            token(&json!({"alg": "HS256", "jwk": {"kty": "oct", "k": "YQ"}}), &claims(), hs256(b"a")),
        ),
        ("without exp", signed_as(hs(), json!({"scope": "admin"}))),
        ("exp as text", signed_as(hs(), json!({"exp": exp.to_string(), "scope": "admin"}))),
        ("not yet", signed_as(hs(), json!({"exp": exp, "nbf": exp - 1, "scope": "admin"}))),
        ("scope as a number", signed_as(hs(), json!({"exp": exp, "scope": 1}))),
        ("a denial that is not understood", signed_as(hs(), json!({"exp": exp, "scope": "admin !fly:t"}))),
        ("a list for claims", signed_as(hs(), json!([1]))),
        ("dots", "..".to_owned()),
        ("long", "x".repeat(5_000)),
    ]
}

#[tokio::test]
async fn they_are_refused_with_one_code() {
    let world = world(&["admin".to_owned()]).await;
    for (name, token) in bad_tokens() {
        let headers = [
            ("host".to_owned(), "localhost".to_owned()),
            ("authorization".to_owned(), format!("Bearer {token}")),
        ];
        let bytes = request("GET", "/topics", &headers, None);
        let answer = Http1::connect(world.address()).await.send(&bytes, false).await.unwrap();
        assert_eq!((answer.status, &answer.json()["error"]), (401, &json!("bad_token")), "{name}");
        let mut client = world.ws().await;
        client.refused(json!({"op": "AUTH", "token": token}), "bad_token").await;
        client.refused(json!({"op": "PUBLISH", "topic": "t", "payload": 1}), "unauthorized").await;
        // The connection still works.
        client.ok(json!({"op": "AUTH", "token": signed("admin")})).await;
    }
    let mut client = world.ws().await;
    client.refused(json!({"op": "AUTH"}), "unauthorized").await;
    assert!(world.bus.topics().await.unwrap().is_empty());
    world.stop().await;
}
