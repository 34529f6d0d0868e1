//! Tokens that expire and are revoked while a client works.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use promethean_client::{ConnectionState, StartFrom, TokenSource};
use promethean_model::{Clock, SystemClock};
use promethean_testkit::until;
use ring::hmac;
use serde_json::json;

use super::super::running_server::RunningServer;
use super::{Reports, eventually, quick};

fn write(dir: &Path, tokens: &[&str]) {
    let mut text = "[auth]\ncheck_every = \"50ms\"\n".to_owned();
    for token in tokens {
        let hash = super::super::promethean(dir, &["token", "hash", token]);
        text += &format!(
            "[[auth.tokens]]\nname = \"{token}\"\nscopes = [\"admin\", \"publish:**\", \"subscribe:**\"]\nsha256 = \"{}\"\n",
            super::super::stdout(&hash).trim()
        );
    }
    std::fs::write(dir.join("c.toml"), text).unwrap();
}

#[tokio::test]
async fn a_token_from_a_function_is_replaced_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &["one"]);
    let server = RunningServer::in_memory(dir.path(), &["--config", "c.toml"]);
    let (token, asked) = (Arc::new(Mutex::new("one".to_owned())), Arc::new(AtomicUsize::new(0)));
    let (given, counted) = (Arc::clone(&token), Arc::clone(&asked));
    let source = TokenSource::provider(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        let token = given.lock().unwrap().clone();
        async move { Ok::<_, std::io::Error>(token) }
    });
    let client = quick(&server.url()).token(source).build().unwrap();
    let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let noted = Arc::clone(&seen);
    let subscription = client.subscribe::<u64>("t", "g").from(StartFrom::Earliest);
    let _consumer = subscription
        .handle(move |lease| {
            noted.lock().unwrap().push(lease.payload);
            async { Ok(()) }
        })
        .await
        .unwrap();
    let publisher = async {
        let mut n = 0_u64;
        while !stop.load(Ordering::SeqCst) {
            client.publish("t", &n).await.unwrap();
            n += 1;
        }
        n
    };
    let changes = async {
        for (old, new) in [("one", "two"), ("two", "three"), ("three", "four")] {
            let before = asked.load(Ordering::SeqCst);
            write(dir.path(), &[old, new]);
            *token.lock().unwrap() = new.to_owned();
            write(dir.path(), &[new]);
            eventually("the client asks for a token", || asked.load(Ordering::SeqCst) > before).await;
            client.connect().await.unwrap();
        }
        client.renew_token().await.unwrap();
        stop.store(true, Ordering::SeqCst);
    };
    let (published, ()) = tokio::join!(publisher, changes);
    let all = || {
        let mut seen = seen.lock().unwrap().clone();
        seen.sort_unstable();
        seen.dedup();
        seen.len() as u64 == published
    };
    eventually("every event is handled", all).await;
    assert_eq!(client.reader().end("t").await.unwrap(), published, "each was published once");
    assert!(asked.load(Ordering::SeqCst) < 60, "{asked:?}");
    client.close().await.unwrap();
}

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A server that accepts tokens signed with the secret.
fn signed_server() -> (tempfile::TempDir, RunningServer) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("c.toml"), format!("[auth.jwt]\nsecret = \"{SECRET}\"\n")).unwrap();
    let server = RunningServer::in_memory(dir.path(), &["--config", "c.toml"]);
    (dir, server)
}

