//! Tokens that are revoked or get other scopes while clients are connected.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use http_body_util::BodyExt;
use hyper::Request;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use promethean_gateway::GatewayOptions;
use promethean_gateway::auth::jwt::KeySource;
use promethean_gateway::auth::{
    AuthError, Authenticator, Either, Grants, Identity, Jwt, JwtOptions, Quota, StaticToken, StaticTokens,
    TokenHash,
};
use promethean_testkit::ManualClock;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::super::ws::client::Client;
use super::signed;
use crate::suite::auth::SECRET;
use crate::suite::world::{NOW, World, soon};

const A: &str = "prom_a";
const B: &str = "prom_b";
/// Bytes that the server may send before the client reads.
const WINDOW: u32 = 65_535;

fn entry(token: &str, scopes: &str) -> StaticToken {
    let grants = Arc::new(Grants::parse(scopes.split_whitespace()).unwrap());
    StaticToken {
        name: token.into(),
        hash: TokenHash::of(token),
        grants,
        expires_ms: None,
        quota: Quota::default(),
    }
}

/// Checks tokens often, so that tests need not wait.
fn options() -> GatewayOptions {
    GatewayOptions { auth_check_every_ms: 5, ..GatewayOptions::default() }
}

async fn world(tokens: Vec<StaticToken>) -> (World, StaticTokens) {
    let tokens = StaticTokens::new(tokens, Arc::new(ManualClock::new(NOW)));
    (World::with_auth(options(), Arc::new(tokens.clone())).await, tokens)
}

/// The code that the connection of an idle client is closed with.
async fn closed_idle(world: &World, client: &mut Client) -> u16 {
    let closed = async {
        let code = client.close_code();
        tokio::pin!(code);
        let mut often = tokio::time::interval(std::time::Duration::from_millis(5));
        loop {
            world.advance(5);
            tokio::select! {
                code = &mut code => return code,
                _ = often.tick() => {}
            }
        }
    };
    soon("a connection is closed", closed).await
}

#[tokio::test]
async fn a_token_that_is_taken_out_closes_its_connections_and_no_others() {
    let (world, tokens) = world(vec![entry(A, "admin"), entry(B, "admin")]).await;
    let mut busy = Client::connect(world.address(), Some(A)).await.unwrap();
    let mut idle = world.ws().await;
    idle.ok(json!({"op": "AUTH", "token": A})).await;
    idle.subscribe("t", "g", json!({})).await;
    let mut other = Client::connect(world.address(), Some(B)).await.unwrap();
    busy.publish("u", json!(1)).await;
    // The same list again changes nothing.
    assert!(!tokens.replace(vec![entry(A, "admin"), entry(B, "admin")]));
    busy.publish("u", json!(2)).await;
    assert!(tokens.replace(vec![entry(B, "admin")]));
    // A frame after that is not handled.
    busy.send(json!({"op": "PUBLISH", "topic": "u", "payload": 3})).await;
    assert_eq!(busy.close_code().await, 4401);
    assert_eq!(closed_idle(&world, &mut idle).await, 4401);
    assert!(Client::connect(world.address(), Some(A)).await.is_err());
    assert_eq!(other.publish("u", json!(4)).await["offset"], 2);
    world.stop().await;
}

#[tokio::test]
async fn a_token_with_fewer_scopes_keeps_what_they_allow() {
    let (world, tokens) = world(vec![entry(A, "admin"), entry(B, "admin")]).await;
    let mut client = Client::connect(world.address(), Some(A)).await.unwrap();
    let mut other = Client::connect(world.address(), Some(B)).await.unwrap();
    client.subscribe("a", "g", json!({})).await;
    client.subscribe("b", "g", json!({})).await;
    client.publish("c", json!(1)).await;
    tokens.replace(vec![entry(A, "subscribe:b"), entry(B, "admin")]);
    // The event wakes the connection, and is not delivered.
    other.publish("a", json!("secret")).await;
    let ended = client.next().await;
    assert_eq!((&ended["op"], &ended["code"]), (&json!("ERR"), &json!("forbidden")), "{ended}");
    assert!(ended["msg"].as_str().unwrap().contains("subscribe:a"), "{ended}");
    client.refused(json!({"op": "PUBLISH", "topic": "c", "payload": 1}), "forbidden").await;
    other.publish("b", json!("open")).await;
    assert_eq!(client.event().await["event"]["payload"], "open");
    // With more scopes the client may do more again.
    tokens.replace(vec![entry(A, "subscribe:b publish:c"), entry(B, "admin")]);
    client.publish("c", json!(2)).await;
    world.stop().await;
}

