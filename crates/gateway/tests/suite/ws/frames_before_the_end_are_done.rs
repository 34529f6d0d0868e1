//! Frames sent just before the end of a connection are handled.

use futures_util::SinkExt;
use promethean_gateway::GatewayOptions;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio_tungstenite::tungstenite::Message;

use super::client::about;
use crate::suite::world::{World, soon};

#[tokio::test]
async fn an_ack_before_leaving_counts() {
    let world = World::new().await;
    let (mut client, mut other) = (world.ws().await, world.ws().await);
    client.subscribe("t", "g", json!({})).await;
    other.publish("t", json!(1)).await;
    let event = client.event().await;
    let mut ack = about("ACK", &event);
    ack["corr"] = json!(1);
    let leave = json!({"op": "UNSUBSCRIBE", "topic": "t", "group": "g", "corr": 2});
    // Both in one write, so that the server reads them in one turn.
    client.socket.feed(Message::text(ack.to_string())).await.unwrap();
    client.socket.send(Message::text(leave.to_string())).await.unwrap();
    let mut replies = [client.next().await, client.next().await];
    replies.sort_by_key(|reply| reply["corr"].as_u64());
    assert_eq!(replies, [json!({"op": "OK", "corr": 1}), json!({"op": "OK", "corr": 2})]);
    let group = world.bus.group(&"t".parse().unwrap(), &"g".parse().unwrap()).await.unwrap();
    assert_eq!(group.floor.get(), 1);
    world.stop().await;
}

#[tokio::test]
async fn a_publish_before_a_goodbye_is_done() {
    let world = World::new().await;
    let mut client = world.ws().await;
    for n in 0..10 {
        let publish = json!({"op": "PUBLISH", "topic": "t", "payload": n});
        client.socket.feed(Message::text(publish.to_string())).await.unwrap();
    }
    client.socket.close(None).await.unwrap();
    assert_eq!(client.close_code().await, 0, "the goodbye has no code, and is answered as it is");
    let topic = "t".parse().unwrap();
    let there = async {
        while world.bus.topic(&topic).await.map_or(0, |info| info.end.get()) < 10 {
            tokio::task::yield_now().await;
        }
    };
    soon("the events are there", there).await;
    world.stop().await;
}

#[tokio::test]
async fn deliveries_go_on_after_a_buffer_was_full() {
    // A ping would wake the connection too.
    let world =
        World::with_options(GatewayOptions { ping_every_ms: 3_600_000, ..GatewayOptions::default() }).await;
    let (mut slow, mut other) = (world.ws().await, world.ws().await);
    slow.subscribe("t", "g", json!({"maxInFlight": 10_000})).await;
    // More than fits into the buffers of both ends, so that the server has to wait for the client.
    let payload = json!("x".repeat(100_000));
    for _ in 0..200 {
        other.publish("t", payload.clone()).await;
    }
    for offset in 0..200 {
        assert_eq!(slow.event().await["event"]["offset"], offset);
    }
    world.stop().await;
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_closed() {
    let world =
        World::with_options(GatewayOptions { head_timeout_ms: 50, ..GatewayOptions::default() }).await;
    let mut talks = world.ws().await;
    let mut silent = tokio::net::TcpStream::connect(world.address()).await.unwrap();
    let mut nothing = Vec::new();
    // The end can also be a reset.
    let _ = soon("it is closed", silent.read_to_end(&mut nothing)).await;
    // The other connection is older, so its time is over too; but it has sent a request.
    talks.publish("t", json!(1)).await;
    world.stop().await;
}

#[tokio::test]
async fn a_client_that_never_reads_pongs_is_cut() {
    let world =
        World::with_options(GatewayOptions { write_timeout_ms: 1_000, ..GatewayOptions::default() }).await;
    let stream = world.ws().await.socket.into_inner();
    let pings = [&[0x89, 0x80 | 125, 0, 0, 0, 0][..], &[7; 125]].concat().repeat(1_000);
    let flood = async {
        let mut sent = 0;
        loop {
            match stream.try_write(&pings[sent..]) {
                Ok(count) => sent = (sent + count) % pings.len(),
                // The buffers of both ends are full: the server reads nothing more, and time passes.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => world.advance(100),
                Err(_) => return,
            }
            tokio::task::yield_now().await;
        }
    };
    soon("it is cut", flood).await;
    world.stop().await;
}
