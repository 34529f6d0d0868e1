//! Limits, and clients that break the protocol.

use futures_util::{SinkExt, StreamExt};
use promethean_gateway::GatewayOptions;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::{Bytes, Message};

use crate::suite::world::{World, soon};

#[tokio::test]
async fn what_is_no_text_closes_the_connection() {
    let world = World::new().await;
    let mut client = world.ws().await;
    client.socket.send(Message::binary(vec![1, 2, 3])).await.unwrap();
    assert_eq!(client.close_code().await, 1003);
    world.stop().await;
}

#[tokio::test]
async fn a_ping_is_answered() {
    let world = World::new().await;
    let mut client = world.ws().await;
    client.socket.send(Message::Ping(Bytes::from_static(b"you?"))).await.unwrap();
    let pong = soon("a pong", client.socket.next()).await.unwrap().unwrap();
    assert_eq!(pong, Message::Pong(Bytes::from_static(b"you?")));
    world.stop().await;
}

#[tokio::test]
async fn a_message_that_is_too_long_is_not_read() {
    let world =
        World::with_options(GatewayOptions { message_bytes_max: 1_000, ..GatewayOptions::default() }).await;
    let mut client = world.ws().await;
    client.publish("t", json!("x".repeat(500))).await;
    client.send(json!({"op": "PUBLISH", "topic": "t", "payload": "x".repeat(1_000)})).await;
    assert_eq!(client.close_code().await, 1009);
    world.stop().await;
}

/// Bytes on the wire after the upgrade, and the code the connection is closed with.
async fn raw(world: &World, bytes: &[u8]) -> u16 {
    let client = world.ws().await;
    let mut stream = client.socket.into_inner();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    soon("the end", stream.read_to_end(&mut answer)).await.unwrap();
    match answer.as_slice() {
        [0x88, _, high, low, ..] => u16::from_be_bytes([*high, *low]),
        _ => 0,
    }
}

/// A frame with a mask of zeroes.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first, 0x80 | payload.len() as u8, 0, 0, 0, 0];
    bytes.extend_from_slice(payload);
    bytes
}

#[tokio::test]
async fn broken_frames_close_the_connection_with_the_right_code() {
    let world = World::new().await;
    let mut other = world.ws().await;
    let cases: &[(&str, Vec<u8>, u16)] = &[
        ("no mask", vec![0x81, 2, b'{', b'}'], 1002),
        ("reserved bits", frame(0xf1, b"{}"), 1002),
        ("unknown data opcode", frame(0x83, b"{}"), 1002),
        ("unknown control opcode", frame(0x8b, b""), 1002),
        ("a continuation of nothing", frame(0x80, b"{}"), 1002),
        ("a control frame in parts", frame(0x09, b""), 1002),
        ("not UTF-8", frame(0x81, &[0xff, 0xfe]), 1007),
        ("a surrogate", frame(0x81, &[0xed, 0xa0, 0x80]), 1007),
        ("a length with its highest bit", vec![0x81, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 1009),
        ("too long for us", vec![0x81, 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0], 1009),
    ];
    for (what, bytes, code) in cases {
        assert_eq!(raw(&world, bytes).await, *code, "{what}");
    }
    other.publish("t", json!(1)).await;
    world.stop().await;
}

#[tokio::test]
async fn a_client_has_so_many_subscriptions() {
    let world =
        World::with_options(GatewayOptions { subscriptions_max: 2, ..GatewayOptions::default() }).await;
    let mut client = world.ws().await;
    client.subscribe("t", "a", json!({})).await;
    client.subscribe("t", "b", json!({})).await;
    let third = json!({"op": "SUBSCRIBE", "topic": "t", "group": "c"});
    client.refused(third.clone(), "too_many_subscriptions").await;
    client.refused(json!({"op": "SUBSCRIBE", "topic": "t", "group": "a"}), "already_subscribed").await;
    client.ok(json!({"op": "UNSUBSCRIBE", "topic": "t", "group": "a"})).await;
    client.ok(third).await;
    client.refused(json!({"op": "UNSUBSCRIBE", "topic": "t", "group": "a"}), "not_subscribed").await;
    world.stop().await;
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_at_once() {
    let world = World::with_options(GatewayOptions { connections_max: 2, ..GatewayOptions::default() }).await;
    let one = world.ws().await;
    let _two = world.ws().await;
    let mut third = tokio::net::TcpStream::connect(world.address()).await.unwrap();
    let mut nothing = Vec::new();
    // The end can also be a reset.
    let _ = soon("the third is closed", third.read_to_end(&mut nothing)).await;
    assert!(nothing.is_empty());
    drop(one);
    // There is room again as soon as the server has noticed the end of the first connection.
    let again = async {
        while super::client::Client::connect(world.address(), None).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    soon("the place is free again", again).await;
    world.stop().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_and_others_go_on() {
    // Pings are off: time jumps further than a client could answer them.
    let options =
        GatewayOptions { write_timeout_ms: 1_000, ping_every_ms: 1 << 40, ..GatewayOptions::default() };
    let world = World::with_options(options).await;
    let (mut stuck, mut other) = (world.ws().await, world.ws().await);
    stuck.subscribe("t", "g", json!({"maxInFlight": 100_000})).await;
    let payload = json!("x".repeat(100_000));
    for _ in 0..200 {
        other.publish("t", payload.clone()).await;
    }
    let cut = async {
        while world.bus.tasks() > 0 {
            tokio::task::yield_now().await;
        }
    };
    // Its buffers are full, and time passes.
    soon("the stuck client is cut", world.pass_time_until(1_000, cut)).await;
    other.subscribe("t", "g", json!({})).await;
    let again = world.pass_time_until(1_000, other.event()).await;
    assert_eq!(again["event"]["offset"], 0);
    world.stop().await;
}

#[tokio::test]
async fn a_silent_client_is_asked_and_then_closed() {
    let world =
        World::with_options(GatewayOptions { ping_every_ms: 1_000, ..GatewayOptions::default() }).await;
    let mut client = world.ws().await;
    // The reply shows that the connection runs and has looked at the clock.
    client.publish("t", json!(1)).await;
    let mut stream = client.socket.into_inner();
    world.advance(1_000);
    let mut ping = [0; 2];
    soon("it is pinged", stream.read_exact(&mut ping)).await.unwrap();
    assert_eq!(ping, [0x89, 0], "a ping");
    world.advance(1_000);
    let mut goodbye = Vec::new();
    // The end can also be a reset.
    let _ = soon("it is closed", stream.read_to_end(&mut goodbye)).await;
    assert_eq!(&goodbye[..4], &[0x88, goodbye[1], 0x03, 0xf0], "closed with 1008");
    world.stop().await;
}
