//! AUTH, and tokens in the upgrade request.

use std::sync::Arc;

use async_trait::async_trait;
use promethean_gateway::GatewayOptions;
use promethean_gateway::auth::{AuthError, Authenticator, Grants, Identity};
use promethean_model::Clock;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio_tungstenite::tungstenite::Error;

use super::client::Client;
use crate::suite::world::{NOW, World, soon};

/// Accepts `good`, which allows everything; it expires if `short`. A test can make it wait.
#[derive(Debug)]
struct Doorman {
    turns: Semaphore,
}

#[async_trait]
impl Authenticator for Doorman {
    async fn authenticate(&self, token: Option<&str>) -> Result<Identity, AuthError> {
        self.turns.acquire().await.unwrap().forget();
        let expires_ms = match token {
            Some("good") => None,
            Some("short") => Some(NOW + 60_000),
            Some(_) => return Err(AuthError::BadToken("it is unknown")),
            None => return Err(AuthError::Missing),
        };
        Ok(Identity { expires_ms, ..Identity::new("someone", Grants::everything()) })
    }
}

async fn guarded(turns: usize) -> (World, Arc<Doorman>) {
    let doorman = Arc::new(Doorman { turns: Semaphore::new(turns) });
    (World::with_auth(GatewayOptions::default(), doorman.clone()).await, doorman)
}

#[tokio::test]
async fn nothing_is_done_for_a_stranger() {
    let (world, _) = guarded(100).await;
    let mut client = world.ws().await;
    let publish = json!({"op": "PUBLISH", "topic": "t", "payload": 1});
    client.refused(publish.clone(), "unauthorized").await;
    client.refused(json!({"op": "SUBSCRIBE", "topic": "t", "group": "g"}), "unauthorized").await;
    client.refused(json!({"op": "AUTH", "token": "wrong"}), "bad_token").await;
    client.refused(publish.clone(), "unauthorized").await;
    client.ok(json!({"op": "AUTH", "token": "good"})).await;
    client.ok(publish).await;
    world.stop().await;
}

#[tokio::test]
async fn a_stranger_has_three_tries_and_little_time_and_room() {
    let (world, _) = guarded(100).await;
    let mut guesser = world.ws().await;
    for _ in 0..3 {
        guesser.send(json!({"op": "AUTH", "token": "guess"})).await;
    }
    assert_eq!(guesser.close_code().await, 4401);
    let mut talker = world.ws().await;
    talker.send(json!({"op": "PUBLISH", "topic": "t", "payload": "x".repeat(9_000)})).await;
    assert_eq!(talker.close_code().await, 1009);
    let mut silent = world.ws().await;
    let closed = async {
        let code = silent.close_code();
        tokio::pin!(code);
        let mut often = tokio::time::interval(std::time::Duration::from_millis(5));
        loop {
            world.advance(1_000);
            tokio::select! {
                code = &mut code => return code,
                _ = often.tick() => {}
            }
        }
    };
    assert_eq!(soon("the silent one is closed", closed).await, 4401);
    world.stop().await;
}

#[tokio::test]
async fn frames_wait_for_a_running_auth() {
    let (world, doorman) = guarded(0).await;
    let mut client = world.ws().await;
    client.send(json!({"op": "AUTH", "token": "good", "corr": 1})).await;
    client.send(json!({"op": "PUBLISH", "topic": "t", "payload": 1, "corr": 2})).await;
    doorman.turns.add_permits(1);
    assert_eq!(client.next().await, json!({"op": "OK", "corr": 1}));
    assert_eq!(client.next().await["op"], "OK");
    world.stop().await;
}

#[tokio::test]
async fn the_upgrade_may_carry_the_token() {
    let (world, _) = guarded(100).await;
    let mut client = Client::connect(world.address(), Some("good")).await.unwrap();
    client.publish("t", json!(1)).await;
    match Client::connect(world.address(), Some("wrong")).await {
        Err(Error::Http(response)) => assert_eq!(response.status(), 401),
        other => panic!("{:?}", other.map(|_| ())),
    }
    world.stop().await;
}

#[tokio::test]
async fn a_connection_ends_with_its_token_whatever_the_wall_clock_does() {
    let doorman = Arc::new(Doorman { turns: Semaphore::new(100) });
    let options = GatewayOptions { auth_check_every_ms: 10, ..GatewayOptions::default() };
    let world = World::with_auth(options, doorman).await;
    let connect = async || Client::connect(world.address(), Some("short")).await.unwrap();
    // Set back by an hour: the token lives no longer than it would have, even if it is shown again.
    let (mut busy, mut shows_again) = (connect().await, connect().await);
    world.clock.advance_wall(-3_600_000);
    shows_again.ok(json!({"op": "AUTH", "token": "short"})).await;
    world.clock.set_monotonic(world.clock.monotonic_ms() + 59_000);
    busy.publish("t", json!(1)).await;
    shows_again.publish("t", json!(2)).await;
    world.clock.set_monotonic(world.clock.monotonic_ms() + 1_000);
    for client in [&mut busy, &mut shows_again] {
        client.send(json!({"op": "PUBLISH", "topic": "t", "payload": 3})).await;
        assert_eq!(client.close_code().await, 4401);
    }
    // Set forward beyond the end: the token has expired at once, also for a client that is idle.
    world.clock.set_wall(NOW);
    let (mut busy, mut idle) = (connect().await, connect().await);
    busy.publish("t", json!(4)).await;
    world.clock.set_wall(NOW + 60_000);
    busy.send(json!({"op": "PUBLISH", "topic": "t", "payload": 5})).await;
    assert_eq!(busy.close_code().await, 4401);
    let checks_again = async {
        let code = idle.close_code();
        tokio::pin!(code);
        let mut often = tokio::time::interval(std::time::Duration::from_millis(5));
        loop {
            world.clock.set_monotonic(world.clock.monotonic_ms() + 5);
            tokio::select! {
                code = &mut code => return code,
                _ = often.tick() => {}
            }
        }
    };
    assert_eq!(soon("the idle one is closed", checks_again).await, 4401);
    assert_eq!(world.bus.end_of(&"t".parse().unwrap()).get(), 3, "no event of a token that had expired");
    world.stop().await;
}

#[tokio::test]
async fn a_connection_ends_with_its_token_unless_it_shows_another() {
    let (world, _) = guarded(100).await;
    let mut ends = Client::connect(world.address(), Some("short")).await.unwrap();
    let mut renews = Client::connect(world.address(), Some("short")).await.unwrap();
    renews.ok(json!({"op": "AUTH", "token": "good"})).await;
    // A token that is not valid changes nothing.
    renews.refused(json!({"op": "AUTH", "token": "wrong"}), "bad_token").await;
    ends.publish("t", json!(1)).await;
    world.advance(60_000);
    ends.send(json!({"op": "PUBLISH", "topic": "t", "payload": 2})).await;
    assert_eq!(ends.close_code().await, 4401);
    renews.publish("t", json!(3)).await;
    world.stop().await;
}
