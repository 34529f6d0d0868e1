use std::collections::BTreeSet;

use promethean_model::wire::{ClientFrame, Op, PublishItem};
use serde_json::{Value, json};

use super::decode::ServerFrame;
use super::encode::{self, FrameMark};

const CLIENT: &str = include_str!("../../../../fixtures/protocol/client.jsonl");
const SERVER: &str = include_str!("../../../../fixtures/protocol/server.jsonl");
/// Frames of a newer server: fields named `unknown` are ignored.
const NEWER: &str = include_str!("../../../../fixtures/protocol/server-newer.jsonl");
/// Frames with an `op` that no client knows.
const UNKNOWN: &str = include_str!("../../../../fixtures/protocol/server-unknown.jsonl");

/// Encodes the content of a golden frame with the functions that the client sends frames with.
fn encode_again(line: &str) -> String {
    let sent: Value = serde_json::from_str(line).unwrap();
    let (_, frame) = ClientFrame::read(line);
    let about = |op: Op| encode::about(op, sent["topic"].as_str().unwrap(), sent["group"].as_str().unwrap());
    let mut text = match frame.unwrap() {
        ClientFrame::Auth { token } => encode::auth(token.as_deref()),
        ClientFrame::Publish(PublishItem { topic, payload, opts }) => {
            encode::publish(&topic, payload.get(), &opts)
        }
        ClientFrame::PublishMany(items) => {
            let topic = sent["topic"].as_str();
            let items: Vec<_> =
                items.iter().map(|item| (&*item.topic, item.payload.get(), item.opts.clone())).collect();
            let items = items
                .into_iter()
                .map(|(name, payload, opts)| (if Some(name) == topic { "" } else { name }, payload, opts));
            encode::publish_many(items, topic)
        }
        ClientFrame::Subscribe { batch, opts, .. } => {
            let mut text = about(Op::Subscribe);
            if sent.get("opts").is_some() {
                encode::field(&mut text, "opts", &opts);
            }
            if batch {
                encode::field(&mut text, "batch", &batch);
            }
            text
        }
        frame => about(frame.op()),
    };
    // Fields of single ops, as `consume` and `core` add them.
    for name in ["id", "reason", "delay_ms", "extend_ms", "max", "wait_ms"] {
        if let Some(value) = sent.get(name) {
            encode::field(&mut text, name, value);
        }
    }
    if let Some(ids) = sent.get("ids").and_then(Value::as_array) {
        let ids: Vec<_> = ids.iter().map(|id| id.as_str().unwrap().parse().unwrap()).collect();
        encode::ids(&mut text, ids.iter());
    }
    if sent["op"] == "SEEK" {
        let (_, Ok(ClientFrame::Seek(_, opts))) = ClientFrame::read(line) else { panic!("{line}") };
        encode::field(&mut text, "opts", &opts);
    }
    if let Some(corr) = sent.get("corr") {
        encode::field(&mut text, "corr", corr);
    }
    text.push('}');
    text
}

#[test]
fn frames_that_the_client_encodes_are_the_golden_ones() {
    for line in CLIENT.lines() {
        let (again, golden): (Value, Value) =
            (serde_json::from_str(&encode_again(line)).unwrap(), serde_json::from_str(line).unwrap());
        assert_eq!(again, golden);
        assert!(ClientFrame::read(&encode_again(line)).1.is_ok());
    }
}

/// Takes the fields named `unknown` out.
fn without_unknown(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("unknown");
            fields.values_mut().for_each(without_unknown);
        }
        Value::Array(items) => items.iter_mut().for_each(without_unknown),
        _ => {}
    }
}

