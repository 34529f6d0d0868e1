//! Connections without a valid token never keep others out, whatever they have sent.

use promethean_gateway::GatewayOptions;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{is_healthy, metric, until_metric, world};
use crate::suite::http::client::Client as HttpClient;
use crate::suite::world::{World, soon};
use crate::suite::ws::client::Client as WsClient;

const TOKEN: &str = "prom_known";
const BEARER: (&str, &str) = ("authorization", "Bearer prom_known");
const CONNECTIONS: usize = 6;

fn options() -> GatewayOptions {
    GatewayOptions { connections_max: CONNECTIONS, ..GatewayOptions::default() }
}

/// Opens connections that send these bytes and then wait.
async fn crowd(world: &World, bytes: &str) -> Vec<TcpStream> {
    let mut crowd = Vec::new();
    for _ in 0..3 * CONNECTIONS {
        let mut stream = TcpStream::connect(world.address()).await.unwrap();
        // It may be closed already.
        let _ = stream.write_all(bytes.as_bytes()).await;
        crowd.push(stream);
    }
    crowd
}

#[tokio::test]
async fn strangers_of_every_kind_give_their_places_to_others() {
    let upgrade = "GET /ws HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                   sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let kinds = [
        ("no byte", String::new()),
        ("half a head", "GET /hea".to_owned()),
        ("an open route", "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned()),
        (
            "a body that is refused",
            "POST /publish/a HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\n".to_owned(),
        ),
        ("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned()),
        ("a WebSocket without AUTH", upgrade.to_owned()),
    ];
    for (kind, bytes) in kinds {
        let world = world(&[TOKEN], options()).await;
        let crowd = crowd(&world, &bytes).await;
        is_healthy(&world).await;
        let mut client = HttpClient::http1(world.address()).await;
        assert_eq!(client.send("POST", "/publish/a", &[BEARER], "1").await.status, 200, "{kind}");
        let mut socket = WsClient::connect(world.address(), Some(TOKEN)).await.unwrap();
        socket.publish("a", json!(2)).await;
        assert!(metric(&world, "connections_evicted_total") > 0, "{kind}");
        assert!(metric(&world, "connections") <= CONNECTIONS as i64, "{kind}");
        drop(crowd);
        world.stop().await;
    }
}

#[tokio::test]
async fn clients_with_a_token_keep_their_places() {
    let world = world(&[TOKEN], options()).await;
    let mut sockets = Vec::new();
    for _ in 0..CONNECTIONS - 1 {
        sockets.push(WsClient::connect(world.address(), Some(TOKEN)).await.unwrap());
    }
    let mut late = world.ws().await;
    late.ok(json!({"op": "AUTH", "token": TOKEN})).await;
    sockets.push(late);
    // Every place belongs to a known client: a new connection is closed at once.
    for _ in 0..2 * CONNECTIONS {
        let mut stream = TcpStream::connect(world.address()).await.unwrap();
        let end = soon("a connection is closed", stream.read(&mut [0])).await;
        assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    }
    assert_eq!(metric(&world, "connections_refused_total"), 2 * CONNECTIONS as i64);
    assert_eq!(metric(&world, "connections_evicted_total"), 0);
    for socket in &mut sockets {
        socket.publish("a", json!(1)).await;
    }
    // A place that is given up is free again.
    sockets.pop();
    until_metric(&world, "connections", CONNECTIONS as i64 - 1).await;
    is_healthy(&world).await;
    world.stop().await;
}
