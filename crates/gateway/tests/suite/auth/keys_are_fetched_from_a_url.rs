//! Keys from a URL.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use promethean_gateway::auth::jwt::{JwksUrl, KeySource};
use promethean_gateway::auth::{AuthError, Authenticator, Jwt, JwtOptions};
use promethean_model::{Clock, SystemClock};
use promethean_testkit::ManualClock;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{claims, clock, es256, hs256, jwks, token};

/// How the server answers a request.
#[derive(Debug, Clone)]
enum Answer {
    /// Sends these bytes and closes the connection.
    Bytes(Vec<u8>),
    /// Sends nothing and keeps the connection open.
    Silence,
}

fn ok(body: &Value) -> Answer {
    let body = body.to_string();
    Answer::Bytes(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes())
}

fn raw(text: &str) -> Answer {
    Answer::Bytes(text.as_bytes().to_vec())
}

/// A server of a JWK set that counts its requests. Stops when dropped.
#[derive(Debug)]
struct Server {
    address: SocketAddr,
    answer: Arc<Mutex<Answer>>,
    asked: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Server {
    async fn start(answer: Answer, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (answer, asked) = (Arc::new(Mutex::new(answer)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        let shared = (Arc::clone(&answer), Arc::clone(&asked));
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let ((answer, asked), tls) = (shared.clone(), tls.clone());
                connections.spawn(async move {
                    let Some(tls) = tls else { return serve(stream, &answer, &asked).await };
                    // A client that does not trust the certificate goes away.
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(stream, &answer, &asked).await;
                    }
                });
            }
        });
        Self { address, answer, asked, _tasks: tasks }
    }

    fn says(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn jwt(&self, clock: &Arc<ManualClock>) -> Jwt {
        jwt(JwksUrl::new(format!("http://{}/jwks.json?x=1", self.address)), clock)
    }
}

async fn serve<S: AsyncReadExt + AsyncWriteExt + Unpin>(
    mut stream: S,
    answer: &Mutex<Answer>,
    asked: &AtomicUsize,
) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut bytes = [0; 1024];
        let count = stream.read(&mut bytes).await.unwrap();
        assert!(count > 0);
        request.extend_from_slice(&bytes[..count]);
    }
    asked.fetch_add(1, Ordering::SeqCst);
    let text = String::from_utf8(request).unwrap();
    assert!(text.starts_with("GET /jwks.json?x=1 HTTP/1.1\r\n") && text.contains("host: "), "{text}");
    let answer = answer.lock().unwrap().clone();
    match answer {
        Answer::Bytes(bytes) => {
            // The client may close the connection before the end.
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        Answer::Silence => std::future::pending().await,
    }
}

fn jwt(url: JwksUrl, clock: &Arc<ManualClock>) -> Jwt {
    let keys = KeySource::Url(url);
    Jwt::new(JwtOptions { keys, issuer: None, audience: vec![], leeway_ms: 0 }, Arc::clone(clock) as _)
        .unwrap()
}

fn by(kid: &str) -> String {
    let claims = json!({"sub": "a", "exp": 1_900_000_000});
    token(&json!({"alg": "ES256", "kid": kid}), &claims, es256())
}

async fn code(jwt: &Jwt, token: &str) -> &'static str {
    jwt.authenticate(Some(token)).await.err().map_or("ok", |error| error.code())
}

/// A set with the P-256 key under this name.
fn set(kid: &str) -> Value {
    let mut key = jwks()["keys"][1].clone();
    key["kid"] = json!(kid);
    json!({ "keys": [key] })
}

#[tokio::test]
async fn keys_are_fetched_once_and_kept() {
    let (server, clock) = (Server::start(ok(&jwks()), None).await, clock());
    let jwt = server.jwt(&clock);
    assert_eq!(server.asked(), 0, "nothing before a token needs it");
    for _ in 0..5 {
        assert_eq!(code(&jwt, &by("p256")).await, "ok");
    }
    assert_eq!(server.asked(), 1);
    // After 10 minutes the keys are fetched again, and used meanwhile.
    clock.advance(600_000);
    assert_eq!(code(&jwt, &by("p256")).await, "ok");
    assert_eq!(code(&jwt, &by("p256")).await, "ok");
    assert_eq!(server.asked(), 2);
}

