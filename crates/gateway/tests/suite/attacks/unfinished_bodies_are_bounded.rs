//! Requests and messages that do not end: the bytes that are kept of them have one bound for all clients and
//! one for each token, and they are given back however the request ends.

use std::net::SocketAddr;

use bytes::Bytes;
use futures_util::SinkExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use promethean_gateway::GatewayOptions;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame as WsFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use super::{is_healthy, metric, until_metric, world};
use crate::suite::world::{World, soon};
use crate::suite::ws::client::Client as WsClient;

const KIB: usize = 1 << 10;
/// The budget of all clients in these tests, and the part of a token.
const ALL: usize = 1_000 * KIB;
const TOKEN: usize = 400 * KIB;
const PIECE: usize = 100 * KIB;
const GAUGE: &str = "receiving_bytes";

fn options() -> GatewayOptions {
    GatewayOptions { receiving_bytes_max: ALL, token_receiving_bytes_max: TOKEN, ..GatewayOptions::default() }
}

/// A JSON text of so many bytes without its last one, a quote.
fn text(bytes: usize) -> Vec<u8> {
    let mut text = vec![b'x'; bytes];
    text[0] = b'"';
    text
}

/// A publish whose body does not end.
async fn unfinished(address: SocketAddr, token: &str, bytes: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /publish/t HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\ncontent-length: {}\r\n\r\n",
        bytes + 1
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&text(bytes)).await.unwrap();
    stream
}

/// The answer to a request that is refused.
async fn refusal(mut stream: TcpStream) -> (String, Value) {
    // The body is read to its end first, so that the client sees the answer.
    stream.write_all(b"\"").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    soon("an answer", stream.read_to_string(&mut answer)).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), serde_json::from_str(body).unwrap())
}

#[tokio::test]
async fn bodies_of_all_clients_stay_within_the_budget_and_are_given_back() {
    let world = world(&["a", "b", "c", "d"], options()).await;
    let mut open = Vec::new();
    for token in ["a", "b"] {
        for _ in 0..TOKEN / PIECE {
            open.push(unfinished(world.address(), token, PIECE).await);
        }
    }
    until_metric(&world, GAUGE, 2 * TOKEN as i64).await;
    // A token that has its part gets no more, and another one does.
    let (head, body) = refusal(unfinished(world.address(), "a", PIECE).await).await;
    assert!(head.starts_with("http/1.1 429") && head.contains("retry-after: 1"), "{head}");
    assert_eq!((&body["error"], &body["retry_after_ms"]), (&json!("rate_limited"), &json!(1_000)), "{body}");
    assert!(body["message"].as_str().unwrap().contains("token_receiving_bytes"), "{body}");
    for _ in 0..2 {
        open.push(unfinished(world.address(), "c", PIECE).await);
    }
    until_metric(&world, GAUGE, ALL as i64).await;
    let (head, body) = refusal(unfinished(world.address(), "d", PIECE).await).await;
    assert!(head.starts_with("http/1.1 503") && head.contains("retry-after: 1"), "{head}");
    assert_eq!(body["error"], "busy", "{body}");
    assert!(body["message"].as_str().unwrap().contains("`limits.receiving_bytes`"), "{body}");
    // What was refused is not kept, requests without a body are answered, and so is the health check.
    assert_eq!(metric(&world, GAUGE), ALL as i64);
    is_healthy(&world).await;
    // One that breaks off, one that ends as it should, and the rest at once.
    drop(open.pop());
    until_metric(&world, GAUGE, (ALL - PIECE) as i64).await;
    let mut whole = open.pop().unwrap();
    whole.write_all(b"\"").await.unwrap();
    let mut status = [0; 12];
    soon("an answer", whole.read_exact(&mut status)).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    until_metric(&world, GAUGE, (ALL - 2 * PIECE) as i64).await;
    drop(open);
    until_metric(&world, GAUGE, 0).await;
    assert_eq!(metric(&world, "receiving_refused_total"), 2);
    world.stop().await;
}

