//! Slow clients: heads that do not end, answers that are not read, connections without requests.

use std::time::Duration;

use hyper::client::conn::http2;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use promethean_gateway::GatewayOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::client::{Client, raw};
use crate::suite::world::World;

/// Far less than hyper waits by default, far more than a slow machine needs.
const WITHIN: Duration = Duration::from_secs(25);

async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(WITHIN, work).await.unwrap_or_else(|_| panic!("never: {what}"))
}

#[tokio::test]
async fn heads_that_do_not_end_and_connections_that_ask_no_more_are_closed() {
    let world =
        World::with_options(GatewayOptions { head_timeout_ms: 100, ..GatewayOptions::default() }).await;
    let whole = "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for sent in ["GET /hea".to_owned(), whole.to_owned(), format!("{whole}GET /hea")] {
        let mut stream = TcpStream::connect(world.address()).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // The end can also be a reset.
        let _ = within(&sent, stream.read_to_end(&mut answer)).await;
        assert_eq!(answer.starts_with(b"HTTP/1.1 200"), sent.len() > 10, "{sent}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_client_that_reads_no_answers_is_cut() {
    let world =
        World::with_options(GatewayOptions { write_timeout_ms: 200, ..GatewayOptions::default() }).await;
    let mut stream = TcpStream::connect(world.address()).await.unwrap();
    let asks = "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(100);
    let flood = async { while stream.write_all(asks.as_bytes()).await.is_ok() {} };
    within("it is cut", flood).await;
    assert_eq!(world.get("/health").await.status, 200);
    world.stop().await;
}

/// An HTTP/2 connection with small windows, and the task that drives it.
async fn http2(world: &World) -> (http2::SendRequest<String>, JoinSet<()>) {
    let stream = TcpStream::connect(world.address()).await.unwrap();
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(1_000).initial_connection_window_size(65_535);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    // It may end with an error.
    let driver = JoinSet::from_iter([async move { connection.await.unwrap_or_default() }]);
    (sender, driver)
}

async fn ask(sender: &mut http2::SendRequest<String>, path: &str) -> Response<hyper::body::Incoming> {
    let request = Request::get(format!("http://localhost{path}")).body(String::new()).unwrap();
    sender.send_request(request).await.unwrap()
}

#[tokio::test]
async fn an_http2_stream_that_is_not_read_ends_its_connection() {
    let world =
        World::with_options(GatewayOptions { write_timeout_ms: 200, ..GatewayOptions::default() }).await;
    world.publish("t", &format!("\"{}\"", "x".repeat(100_000))).await;
    let (mut quiet_sender, mut quiet_driver) = http2(&world).await;
    let quiet = ask(&mut quiet_sender, "/stream/other").await;
    for path in ["/replay?topic=t&from=earliest", "/export?topic=t", "/stream/t?from=earliest"] {
        let (mut sender, mut driver) = http2(&world).await;
        let answer = ask(&mut sender, path).await;
        assert_eq!(answer.status(), 200);
        within(path, driver.join_next()).await;
        drop(answer);
    }
    // A stream without events has nothing to read. It is older than the connections that were cut, and still
    // open.
    assert_eq!(ask(&mut quiet_sender, "/health").await.status(), 200);
    assert!(quiet_driver.try_join_next().is_none(), "a stream without events was cut");
    drop(quiet);
    world.stop().await;
}

#[tokio::test]
async fn an_http2_connection_without_requests_is_closed() {
    // The server asks an idle connection to leave, and cuts it after `head_timeout_ms` more.
    let options =
        GatewayOptions { idle_timeout_ms: 300, head_timeout_ms: 2_000, ..GatewayOptions::default() };
    let world = World::with_options(options).await;
    let (mut busy, mut busy_driver) = http2(&world).await;
    let (mut idle, mut idle_driver) = http2(&world).await;
    let mut one = Client::http1(world.address()).await;
    assert_eq!(ask(&mut idle, "/health").await.status(), 200);
    let asks = async {
        // Connections with requests stay open while the one without is closed.
        while idle_driver.try_join_next().is_none() {
            assert_eq!(ask(&mut busy, "/health").await.status(), 200);
            assert_eq!(one.send("GET", "/health", &[], "").await.status, 200);
        }
    };
    within("the idle connection is closed", asks).await;
    assert_eq!(ask(&mut busy, "/health").await.status(), 200);
    within("the busy one is closed when it is idle too", busy_driver.join_next()).await;
    world.stop().await;
}

#[tokio::test]
async fn an_http2_connection_has_limits() {
    let world = World::new().await;
    let mut stream = TcpStream::connect(world.address()).await.unwrap();
    // The preface, and empty settings.
    let hello = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
    stream.write_all(&hello).await.unwrap();
    let mut head = [0; 9];
    within("settings", stream.read_exact(&mut head)).await.unwrap();
    let mut settings = vec![0; usize::from(head[2])];
    stream.read_exact(&mut settings).await.unwrap();
    let has = |setting: [u8; 6]| settings.chunks(6).any(|found| found == setting);
    assert!(has([0, 3, 0, 0, 0, 100]), "100 streams at a time: {settings:?}");
    assert!(has([0, 6, 0, 0, 0x40, 0]), "16 KiB of headers: {settings:?}");
    assert!(has([0, 4, 0, 2, 0, 0]), "128 KiB of a stream before it is read: {settings:?}");
    // The window of the connection begins with 65,535 bytes, and is raised to 512 KiB.
    let window = within("a window update", async {
        loop {
            stream.read_exact(&mut head).await.unwrap();
            let mut frame = vec![0; usize::from(head[2])];
            stream.read_exact(&mut frame).await.unwrap();
            if head[3] == 8 {
                return u32::from_be_bytes(frame.try_into().unwrap());
            }
        }
    });
    assert_eq!(window.await, (512 << 10) - 65_535);
    let mut client = Client::http2(world.address()).await;
    let names: Vec<String> = (0..120).map(|n| format!("x-{n}")).collect();
    let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    client.send("GET", "/topics", &many, "").await.refused(431, "too_many_headers");
    assert_eq!(client.send("GET", "/topics", &many[..90], "").await.status, 200);
    assert_eq!(client.send("GET", "/topics", &[("x-long", &"x".repeat(20_000))], "").await.status, 431);
    let lines: String = names.iter().map(|name| format!("{name}: 1\r\n")).collect();
    let answer =
        raw(world.address(), format!("GET / HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    world.stop().await;
}