/// A signed token that ends after some seconds.
fn signed(seconds: i64) -> String {
    let exp = SystemClock::new().wall_ms() / 1_000 + seconds;
    let part = |claims: serde_json::Value| BASE64URL_NOPAD.encode(claims.to_string().as_bytes());
    let scopes = ["publish:**", "subscribe:**"];
    let head = format!(
        "{}.{}",
        part(json!({"alg": "HS256", "typ": "JWT"})),
        part(json!({"sub": "test", "exp": exp, "scopes": scopes}))
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let tag = BASE64URL_NOPAD.encode(hmac::sign(&key, head.as_bytes()).as_ref());
    format!("{head}.{tag}")
}

/// A source that counts how often it is asked.
fn counted(
    token: impl Fn(usize) -> Result<String, &'static str> + Send + Sync + 'static,
) -> (TokenSource, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let source = TokenSource::provider(move || {
        let token = token(counter.fetch_add(1, Ordering::SeqCst));
        async move { token }
    });
    (source, asked)
}

#[tokio::test]
async fn a_signed_token_is_renewed_on_the_live_connection() {
    let (_dir, server) = signed_server();
    let (source, asked) = counted(|_| Ok(signed(3)));
    let client = quick(&server.url()).token(source).build().unwrap();
    client.connect().await.unwrap();
    let mut states = client.watch_state();
    states.mark_unchanged();
    eventually("the token was renewed thrice", || asked.load(Ordering::SeqCst) >= 4).await;
    client.publish("t", &1).await.unwrap();
    assert!(!states.has_changed().unwrap(), "the connection was never lost");
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_signed_token_that_ends_is_replaced_with_the_connection() {
    let (_dir, server) = signed_server();
    // The renewals fail, so the first token ends while it is used.
    let (source, asked) = counted(|n| match n {
        0 => Ok(signed(2)),
        1 => Err("the issuer is away"),
        _ => Ok(signed(60)),
    });
    let reports = Reports::default();
    let client = reports.attach(quick(&server.url())).token(source).build().unwrap();
    let mut leases = client.subscribe::<u64>("t", "g").leases().await.unwrap();
    eventually("a good token is there", || asked.load(Ordering::SeqCst) >= 3).await;
    client.publish("t", &7).await.unwrap();
    assert_eq!(leases.next().await.unwrap().unwrap().payload, 7);
    assert_eq!(reports.codes()[0], "auth_unavailable");
    assert!(asked.load(Ordering::SeqCst) < 10, "renewals that fail wait: {asked:?}");
    drop(leases);
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_fixed_signed_token_that_ends_ends_the_client() {
    let (_dir, server) = signed_server();
    let client = quick(&server.url()).token(signed(1)).build().unwrap();
    let mut leases = client.subscribe::<u64>("t", "g").leases().await.unwrap();
    assert_eq!(leases.next().await.unwrap().unwrap_err().code(), "bad_token");
    assert_eq!(client.publish("t", &1).await.unwrap_err().code(), "bad_token");
}

#[tokio::test]
async fn a_token_that_the_server_does_not_know_yet_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &["one"]);
    let server = RunningServer::in_memory(dir.path(), &["--config", "c.toml"]);
    let (source, asked) = counted(|_| Ok("two".to_owned()));
    let client = quick(&server.url()).token(source).build().unwrap();
    assert_eq!(client.connect().await.unwrap_err().code(), "bad_token");
    eventually("it is refused often", || asked.load(Ordering::SeqCst) >= 8).await;
    assert_eq!(client.state(), ConnectionState::Connecting);
    write(dir.path(), &["one", "two"]);
    client.publish("t", &1).await.unwrap();
    client.close().await.unwrap();
}

#[tokio::test]
async fn requests_share_a_token_until_the_server_refuses_it() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &["token 0"]);
    let server = RunningServer::in_memory(dir.path(), &["--config", "c.toml"]);
    let (source, asked) = counted(|n| Ok(format!("token {n}")));
    let client = quick(&server.url()).token(source).build().unwrap();
    for _ in 0..5 {
        assert_eq!(client.reader().end("t").await.unwrap(), 0);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    write(dir.path(), &["token 1"]);
    until("the server has taken the first token back", async || server.status("/topics", "token 0") == "401")
        .await;
    assert_eq!(client.reader().end("t").await.unwrap(), 0);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_fixed_token_that_is_revoked_ends_the_client() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &["one"]);
    let server = RunningServer::in_memory(dir.path(), &["--config", "c.toml"]);
    let client = quick(&server.url()).token("one").build().unwrap();
    let mut leases = client.subscribe::<u64>("t", "g").leases().await.unwrap();
    write(dir.path(), &["two"]);
    let error = leases.next().await.unwrap().unwrap_err();
    assert_eq!(error.code(), "bad_token");
    assert!(leases.next().await.is_none());
    assert_eq!(client.state(), ConnectionState::Closed);
    assert_eq!(client.publish("t", &1).await.unwrap_err().code(), "bad_token");
}

#[tokio::test]
async fn a_function_that_fails_is_asked_again() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &["one"]);
    let server = RunningServer::in_memory(dir.path(), &["--config", "c.toml"]);
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let source = TokenSource::provider(move || {
        let n = counted.fetch_add(1, Ordering::SeqCst);
        async move { if n < 2 { Err("no network") } else { Ok("one".to_owned()) } }
    });
    let client = quick(&server.url()).token(source).build().unwrap();
    client.connect_within(Duration::from_secs(20)).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    client.close().await.unwrap();
}