#[tokio::test]
async fn a_body_that_does_not_come_in_time_is_given_back() {
    let options = GatewayOptions { body_timeout_ms: 200, ..options() };
    let world = world(&["a"], options).await;
    let mut stream = unfinished(world.address(), "a", PIECE).await;
    let mut answer = String::new();
    soon("an answer", stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    until_metric(&world, GAUGE, 0).await;
    world.stop().await;
}

/// A body whose chunks a test sends; it ends when the sender is dropped.
type Chunks = mpsc::Sender<Bytes>;

async fn begin(
    sender: &mut http2::SendRequest<http_body_util::combinators::BoxBody<Bytes, std::convert::Infallible>>,
) -> (Chunks, impl Future<Output = Response<hyper::body::Incoming>> + use<>) {
    let (chunks, mut body) = mpsc::channel::<Bytes>(64);
    let stream = futures_util::stream::poll_fn(move |cx| {
        body.poll_recv(cx).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
    });
    let request = Request::post("http://localhost/publish/t").header("authorization", "Bearer a");
    let request = request.body(StreamBody::new(stream).boxed()).unwrap();
    sender.ready().await.unwrap();
    let answer = sender.send_request(request);
    (chunks, async move { answer.await.unwrap() })
}

#[tokio::test]
async fn streams_of_one_http2_connection_stay_within_the_budget() {
    let world = world(&["a"], options()).await;
    let stream = TcpStream::connect(world.address()).await.unwrap();
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.unwrap();
    let _driver = JoinSet::from_iter([async move { connection.await.unwrap_or_default() }]);
    let mut kept = Vec::new();
    for _ in 0..TOKEN / PIECE {
        let (chunks, answer) = begin(&mut sender).await;
        chunks.send(Bytes::from(text(PIECE))).await.unwrap();
        kept.push((chunks, answer));
    }
    until_metric(&world, GAUGE, TOKEN as i64).await;
    for _ in 0..20 {
        let (chunks, answer) = begin(&mut sender).await;
        chunks.send(Bytes::from(text(PIECE))).await.unwrap();
        drop(chunks);
        assert_eq!(soon("a refusal", answer).await.status(), 429);
        assert_eq!(metric(&world, GAUGE), TOKEN as i64);
    }
    is_healthy(&world).await;
    // One breaks off, and the others end as they should.
    drop(kept.pop());
    until_metric(&world, GAUGE, (TOKEN - PIECE) as i64).await;
    for (chunks, answer) in kept {
        chunks.send(Bytes::from_static(b"\"")).await.unwrap();
        drop(chunks);
        assert_eq!(soon("an answer", answer).await.status(), 200);
    }
    until_metric(&world, GAUGE, 0).await;
    world.stop().await;
}

/// Sends a part of a message that does not end.
async fn fragment(client: &mut WsClient, kind: Data, bytes: usize) {
    let frame = WsFrame::message(vec![b' '; bytes], OpCode::Data(kind), false);
    // The server may have closed the connection.
    let _ = client.socket.send(Message::Frame(frame)).await;
}

#[tokio::test]
async fn messages_that_do_not_end_stay_within_the_budget() {
    let world = world(&["a", "b", "c"], options()).await;
    let mut clients = Vec::new();
    for token in ["a", "a", "a", "a", "b", "b", "b", "b", "c", "c"] {
        let mut client = WsClient::connect(world.address(), Some(token)).await.unwrap();
        fragment(&mut client, Data::Text, PIECE / 2).await;
        client.socket.send(Message::Ping(Bytes::new())).await.unwrap();
        fragment(&mut client, Data::Continue, PIECE / 2).await;
        clients.push(client);
    }
    until_metric(&world, GAUGE, ALL as i64).await;
    for token in ["a", "c"] {
        let mut late = WsClient::connect(world.address(), Some(token)).await.unwrap();
        // A small message needs no room.
        late.ok(json!({"op": "AUTH", "token": token})).await;
        fragment(&mut late, Data::Text, PIECE).await;
        assert_eq!(late.close_code().await, 1013, "{token}");
        until_metric(&world, GAUGE, ALL as i64).await;
    }
    is_healthy(&world).await;
    // A message that ends, a client that goes away, and all others.
    let mut whole = clients.pop().unwrap();
    let last = WsFrame::message(Bytes::new(), OpCode::Data(Data::Continue), true);
    whole.socket.send(Message::Frame(last)).await.unwrap();
    assert_eq!(whole.next().await["code"], "bad_json");
    until_metric(&world, GAUGE, (ALL - PIECE) as i64).await;
    drop(clients.pop());
    until_metric(&world, GAUGE, (ALL - 2 * PIECE) as i64).await;
    drop(clients);
    until_metric(&world, GAUGE, 0).await;
    // The connection still works after a message that was counted.
    whole.publish("t", json!("x".repeat(PIECE))).await;
    whole.publish("t", json!(1)).await;
    until_metric(&world, GAUGE, 0).await;
    world.stop().await;
}

#[tokio::test]
async fn a_message_that_does_not_come_in_time_ends_its_connection() {
    let options = GatewayOptions { body_timeout_ms: 1_000, ..options() };
    let world = world(&["a"], options).await;
    let mut busy = WsClient::connect(world.address(), Some("a")).await.unwrap();
    let mut slow = WsClient::connect(world.address(), Some("a")).await.unwrap();
    fragment(&mut slow, Data::Text, PIECE).await;
    until_metric(&world, GAUGE, PIECE as i64).await;
    // Whole messages, whatever comes between them, are not late.
    for n in 0..20 {
        world.advance(100);
        busy.publish("t", json!(n)).await;
        busy.socket.send(Message::Ping(Bytes::new())).await.unwrap();
    }
    assert_eq!(slow.close_code().await, 1008);
    until_metric(&world, GAUGE, 0).await;
    busy.publish("t", json!("x".repeat(PIECE))).await;
    world.stop().await;
}

#[tokio::test]
async fn a_fast_publisher_is_slowed_down_and_not_refused() {
    // Far more than the budget, without waiting for answers.
    let world = world(&["a"], options()).await;
    let mut clients: Vec<WsClient> = Vec::new();
    for _ in 0..3 {
        clients.push(WsClient::connect(world.address(), Some("a")).await.unwrap());
    }
    let payload = "x".repeat(20 * KIB);
    let all = clients.into_iter().map(|mut client| {
        let payload = payload.clone();
        async move {
            for n in 0..100 {
                client.send(json!({"op": "PUBLISH", "topic": "t", "payload": [n, payload]})).await;
            }
            for _ in 0..100 {
                assert_eq!(client.next().await["op"], "OK");
            }
        }
    });
    soon("all are answered", futures_util::future::join_all(all)).await;
    until_metric(&world, GAUGE, 0).await;
    world.stop().await;
}

#[tokio::test]
async fn without_tokens_the_whole_budget_is_for_all() {
    let world = World::with_options(options()).await;
    let mut open = Vec::new();
    for _ in 0..ALL / PIECE {
        open.push(unfinished(world.address(), "any", PIECE).await);
    }
    until_metric(&world, GAUGE, ALL as i64).await;
    let (_, body) = refusal(unfinished(world.address(), "any", 1).await).await;
    assert_eq!(body["error"], "busy", "{body}");
    is_healthy(&world).await;
    drop(open);
    until_metric(&world, GAUGE, 0).await;
    world.stop().await;
}
