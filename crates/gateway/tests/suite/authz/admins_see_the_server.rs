//! Admins see connections, tokens and settings, in pages and without secrets.

use std::collections::BTreeMap;
use std::sync::Arc;

use promethean_gateway::GatewayOptions;
use promethean_gateway::auth::{Grants, Quota, StaticToken, StaticTokens, TokenHash};
use promethean_testkit::{ManualClock, until};
use serde_json::{Value, json};

use super::super::http::client::Client as HttpClient;
use super::super::ws::client::Client;
use crate::suite::world::{NOW, World};

const ADMIN: &str = "prom_admin_secret";

fn entry(name: &str, scopes: &str, quota: Quota) -> StaticToken {
    StaticToken {
        name: name.into(),
        hash: TokenHash::of(&format!("prom_{name}_secret")),
        grants: Arc::new(Grants::parse(scopes.split_whitespace()).unwrap()),
        expires_ms: None,
        quota,
    }
}

async fn world() -> World {
    let limited = Quota { max_connections: 7.try_into().ok(), ..Quota::default() };
    let tokens = [
        entry("admin", "admin", Quota::default()),
        entry("reader", "subscribe:a !subscribe:b", limited),
        entry("writer", "publish:a", Quota::default()),
    ];
    let tokens = StaticTokens::new(tokens.to_vec(), Arc::new(ManualClock::new(NOW)));
    let settings = (0..5).map(|n| (format!("limits.n{n}"), json!(n)));
    let shown_settings: BTreeMap<String, Value> = settings.collect();
    let options = GatewayOptions { shown_settings, ..GatewayOptions::default() };
    World::with_auth(options, Arc::new(tokens)).await
}

/// All pages of a list.
async fn pages(client: &mut HttpClient, path: &str, name: &str, limit: usize) -> Vec<Value> {
    let bearer = format!("Bearer {ADMIN}");
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let url = format!("{path}?limit={limit}{after}");
        let page = client.send("GET", &url, &[("authorization", &bearer)], "").await;
        assert!(!page.text().contains("_secret"), "{}", page.text());
        let page = page.json(200);
        let items = page[name].as_array().unwrap();
        assert!(items.len() <= limit);
        found.extend(items.iter().cloned());
        match &page["next"] {
            Value::Null => return found,
            Value::String(next) => after = format!("&after={next}"),
            next => after = format!("&after={next}"),
        }
    }
}

#[tokio::test]
async fn connections_are_listed_with_their_clients() {
    let world = world().await;
    let mut admin = world.http().await;
    let mut reader = Client::connect(world.address(), Some("prom_reader_secret")).await.unwrap();
    let unknown = world.ws().await;
    reader.subscribe("a", "g", json!({})).await;
    let mut seen = Vec::new();
    for limit in [1, 2, 100] {
        seen = pages(&mut admin, "/admin/connections", "connections", limit).await;
        assert_eq!(seen.len(), 3, "{seen:?}");
    }
    let about =
        |n: usize| json!({"name": seen[n]["name"], "protocol": seen[n]["protocol"], "kind": seen[n]["kind"]});
    assert_eq!(about(0), json!({"name": "admin", "protocol": "http", "kind": "listed"}));
    assert_eq!(about(1), json!({"name": "reader", "protocol": "websocket", "kind": "listed"}));
    assert_eq!(about(2), json!({"name": null, "protocol": "websocket", "kind": null}));
    assert_eq!((&seen[0]["peer"], &seen[0]["since"]), (&json!("127.0.0.1"), &json!(NOW)));
    assert_eq!((&seen[0]["subscriptions"], &seen[1]["subscriptions"]), (&json!(0), &json!(1)));
    drop((reader, unknown));
    until("closed connections are gone", async || {
        let mut other = world.http().await;
        pages(&mut other, "/admin/connections", "connections", 100).await.len() == 2
    })
    .await;
    world.stop().await;
}

#[tokio::test]
async fn tokens_are_listed_without_anything_to_use() {
    let world = world().await;
    let mut admin = world.http().await;
    for limit in [1, 2, 3, 100] {
        let seen = pages(&mut admin, "/admin/tokens", "tokens", limit).await;
        let names: Vec<_> = seen.iter().map(|token| token["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["admin", "reader", "writer"]);
        assert_eq!(
            seen[1],
            json!({"name": "reader", "scopes": ["subscribe:a", "!subscribe:b"], "expires": null,
                "limits": {"max_connections": 7}})
        );
        let hash = TokenHash::of(ADMIN).to_string();
        assert!(!json!(seen).to_string().contains(&hash));
    }
    world.stop().await;
}

#[tokio::test]
async fn settings_are_listed_by_key() {
    let world = world().await;
    let mut admin = world.http().await;
    for limit in [1, 2, 5, 100] {
        let seen = pages(&mut admin, "/admin/config", "settings", limit).await;
        let expected: Vec<Value> =
            (0..5).map(|n| json!({"key": format!("limits.n{n}"), "value": n})).collect();
        assert_eq!(seen, expected);
    }
    world.stop().await;
}
