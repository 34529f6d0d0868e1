//! TLS: handshakes, versions, timeouts, new certificates.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use hyper::Request;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use promethean_bus::{Bus, BusOptions};
use promethean_gateway::auth::Open;
use promethean_gateway::gateway::GatewayParts;
use promethean_gateway::options::TlsFiles;
use promethean_gateway::{Gateway, GatewayOptions};
use promethean_model::SystemClock;
use promethean_testkit::store::memory::MemoryStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, ProtocolVersion, RootCertStore, SupportedProtocolVersion};
use tokio_tungstenite::tungstenite::Message;

use super::auth::secrets_are_never_shown::Recorder;
use super::world::soon;

const FIRST: (&str, &str) =
    (include_str!("../fixtures/first.pem"), include_str!("../fixtures/first.key.pem"));
const SECOND: (&str, &str) =
    (include_str!("../fixtures/second.pem"), include_str!("../fixtures/second.key.pem"));
const BOTH: &[&SupportedProtocolVersion] = &[&TLS12, &TLS13];

fn write(dir: &Path, (certificate, key): (&str, &str)) -> TlsFiles {
    let (certificate_path, key_path) = (dir.join("tls.pem"), dir.join("tls.key"));
    std::fs::write(&certificate_path, certificate).unwrap();
    std::fs::write(&key_path, key).unwrap();
    TlsFiles { check_every_ms: 10, ..TlsFiles::new(certificate_path, key_path) }
}

async fn start(files: TlsFiles, head_timeout_ms: u64) -> Gateway {
    let clock = Arc::new(SystemClock::new());
    let store = Arc::new(MemoryStore::new(Arc::clone(&clock) as _, Default::default()));
    let bus = Bus::open(store, Arc::clone(&clock) as _, BusOptions::default()).await.unwrap();
    let options = GatewayOptions { tls: Some(files), head_timeout_ms, ..GatewayOptions::default() };
    let parts = GatewayParts { bus, projections: None, auth: Arc::new(Open), clock, options };
    Gateway::start(parts, &["127.0.0.1:0".parse().unwrap()]).await.unwrap()
}

async fn connect(
    address: SocketAddr,
    versions: &[&'static SupportedProtocolVersion],
    alpn: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(include_bytes!("../fixtures/ca.pem")).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let config = config.with_protocol_versions(versions).unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
}

/// The certificate that the server shows.
async fn certificate(address: SocketAddr) -> Vec<u8> {
    let stream = connect(address, BOTH, "http/1.1").await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

fn der(pem: &str) -> Vec<u8> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
}

/// Waits until the server shows this certificate.
async fn until_shown(address: SocketAddr, pem: &str) {
    let waiting = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        while certificate(address).await != der(pem) {
            ticks.tick().await;
        }
    };
    soon("the certificate is shown", waiting).await;
}

#[tokio::test]
async fn serves_over_tls_from_version_1_2_up() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = start(write(dir.path(), FIRST), 10_000).await;
    let address = gateway.addresses()[0];
    for (version, expected) in [(&TLS12, ProtocolVersion::TLSv1_2), (&TLS13, ProtocolVersion::TLSv1_3)] {
        let mut stream = connect(address, &[version], "http/1.1").await.unwrap();
        assert_eq!(stream.get_ref().1.protocol_version(), Some(expected));
        stream
            .write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("ok"), "{answer}");
    }
    let stream = connect(address, BOTH, "h2").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.unwrap();
    let driver = JoinSet::from_iter([async move { connection.await.unwrap_or_default() }]);
    let request = Request::get("https://localhost/health").body(String::new()).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
    let stream = connect(address, BOTH, "http/1.1").await.unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async("wss://localhost/ws", stream).await.unwrap();
    let publish = r#"{"op":"PUBLISH","topic":"t","payload":1}"#;
    socket.send(Message::text(publish)).await.unwrap();
    let reply = socket.next().await.unwrap().unwrap();
    assert!(reply.to_text().unwrap().contains("\"op\":\"OK\""), "{reply}");
    assert!(connect(address, BOTH, "smtp").await.is_err());
    drop((driver, socket));
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_that_speaks_no_tls_gets_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = start(write(dir.path(), FIRST), 10_000).await;
    let mut stream = TcpStream::connect(gateway.addresses()[0]).await.unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    // An alert or a reset, but no HTTP.
    let _ = stream.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"));
    gateway.stop().await;
}

