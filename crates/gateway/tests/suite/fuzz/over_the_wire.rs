//! Random frames and bodies, sent to a gateway: every one is answered, none with a failure of the server, and
//! afterwards the server is as healthy as before.

use futures_util::SinkExt;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use super::{FRAMES, Inputs, PAYLOADS, SCHEMAS};
use crate::suite::http::client::Client as HttpClient;
use crate::suite::world::{World, soon};

const BODIES: &[&str] = &[
    "{\"payload\":1}\n{\"payload\":{\"a\":2},\"opts\":{\"key\":\"k\",\"tags\":[\"t\"]}}\n",
    r#"{"retention":{"age":"30d","count":5},"partitions":8,"max_attempts":5}"#,
    r#"{"to":"ts","ts":5,"dryRun":true}"#,
    r#"{"ids":["017f22e2-79b0-7cc3-98c4-dc0c0c07398f"],"to":"group"}"#,
];
const ROUTES: &[(&str, &str)] = &[
    ("POST", "/publish/a"),
    ("POST", "/publish/a/batch"),
    ("PUT", "/topics/b"),
    ("POST", "/schemas/c?force=1"),
    ("POST", "/groups/g/seek?topic=a"),
    ("POST", "/dlq/redrive?topic=a&group=g"),
    ("POST", "/dlq/drop?topic=a&group=g"),
];

#[tokio::test]
async fn bodies() {
    let world = World::new().await;
    let mut client = HttpClient::http1(world.address()).await;
    let mut inputs = Inputs::new("bodies", [BODIES, PAYLOADS, SCHEMAS].concat());
    while let Some(input) = inputs.next() {
        let (method, path) = *inputs.rng().choose(ROUTES).unwrap();
        let answer = soon(path, client.send(method, path, &[], input)).await;
        let status = answer.status.as_u16();
        assert!((200..500).contains(&status), "{method} {path}: {status} {}", answer.text());
    }
    assert_eq!(client.send("GET", "/health", &[], "").await.status, 200);
    inputs.finish();
    world.stop().await;
}

#[tokio::test]
async fn messages() {
    let world = World::new().await;
    let mut client = world.ws().await;
    let mut inputs = Inputs::new("messages", FRAMES.lines());
    let mut number = 0;
    while let Some(input) = inputs.next() {
        let Ok(text) = String::from_utf8(input) else { continue };
        client.socket.send(Message::text(text)).await.unwrap();
        // The answer to this frame shows that the connection still works.
        number += 1;
        let after = format!("after {number}");
        client.send(json!({"op": "AUTH", "corr": after})).await;
        loop {
            let reply = client.next().await;
            assert_ne!(reply["code"], "internal", "{reply}");
            if reply["corr"] == after {
                break;
            }
        }
    }
    assert_eq!(world.get("/health").await.status, 200);
    inputs.finish();
    world.stop().await;
}
