//! Clients that take as much as they can get.

mod strangers_make_room;
mod unfinished_bodies_are_bounded;

use std::sync::Arc;
use std::time::Duration;

use promethean_gateway::GatewayOptions;
use promethean_gateway::auth::{Grants, Quota, StaticToken, StaticTokens, TokenHash};
use promethean_testkit::ManualClock;

use super::http::client::Client as HttpClient;
use super::world::{NOW, World, soon};

/// A server that knows these tokens; each may do everything.
async fn world(tokens: &[&str], options: GatewayOptions) -> World {
    let entry = |token: &&str| StaticToken {
        name: (*token).into(),
        hash: TokenHash::of(token),
        grants: Arc::new(Grants::everything()),
        expires_ms: None,
        quota: Quota::default(),
    };
    let tokens = tokens.iter().map(entry).collect();
    World::with_auth(options, Arc::new(StaticTokens::new(tokens, Arc::new(ManualClock::new(NOW))))).await
}

/// Asks for `/health` on a connection of its own.
async fn is_healthy(world: &World) {
    let answer = soon("an answer of /health", async {
        HttpClient::http1(world.address()).await.send("GET", "/health", &[], "").await
    });
    assert_eq!(answer.await.status, 200);
}

/// The value of a metric without labels.
fn metric(world: &World, name: &str) -> i64 {
    let page = world.bus.metrics().registry().render();
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}: {page}")).parse().unwrap()
}

/// Waits until a metric has this value.
async fn until_metric(world: &World, name: &str, value: i64) {
    let reached = async {
        let mut often = tokio::time::interval(Duration::from_millis(2));
        while metric(world, name) != value {
            often.tick().await;
        }
    };
    soon(name, reached).await;
}