#[tokio::test]
async fn a_fetch_under_way_gives_nothing_that_is_no_longer_allowed() {
    let (world, tokens) = world(vec![entry(A, "admin"), entry(B, "admin")]).await;
    let mut client = Client::connect(world.address(), Some(A)).await.unwrap();
    let mut other = Client::connect(world.address(), Some(B)).await.unwrap();
    client.subscribe("a", "g", json!({"pull": true})).await;
    client.send(json!({"op": "FETCH", "topic": "a", "group": "g", "wait_ms": 60_000, "corr": "f"})).await;
    // The reply shows that the FETCH was read.
    client.publish("c", json!(1)).await;
    tokens.replace(vec![entry(A, "publish:c"), entry(B, "admin")]);
    other.publish("a", json!("secret")).await;
    let reply = client.next().await;
    assert_eq!((&reply["code"], &reply["corr"]), (&json!("forbidden"), &json!("f")), "{reply}");
    world.stop().await;
}

#[tokio::test]
async fn keys_that_are_taken_out_close_the_connections_of_what_they_signed() {
    let clock = Arc::new(ManualClock::new(NOW));
    let keys = KeySource::Secret(SECRET.into());
    let jwt = JwtOptions { keys: keys.clone(), issuer: None, audience: vec![], leeway_ms: 0 };
    let signed_ones = Jwt::new(jwt, clock.clone()).unwrap();
    let listed = StaticTokens::new(vec![entry(B, "admin")], clock);
    let either = Either { listed, signed: signed_ones.clone() };
    let world = World::with_auth(options(), Arc::new(either)).await;
    let mut client = Client::connect(world.address(), Some(&signed("admin"))).await.unwrap();
    let mut other = Client::connect(world.address(), Some(B)).await.unwrap();
    signed_ones.replace_keys(&keys).unwrap();
    client.publish("t", json!(1)).await;
    signed_ones.replace_keys(&KeySource::Secret("another secret, of at least 32 bytes".into())).unwrap();
    assert_eq!(closed_idle(&world, &mut client).await, 4401);
    other.publish("t", json!(2)).await;
    world.stop().await;
}