#[tokio::test]
async fn tokens_that_come_together_wait_for_one_fetch() {
    let (server, clock) = (Server::start(ok(&jwks()), None).await, clock());
    let jwt = Arc::new(server.jwt(&clock));
    let mut asking = JoinSet::new();
    for _ in 0..50 {
        let jwt = Arc::clone(&jwt);
        asking.spawn(async move { code(&jwt, &by("p256")).await });
    }
    assert!(asking.join_all().await.iter().all(|code| *code == "ok"));
    assert_eq!(server.asked(), 1);
}

#[tokio::test]
async fn a_new_key_is_found_and_made_up_names_cause_no_storm() {
    let (server, clock) = (Server::start(ok(&set("old")), None).await, clock());
    let jwt = server.jwt(&clock);
    assert_eq!(code(&jwt, &by("old")).await, "ok");
    server.says(ok(&set("new")));
    assert_eq!(code(&jwt, &by("new")).await, "bad_token", "asked for a moment ago");
    clock.advance(60_000);
    assert_eq!(code(&jwt, &by("new")).await, "ok");
    assert_eq!(code(&jwt, &by("old")).await, "bad_token");
    assert_eq!(server.asked(), 2);
    for second in 0..180 {
        assert_eq!(code(&jwt, &by(&format!("made-up-{second}"))).await, "bad_token");
        clock.advance(1_000);
    }
    assert_eq!(server.asked(), 4, "one a minute");
}

#[tokio::test]
async fn nothing_is_fetched_for_tokens_that_cannot_be_good() {
    let (server, clock) = (Server::start(ok(&jwks()), None).await, clock());
    let jwt = server.jwt(&clock);
    let jku = format!("http://{}/jwks.json?x=1", server.address);
    for token in [
        "x".to_owned(),
        "a.b.c".to_owned(),
        token(&json!({"alg": "none"}), &claims(), |_| vec![]),
        token(&json!({"alg": "HS256", "kid": "p256"}), &claims(), hs256(&[7; 64])),
        token(&json!({"alg": "PS256", "jku": jku}), &claims(), |_| vec![0; 64]),
        token(&json!({"alg": "ES256", "crit": ["x"]}), &claims(), es256()),
    ] {
        assert_eq!(code(&jwt, &token).await, "bad_token");
    }
    assert_eq!(server.asked(), 0);
}

#[tokio::test]
async fn a_secret_that_is_published_is_no_key() {
    let oct =
        json!({"keys": [{"kty": "oct", "kid": "s", "k": "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc"}]});
    let (server, clock) = (Server::start(ok(&oct), None).await, clock());
    let jwt = server.jwt(&clock);
    let signed = token(&json!({"alg": "HS256", "kid": "s"}), &claims(), hs256(&[7; 32]));
    assert_eq!(code(&jwt, &signed).await, "bad_token");
    assert_eq!(code(&jwt, &by("s")).await, "auth_unavailable");
}

#[tokio::test]
async fn answers_that_cannot_be_used_are_refused_and_old_keys_stay() {
    let (server, clock) = (Server::start(ok(&set("k")), None).await, clock());
    let jwt = server.jwt(&clock);
    assert_eq!(code(&jwt, &by("k")).await, "ok");
    let mut large = set("large");
    large["more"] = json!("x".repeat(256 << 10));
    // These bodies hold valid keys; only the status is wrong.
    let with_status = |status: &str| {
        let Answer::Bytes(bytes) = ok(&set("large")) else { panic!() };
        let to = format!("HTTP/1.1 {status}\r\nlocation: http://{}/x", server.address);
        raw(&String::from_utf8(bytes).unwrap().replace("HTTP/1.1 200 OK", &to))
    };
    for (number, bad) in [
        ok(&large),
        ok(&json!({})),
        ok(&json!({"keys": []})),
        raw("HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n"),
        with_status("302 Found"),
        with_status("404 Not Found"),
        with_status("203 Non-Authoritative Information"),
        raw("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"keys\""),
        raw("nonsense\r\n\r\n"),
        raw(""),
        raw("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{"),
    ]
    .into_iter()
    .enumerate()
    {
        clock.advance(600_000);
        server.says(bad);
        assert_eq!(code(&jwt, &by("k")).await, "ok", "answer {number}");
        assert_eq!(code(&jwt, &by("large")).await, "bad_token", "answer {number}");
        assert_eq!(server.asked(), number + 2);
    }
    // The keys are too old: no token can be checked, which is not the client's fault.
    clock.advance(24 * 3_600_000);
    assert_eq!(code(&jwt, &by("k")).await, "auth_unavailable");
    server.says(ok(&set("k")));
    clock.advance(5_000);
    assert_eq!(code(&jwt, &by("k")).await, "ok");
}