#[tokio::test]
async fn a_handshake_that_does_not_come_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = start(write(dir.path(), FIRST), 50).await;
    for beginning in [&b""[..], &[0x16, 3, 1][..], &[0x16, 3, 1, 0x40, 0, 1][..]] {
        let mut stream = TcpStream::connect(gateway.addresses()[0]).await.unwrap();
        stream.write_all(beginning).await.unwrap();
        let mut answer = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(120), stream.read_to_end(&mut answer)).await;
        assert!(ended.is_ok(), "after {beginning:?}");
    }
    // Other clients are not affected.
    assert!(connect(gateway.addresses()[0], BOTH, "h2").await.is_ok());
    gateway.stop().await;
}

#[tokio::test]
async fn a_new_certificate_is_taken_over_and_a_bad_one_is_not() {
    // A second subscriber: with only one, `tracing` caches a log line as disabled if another test reaches it
    // first.
    let _second = tracing::Dispatch::new(Recorder::default());
    let recorder = Recorder::default();
    let log = Arc::clone(&recorder.0);
    let _guard = tracing::subscriber::set_default(recorder);
    let dir = tempfile::tempdir().unwrap();
    let files = write(dir.path(), FIRST);
    let gateway = start(files, 10_000).await;
    let address = gateway.addresses()[0];
    assert_eq!(certificate(address).await, der(FIRST.0));
    let mut held = connect(address, BOTH, "http/1.1").await.unwrap();
    write(dir.path(), SECOND);
    until_shown(address, SECOND.0).await;
    // A certificate with the key of another, nonsense, empty files, swapped files: the old certificate stays.
    for bad in [(FIRST.0, SECOND.1), ("nonsense", "nonsense"), ("", ""), (FIRST.1, FIRST.0)] {
        let refused = || log.lock().unwrap().matches("the new certificate cannot be used").count();
        let before = refused();
        write(dir.path(), bad);
        let noticed = async {
            while refused() == before {
                tokio::task::yield_now().await;
            }
        };
        soon("the server notices the bad files", noticed).await;
        assert_eq!(certificate(address).await, der(SECOND.0));
    }
    std::fs::remove_file(dir.path().join("tls.pem")).unwrap();
    assert_eq!(certificate(address).await, der(SECOND.0));
    write(dir.path(), FIRST);
    until_shown(address, FIRST.0).await;
    // Connections that were open before go on.
    held.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    held.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    gateway.stop().await;
}

#[tokio::test]
async fn files_of_no_use_stop_the_start_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(SystemClock::new());
    let store = Arc::new(MemoryStore::new(Arc::clone(&clock) as _, Default::default()));
    let bus = Bus::open(store, Arc::clone(&clock) as _, BusOptions::default()).await.unwrap();
    for (pair, reason) in [
        ((FIRST.0, SECOND.1), "cannot be used"),
        ((FIRST.1, FIRST.0), "has no certificate"),
        ((FIRST.0, ""), "has no private key"),
    ] {
        let options = GatewayOptions { tls: Some(write(dir.path(), pair)), ..GatewayOptions::default() };
        let parts = GatewayParts {
            bus: bus.clone(),
            projections: None,
            auth: Arc::new(Open),
            clock: Arc::clone(&clock) as _,
            options,
        };
        let error = Gateway::start(parts, &["127.0.0.1:0".parse().unwrap()]).await.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    let options = GatewayOptions {
        tls: Some(TlsFiles::new("/no/such.pem", "/no/such.key")),
        ..GatewayOptions::default()
    };
    let parts = GatewayParts { bus, projections: None, auth: Arc::new(Open), clock, options };
    let error = Gateway::start(parts, &["127.0.0.1:0".parse().unwrap()]).await.unwrap_err().to_string();
    assert!(error.contains("cannot read `/no/such.pem`"), "{error}");
}