#[test]
fn golden_frames_of_the_server_decode_to_their_content() {
    let mut ops = BTreeSet::new();
    for line in SERVER.lines().chain(NEWER.lines()) {
        let mut golden: Value = serde_json::from_str(line).unwrap();
        without_unknown(&mut golden);
        ops.insert(golden["op"].as_str().unwrap().to_owned());
        match ServerFrame::read(line).unwrap() {
            ServerFrame::Ok(fields) => {
                assert_eq!(fields.offset, golden["offset"].as_u64());
                assert_eq!(fields.id.map(|id| id.to_string()).as_deref(), golden["id"].as_str());
                let number = golden["corr"].as_u64().map(FrameMark::Publish);
                assert_eq!(fields.corr.0, number);
                assert_eq!(fields.stale, golden["stale"].as_bool());
                assert_eq!(json!(fields.stale_ids), golden["stale_ids"]);
            }
            ServerFrame::Err(fields) => {
                assert_eq!(fields.error.code(), golden["code"].as_str().unwrap());
                assert_eq!(fields.error.message(), golden["msg"].as_str().unwrap());
                let wait = fields.error.retry_after().map(|wait| wait.as_millis() as u64);
                assert_eq!(wait, golden["retry_after_ms"].as_u64());
                assert!(fields.error.details().is_empty(), "{:?}", fields.error);
            }
            ServerFrame::Events(fields) => {
                assert_eq!((&*fields.topic, &*fields.group), (golden["topic"].as_str().unwrap(), "g"));
                let golden: Vec<Value> = match golden.get("events") {
                    Some(events) => events.as_array().unwrap().clone(),
                    None => vec![golden],
                };
                assert_eq!(fields.events.len(), golden.len());
                for (delivery, golden) in fields.events.iter().zip(golden) {
                    let event = &golden["event"];
                    assert_eq!(delivery.event.payload.get().parse::<Value>().unwrap(), event["payload"]);
                    assert_eq!(delivery.event.key.as_deref(), event["key"].as_str());
                    assert_eq!(delivery.event.id.to_string(), event["id"].as_str().unwrap());
                    assert_eq!(Some(delivery.event.ts), event["ts"].as_i64());
                    assert_eq!(Some(delivery.event.offset), event["offset"].as_u64());
                    assert_eq!(delivery.event.topic, event["topic"].as_str().unwrap());
                    assert_eq!(serde_json::to_value(delivery.ctx).unwrap(), golden["ctx"]);
                    assert_eq!(delivery.event.headers.is_some(), event.get("headers").is_some());
                }
            }
            ServerFrame::Rebalance(fields) => {
                assert_eq!((fields.epoch, fields.assigned, fields.revoked), (4, vec![1, 2], vec![]));
            }
        }
    }
    assert_eq!(ops.into_iter().collect::<Vec<_>>(), ["ERR", "EVENT", "EVENTS", "OK", "REBALANCE"]);
}

#[test]
fn unknown_fields_are_ignored_and_fields_come_in_any_order() {
    let text = r#"{"new":{"a":[1]},"corr":7,"ts":1,"offset":3,"op":"OK","durability":"fsync"}"#;
    let ServerFrame::Ok(fields) = ServerFrame::read(text).unwrap() else { panic!() };
    assert_eq!((fields.corr.0, fields.offset), (Some(FrameMark::Publish(7)), Some(3)));
    let text = r#"{"op":"EVENT","topic":"t","group":"g","new":1,"event":{"id":"017f22e2-79b0-7cc3-98c4-dc0c0c07398f","ts":1,"topic":"t","offset":7,"payload":5,"colour":"red"},"ctx":{"attempt":2,"ack_deadline_ms":30000,"more":true}}"#;
    let ServerFrame::Events(fields) = ServerFrame::read(text).unwrap() else { panic!() };
    assert_eq!((fields.events[0].event.payload.get(), fields.events[0].ctx.attempt), ("5", 2));
}

#[test]
fn golden_frames_with_unknown_ops_are_reported() {
    assert!(UNKNOWN.lines().count() >= 6);
    for line in UNKNOWN.lines() {
        let error = ServerFrame::read(line).unwrap_err();
        assert!(error.is("unknown_op"), "{line}: {error:?}");
    }
}

#[test]
fn unknown_ops_and_broken_frames_are_reported() {
    let code = |text: &str| ServerFrame::read(text).unwrap_err();
    assert!(code(r#"{"op":"DANCE","corr":1}"#).is("unknown_op"));
    assert!(code(r#"{"op":"DANCE"}"#).message().contains("DANCE"));
    assert!(code("{").is("bad_json"));
    assert!(code("[]").is("unknown_op"));
    assert!(code(r#"{"op":"OK""#).is("bad_json"));
}

#[test]
fn marks_of_other_clients_are_not_known() {
    for corr in ["\"2\"", "null", "-1", "1.5", "true", "[1]", "{\"a\":1}", "\"x7\""] {
        let text = format!(r#"{{"op":"OK","corr":{corr}}}"#);
        let ServerFrame::Ok(fields) = ServerFrame::read(&text).unwrap() else { panic!() };
        assert_eq!(fields.corr.0, None, "{corr}");
    }
    let mut text = String::from(r#"{"op":"OK""#);
    encode::end(&mut text, FrameMark::Request(9));
    let ServerFrame::Ok(fields) = ServerFrame::read(&text).unwrap() else { panic!() };
    assert_eq!(fields.corr.0, Some(FrameMark::Request(9)));
}
