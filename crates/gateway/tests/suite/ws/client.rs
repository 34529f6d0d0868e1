//! A WebSocket client that sends and returns frames unchanged.

use std::net::SocketAddr;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::http::Request;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::suite::world::soon;

pub(in crate::suite) struct Client {
    pub(in crate::suite) socket: WebSocketStream<TcpStream>,
    corrs: u64,
}

impl Client {
    pub(in crate::suite) async fn connect(address: SocketAddr, token: Option<&str>) -> Result<Client, Error> {
        let mut request = Request::builder()
            .uri(format!("ws://{address}/"))
            .header("host", address.to_string())
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", generate_key());
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let stream = TcpStream::connect(address).await?;
        let (socket, _) = tokio_tungstenite::client_async(request.body(()).unwrap(), stream).await?;
        Ok(Client { socket, corrs: 0 })
    }

    pub(in crate::suite) async fn send(&mut self, frame: Value) {
        self.socket.send(Message::text(frame.to_string())).await.unwrap();
    }

    /// The next frame.
    pub(in crate::suite) async fn next(&mut self) -> Value {
        loop {
            match soon("a frame", self.socket.next()).await {
                Some(Ok(Message::Text(text))) => return serde_json::from_str(&text).unwrap(),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                other => panic!("not a frame: {other:?}"),
            }
        }
    }

    /// How the connection is closed; frames before that do not matter.
    pub(in crate::suite) async fn closed(&mut self) -> Option<CloseFrame> {
        loop {
            match soon("the end", self.socket.next()).await {
                Some(Ok(Message::Close(frame))) => return frame,
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return None,
            }
        }
    }

    pub(in crate::suite) async fn close_code(&mut self) -> u16 {
        self.closed().await.map_or(0, |frame| frame.code.into())
    }

    /// Sends a frame and waits for its reply; frames before the reply are dropped.
    pub(in crate::suite) async fn ask(&mut self, mut frame: Value) -> Value {
        self.corrs += 1;
        let corr = json!(format!("c{}", self.corrs));
        frame["corr"] = corr.clone();
        self.send(frame).await;
        loop {
            let reply = self.next().await;
            if reply["corr"] == corr {
                return reply;
            }
        }
    }

    /// As [`Client::ask`], and it must be OK.
    pub(in crate::suite) async fn ok(&mut self, frame: Value) -> Value {
        let reply = self.ask(frame.clone()).await;
        assert_eq!(reply["op"], "OK", "{frame} -> {reply}");
        reply
    }

    /// As [`Client::ask`], and it must be refused with this code.
    pub(in crate::suite) async fn refused(&mut self, frame: Value, code: &str) -> Value {
        let reply = self.ask(frame.clone()).await;
        assert_eq!((&reply["op"], &reply["code"]), (&json!("ERR"), &json!(code)), "{frame} -> {reply}");
        assert!(reply["msg"].as_str().is_some_and(|msg| msg.len() > 10), "{reply}");
        reply
    }

    pub(in crate::suite) async fn publish(&mut self, topic: &str, payload: Value) -> Value {
        self.ok(json!({"op": "PUBLISH", "topic": topic, "payload": payload})).await
    }

    pub(in crate::suite) async fn subscribe(&mut self, topic: &str, group: &str, opts: Value) {
        self.ok(json!({"op": "SUBSCRIBE", "topic": topic, "group": group, "opts": opts})).await;
    }

    /// The next delivery.
    pub(in crate::suite) async fn event(&mut self) -> Value {
        let frame = self.next().await;
        assert_eq!(frame["op"], "EVENT", "{frame}");
        frame
    }
}

/// A frame about a delivered event.
pub(in crate::suite) fn about(op: &str, event: &Value) -> Value {
    json!({"op": op, "topic": event["topic"], "group": event["group"], "id": event["event"]["id"]})
}
