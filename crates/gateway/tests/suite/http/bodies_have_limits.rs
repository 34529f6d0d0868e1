use std::time::Duration;

use promethean_bus::limits::Rate;
use promethean_gateway::options::GatewayOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::client::raw;
use crate::suite::world::World;

fn small() -> GatewayOptions {
    GatewayOptions { message_bytes_max: 1000, body_timeout_ms: 300, ..GatewayOptions::default() }
}

#[tokio::test]
async fn bodies_that_are_too_large_are_refused_and_the_client_sees_it() {
    let world = World::with_options(small()).await;
    let mut client = world.http().await;
    let fits = format!("\"{}\"", "x".repeat(998));
    client.send("POST", "/publish/a", &[], fits).await.json(200);
    for bytes in [1001, 200_000, 8 << 20] {
        let big = "1".repeat(bytes);
        client.send("POST", "/publish/a", &[], big).await.refused(413, "too_large");
    }
    // The connection still works.
    client.send("GET", "/health", &[], "").await.json(200);
    // The same without a `content-length`.
    let chunk = format!("400\r\n{}\r\n", "1".repeat(1024));
    let mut request =
        b"POST /publish/a HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..50 {
        request.extend_from_slice(chunk.as_bytes());
    }
    request.extend_from_slice(b"0\r\n\r\n");
    let answer = raw(world.address(), &request).await;
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("too_large"), "{answer}");
    world.stop().await;
}

#[tokio::test]
async fn a_refused_body_is_drained_whatever_refused_it() {
    let world = World::new().await;
    let mut client = world.http().await;
    let big = "1".repeat(10 << 20);
    client.send("POST", "/nowhere", &[], big.clone()).await.refused(404, "not_found");
    client.send("POST", "/health", &[], big.clone()).await.refused(405, "method_not_allowed");
    client.send("POST", "/publish/A", &[], big.clone()).await.refused(400, "bad_name");
    client.send("GET", "/health", &[], big).await.json(200);
    world.stop().await;
}

#[tokio::test]
async fn a_client_that_waits_to_be_told_is_refused_before_it_sends() {
    let world = World::with_options(small()).await;
    let mut stream = TcpStream::connect(world.address()).await.unwrap();
    let head = b"POST /publish/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5000\r\nexpect: 100-continue\r\n\r\n";
    stream.write_all(head).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let mut stream = TcpStream::connect(world.address()).await.unwrap();
    stream
        .write_all(b"POST /publish/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\nexpect: 100-continue\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut go_on = [0; 25];
    stream.read_exact(&mut go_on).await.unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"1").await.unwrap();
    answer.clear();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    world.stop().await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let world = World::with_options(small()).await;
    let mut stream = TcpStream::connect(world.address()).await.unwrap();
    stream
        .write_all(b"POST /publish/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n1")
        .await
        .unwrap();
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    tokio::time::timeout(Duration::from_secs(120), read).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("timeout"), "{answer}");
    world.stop().await;
}

#[tokio::test]
async fn long_addresses_and_heads() {
    let world = World::new().await;
    let long = format!("/replay?topic={}", "a".repeat(9000));
    world.get(&long).await.refused(414, "uri_too_long");
    let headers: String = (0..30).map(|n| format!("x-{n}: {}\r\n", "v".repeat(1000))).collect();
    let answer = raw(world.address(), format!("GET /health HTTP/1.1\r\n{headers}\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let headers: String = (0..150).map(|n| format!("x-{n}: v\r\n")).collect();
    let answer = raw(world.address(), format!("GET /health HTTP/1.1\r\n{headers}\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    world.stop().await;
}

#[tokio::test]
async fn a_connection_publishes_no_faster_than_it_may() {
    let rate = Rate { per_second: 1.try_into().unwrap(), burst: 2.try_into().unwrap() };
    let world =
        World::with_options(GatewayOptions { publish_rate: Some(rate), ..GatewayOptions::default() }).await;
    let mut client = world.http().await;
    client.send("POST", "/publish/a", &[], "1").await.json(200);
    client.send("POST", "/publish/a", &[], "1").await.json(200);
    let refused = client.send("POST", "/publish/a", &[], "1").await;
    assert!(refused.refused(429, "rate_limited")["retry_after_ms"].as_u64().unwrap() <= 1000);
    assert_eq!(refused.headers["retry-after"], "1");
    // Another connection has a rate of its own.
    world.publish("a", "1").await;
    world.stop().await;
}