#[tokio::test]
async fn an_export_ends_with_the_token_that_asked_for_it() {
    let (world, tokens) = world(vec![entry(A, "admin"), entry(B, "admin")]).await;
    let mut client = Client::connect(world.address(), Some(B)).await.unwrap();
    // Far more than fits into all buffers between server and client.
    let payload = "x".repeat(1_000_000);
    for _ in 0..24 {
        client.publish("t", json!(payload)).await;
    }
    for (token, revoked) in [(B, false), (A, true)] {
        let mut stream = TcpStream::connect(world.address()).await.unwrap();
        let ask = format!(
            "GET /export?topic=t HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(ask.as_bytes()).await.unwrap();
        let mut begun = [0; 12];
        stream.read_exact(&mut begun).await.unwrap();
        assert_eq!(&begun, b"HTTP/1.1 200");
        if revoked {
            tokens.replace(vec![entry(B, "admin")]);
        }
        let mut rest = Vec::new();
        let read = soon("the answer ends", stream.read_to_end(&mut rest)).await;
        let is_whole = read.is_ok() && rest.ends_with(b"\r\n0\r\n\r\n");
        assert_eq!((is_whole, rest.len() < 24_000_000), (!revoked, revoked), "{} bytes", rest.len());
    }
    world.stop().await;
}

/// The bytes that a client still gets of an export after its token is revoked. It has read nothing before, and
/// the window of HTTP/2 bounds what is on the network.
async fn exported_after_revocation(payload_bytes: usize) -> usize {
    let (world, tokens) = world(vec![entry(A, "admin"), entry(B, "admin")]).await;
    let mut client = Client::connect(world.address(), Some(B)).await.unwrap();
    let payload = "x".repeat(payload_bytes);
    for _ in 0..8_000_000 / payload_bytes {
        client.publish("t", json!(payload)).await;
    }
    let stream = TcpStream::connect(world.address()).await.unwrap();
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    let _driver = JoinSet::from_iter([async move { connection.await.unwrap_or_default() }]);
    let request =
        Request::get("http://localhost/export?topic=t").header("authorization", format!("Bearer {A}"));
    let answer = sender.send_request(request.body(String::new()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200);
    // The server reads ahead as far as it may.
    for _ in 0..20_000 {
        tokio::task::yield_now().await;
    }
    tokens.replace(vec![entry(B, "admin")]);
    let (mut body, mut bytes) = (answer.into_body(), 0);
    let rest = async {
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.into_data().map_or(0, |data| data.len());
        }
    };
    soon("the export ends", rest).await;
    world.stop().await;
    bytes
}

#[tokio::test]
async fn a_revoked_export_stops_within_two_mebibytes() {
    for payload_bytes in [1_000, 100_000, 1_000_000] {
        let bytes = exported_after_revocation(payload_bytes).await;
        assert!(bytes <= (2 << 20) + WINDOW as usize, "{bytes} bytes with payloads of {payload_bytes}");
    }
}

/// An authenticator whose answers a test controls. It accepts every token at first.
#[derive(Debug)]
struct Doorman {
    /// Gets a permit for every call.
    asked: Semaphore,
    turns: Semaphore,
    revision: AtomicU64,
    /// 0: valid, 1: invalid, 2: unavailable.
    answer: AtomicU64,
}

impl Doorman {
    fn new(turns: usize) -> Arc<Self> {
        let (revision, answer) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { asked: Semaphore::new(0), turns: Semaphore::new(turns), revision, answer })
    }

    fn now(&self, answer: u64) {
        self.answer.store(answer, Ordering::SeqCst);
        self.revision.fetch_add(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Authenticator for Doorman {
    async fn authenticate(&self, token: Option<&str>) -> Result<Identity, AuthError> {
        // Read before the wait, like a list that is replaced during the lookup.
        let answer = self.answer.load(Ordering::SeqCst);
        self.asked.add_permits(1);
        self.turns.acquire().await.unwrap().forget();
        match answer {
            0 => Ok(Identity::new(token.ok_or(AuthError::Missing)?, Grants::everything())),
            1 => Err(AuthError::BadToken("gone")),
            _ => Err(AuthError::Unavailable),
        }
    }

    fn revision(&self) -> u64 {
        self.revision.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn what_changes_while_a_token_is_looked_at_is_not_overlooked() {
    let doorman = Doorman::new(0);
    let world = World::with_auth(options(), doorman.clone()).await;
    let mut client = world.ws().await;
    client.send(json!({"op": "AUTH", "token": "t", "corr": 1})).await;
    doorman.asked.acquire().await.unwrap().forget();
    doorman.now(1);
    doorman.turns.add_permits(2);
    assert_eq!(client.next().await, json!({"op": "OK", "corr": 1}));
    assert_eq!(client.close_code().await, 4401);
    world.stop().await;
}

#[tokio::test]
async fn who_cannot_be_asked_for_stays_and_is_asked_for_again() {
    let doorman = Doorman::new(1_000);
    let world = World::with_auth(options(), doorman.clone()).await;
    let mut client = Client::connect(world.address(), Some("t")).await.unwrap();
    doorman.now(2);
    client.publish("t", json!(1)).await;
    client.publish("t", json!(2)).await;
    // The revision stays: the connection still has to check the last one.
    doorman.answer.store(1, Ordering::SeqCst);
    assert_eq!(closed_idle(&world, &mut client).await, 4401);
    world.stop().await;
}