#[tokio::test]
async fn without_any_answer_tokens_cannot_be_checked_yet() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let jwt = jwt(JwksUrl::new(format!("http://{address}/")), &clock());
    let error = jwt.authenticate(Some(&by("k"))).await.unwrap_err();
    assert_eq!(error, AuthError::Unavailable);
}

#[tokio::test]
async fn a_silent_server_is_given_five_seconds() {
    let (server, clock) = (Server::start(Answer::Silence, None).await, clock());
    let jwt = server.jwt(&clock);
    let time = SystemClock::new();
    assert_eq!(code(&jwt, &by("k")).await, "auth_unavailable");
    assert!((4_900..20_000).contains(&time.monotonic_ms()), "{} ms", time.monotonic_ms());
}

#[tokio::test]
async fn a_client_that_goes_away_does_not_stop_the_fetch() {
    let (server, clock) = (Server::start(ok(&set("k")), None).await, clock());
    let jwt = server.jwt(&clock);
    // Polled until the fetch is under way, then dropped.
    let token = by("k");
    let mut asking = Box::pin(jwt.authenticate(Some(&token)));
    assert!(futures_util::poll!(asking.as_mut()).is_pending());
    drop(asking);
    assert_eq!(code(&jwt, &by("k")).await, "ok");
    assert_eq!(server.asked(), 1);
}

#[tokio::test]
async fn over_https_the_certificate_is_checked() {
    let chain = CertificateDer::pem_slice_iter(include_bytes!("../../fixtures/first.pem"));
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("../../fixtures/first.key.pem")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = config.with_single_cert(chain, key).unwrap();
    let server = Server::start(ok(&set("k")), Some(TlsAcceptor::from(Arc::new(config)))).await;
    let port = server.address.port();
    let url = |host: &str, ca: &[u8]| JwksUrl {
        authorities: Some(ca.to_vec()),
        ..JwksUrl::new(format!("https://{host}:{port}/jwks.json?x=1"))
    };
    let (ours, theirs) =
        (include_bytes!("../../fixtures/ca.pem"), include_bytes!("../../fixtures/second.pem"));
    let good = jwt(url("localhost", ours), &clock());
    assert_eq!(code(&good, &by("k")).await, "ok");
    assert_eq!(server.asked(), 1);
    let unknown = jwt(url("localhost", theirs), &clock());
    assert_eq!(code(&unknown, &by("k")).await, "auth_unavailable");
    let another_name = jwt(url("127.0.0.2", ours), &clock());
    let checked = tokio::time::timeout(Duration::from_secs(120), code(&another_name, &by("k"))).await;
    assert_eq!(checked.unwrap(), "auth_unavailable");
    assert_eq!(server.asked(), 1);
}

#[tokio::test]
async fn keys_are_fetched_again_though_nobody_comes_and_a_change_is_told() {
    let server = Server::start(ok(&set("one")), None).await;
    let clock = clock();
    let jwt = server.jwt(&clock);
    // Before the first token nothing is fetched.
    jwt.refresh().await;
    assert_eq!((server.asked(), jwt.revision()), (0, 0));
    jwt.authenticate(Some(&by("one"))).await.unwrap();
    jwt.refresh().await;
    assert_eq!((server.asked(), jwt.revision()), (1, 0));
    clock.advance(10 * 60_000);
    jwt.refresh().await;
    assert_eq!((server.asked(), jwt.revision()), (2, 0));
    server.says(ok(&set("two")));
    clock.advance(10 * 60_000);
    jwt.refresh().await;
    assert_eq!((server.asked(), jwt.revision()), (3, 1));
    assert!(jwt.authenticate(Some(&by("one"))).await.is_err());
    // A failure changes nothing, and is not repeated at once.
    server.says(raw("HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n"));
    clock.advance(10 * 60_000);
    jwt.refresh().await;
    jwt.refresh().await;
    assert_eq!((server.asked(), jwt.revision()), (4, 1));
}
