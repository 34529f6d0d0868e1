//! Every frame of `bad-frames.jsonl`, over WebSockets.

use std::collections::BTreeSet;

use futures_util::SinkExt;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;

use super::super::ws::client::Client;
use super::state::{seed, snapshot};
use super::witness::Witness;
use super::{expand, is_plain, unhex};
use crate::suite::world::{World, soon};

const CASES: &str = include_str!("../../../../../fixtures/protocol/bad-frames.jsonl");

/// A frame, a text or bytes on the wire, and the code of the answer or of the close.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    frame: Option<Value>,
    raw: Option<String>,
    hex: Option<String>,
    code: Option<String>,
    close: Option<u16>,
}

/// The field that is read of any frame.
#[derive(Debug, Deserialize)]
struct Head {
    corr: Option<Box<RawValue>>,
}

/// A connection with the subscription that the cases use.
async fn subscribed(world: &World) -> Client {
    let mut client = world.ws().await;
    client.subscribe("kept", "here", json!({"from": "latest"})).await;
    client
}

/// Compares the answer to a text with the case; the difference, if there is one.
async fn ask(client: &mut Client, text: String, code: &str, round: usize) -> Option<String> {
    // A `corr` that can be read must be echoed.
    let head = serde_json::from_str::<Head>(&text).ok().filter(|_| text.starts_with('{'));
    let corr = head.and_then(|head| head.corr).filter(|corr| corr.get().len() <= 256);
    let corr = corr.map(|corr| serde_json::from_str::<Value>(corr.get()).unwrap());
    client.socket.send(Message::text(text)).await.unwrap();
    // A reply to this frame shows that the connection still works.
    let after = json!({"op": "AUTH", "corr": format!("after {round}")});
    client.send(after.clone()).await;
    let (mut reply, mut on) = (client.next().await, client.next().await);
    // A PUBLISH is answered when it is committed, an AUTH at once, so their order can differ.
    if reply["corr"] == after["corr"] {
        std::mem::swap(&mut reply, &mut on);
    }
    if (&on["op"], &on["corr"]) != (&json!("OK"), &after["corr"]) {
        return Some(format!("{reply}, and then {on}"));
    }
    let said = reply["msg"].as_str().unwrap_or_default();
    let whole =
        reply["op"] == "ERR" && reply["code"] == code && (10..1_000).contains(&said.len()) && is_plain(said);
    let echoed = reply.get("corr") == corr.as_ref();
    (!whole || !echoed).then(|| reply.to_string())
}

/// The code that a connection is closed with after these bytes.
async fn closed_after(world: &World, bytes: &[u8]) -> u16 {
    let mut stream = world.ws().await.socket.into_inner();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    soon("the end", stream.read_to_end(&mut answer)).await.unwrap();
    match answer.as_slice() {
        [0x88, _, high, low, ..] => u16::from_be_bytes([*high, *low]),
        _ => 0,
    }
}

#[tokio::test]
async fn every_bad_frame_has_its_code() {
    let cases: Vec<Case> = CASES.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names.len(), cases.len(), "names are given once");
    let world = World::new().await;
    seed(&world).await;
    let mut client = subscribed(&world).await;
    let witness = Witness::start(&world).await;
    let before = snapshot(&world.bus).await;
    let mut wrong = Vec::new();
    for (round, case) in cases.iter().enumerate() {
        let text = case.frame.as_ref().map(Value::to_string).or_else(|| case.raw.as_deref().map(expand));
        let found = match (text, &case.hex, &case.code, case.close) {
            (Some(text), None, Some(code), None) => ask(&mut client, text, code, round).await,
            (None, Some(hex), None, Some(code)) => match closed_after(&world, &unhex(hex)).await {
                closed if closed == code => None,
                closed => Some(format!("closed with {closed}")),
            },
            _ => panic!("{case:?}"),
        };
        if let Some(found) = found {
            wrong.push(format!("{}: {:?}{:?}, but: {found}", case.name, case.code, case.close));
            // The next case starts with a fresh connection.
            client = world.ws().await;
            let again = json!({"op": "SUBSCRIBE", "topic": "kept", "group": "here"});
            client.ok(again).await;
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(snapshot(&world.bus).await, before, "something was written");
    assert!(witness.end().await > 100, "the witness was held up");
    assert!(cases.len() >= 1_000);
    world.stop().await;
}
