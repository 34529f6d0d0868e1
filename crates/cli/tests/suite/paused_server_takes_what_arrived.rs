//! A server that is stopped and continued takes the acks that arrived meanwhile.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::running_server::RunningServer;

const EVENTS: usize = 20;

type Socket = WebSocketStream<TcpStream>;

async fn connect(server: &RunningServer) -> Socket {
    let stream = TcpStream::connect(server.address()).await.unwrap();
    client_async(format!("ws://{}/", server.address()), stream).await.unwrap().0
}

async fn send(socket: &mut Socket, frame: Value) {
    socket.send(Message::text(frame.to_string())).await.unwrap();
}

async fn next(socket: &mut Socket) -> Value {
    let wait = async {
        loop {
            match socket.next().await.unwrap().unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap()
}

/// Row 23 of the faults that the server must stand: SIGSTOP. The leases run out during the pause, and every event has
/// one attempt; the acks were sent during the pause, before and after that.
#[tokio::test]
async fn row_23_a_paused_server_takes_the_acks_that_arrived() {
    let dir = tempfile::tempdir().unwrap();
    let server = RunningServer::in_memory(dir.path(), &[]);
    let lines: Vec<String> = (0..EVENTS).map(|n| json!({"payload": n}).to_string()).collect();
    server.ask("POST", "/publish/a/batch", &lines.join("\n"));
    let mut socket = connect(&server).await;
    let opts = json!({"from": "earliest", "maxAttempts": 1, "ackTimeoutMs": 1_000});
    for round in 0..3 {
        let group = format!("g{round}");
        let subscribe = json!({"op": "SUBSCRIBE", "topic": "a", "group": group, "opts": opts});
        send(&mut socket, subscribe).await;
        assert_eq!(next(&mut socket).await["op"], "OK");
        let mut ids = Vec::new();
        while ids.len() < EVENTS {
            let frame = next(&mut socket).await;
            assert_eq!(frame["op"], "EVENT", "{frame}");
            ids.push(frame["event"]["id"].as_str().unwrap().to_owned());
        }
        server.signal("STOP");
        for (n, id) in ids.iter().enumerate() {
            if n == EVENTS / 2 {
                // The pause must outlast the leases.
                sleep_until(Instant::now() + Duration::from_millis(2_500)).await;
            }
            let ack = json!({"op": "ACK", "topic": "a", "group": group, "id": id, "corr": id});
            send(&mut socket, ack).await;
        }
        server.signal("CONT");
        let mut answered = BTreeSet::new();
        while answered.len() < EVENTS {
            let frame = next(&mut socket).await;
            assert_eq!((frame["op"].as_str(), frame.get("stale")), (Some("OK"), None), "{frame}");
            answered.insert(frame["corr"].as_str().unwrap().to_owned());
        }
        let lag: Value =
            serde_json::from_str(&server.ask("GET", &format!("/lag?topic=a&group={group}"), "")).unwrap();
        assert_eq!(lag["lag"], 0, "{lag}");
        let topics = server.ask("GET", "/topics", "");
        assert!(!topics.contains("a.dlq"), "{topics}");
    }
    // The connection lives on.
    send(&mut socket, json!({"op": "PUBLISH", "topic": "b", "payload": 1, "corr": "p"})).await;
    assert_eq!(next(&mut socket).await["op"], "OK");
    drop(socket);
    server.stop();
}
