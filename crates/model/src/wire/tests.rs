use std::collections::BTreeMap;

use super::server::{self, Context};
use super::*;
use crate::{Event, EventId, EventMeta, Offset};

const CLIENT: &str = include_str!("../../../../fixtures/protocol/client.jsonl");
const SERVER: &str = include_str!("../../../../fixtures/protocol/server.jsonl");
const ID: &str = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f";

fn id() -> EventId {
    ID.parse().unwrap()
}

#[test]
fn golden_client_frames_are_understood() {
    let frames: Vec<_> = CLIENT.lines().map(ClientFrame::read).collect();
    assert!(frames.iter().all(|(_, frame)| frame.is_ok()), "{frames:?}");
    let corr: Vec<_> = frames.iter().map(|(corr, _)| corr.map_or("", |corr| corr.get())).collect();
    assert_eq!(
        corr,
        ["\"1\"", "", "\"2\"", "", "7", "\"3\"", "", "\"4\"", "", "\"5\"", "", "", "", "", "\"6\"", "\"7\""]
    );
    let (_, Ok(ClientFrame::Publish(item))) = &frames[2] else { panic!("{:?}", frames[2]) };
    assert_eq!((&*item.topic, item.payload.get()), ("a.b", r#"{"n":1.50}"#));
    let opts = &item.opts;
    assert_eq!((opts.id, opts.ts, opts.key.as_deref()), (Some(id()), Some(5), Some("k")));
    assert_eq!((opts.expected_offset, opts.expected_key_offset), (Some(Offset(0)), Some(None)));
    let (_, Ok(ClientFrame::Publish(item))) = &frames[3] else { panic!("{:?}", frames[3]) };
    assert_eq!((item.payload.get(), item.opts.expected_key_offset), ("null", None));
    let (_, Ok(ClientFrame::PublishMany(items))) = &frames[4] else { panic!("{:?}", frames[4]) };
    assert_eq!(items.iter().map(|item| &*item.topic).collect::<Vec<_>>(), ["a.b", "c"]);
    let (_, Ok(ClientFrame::Subscribe { topic, batch: false, opts, .. })) = &frames[5] else {
        panic!("{:?}", frames[5])
    };
    assert_eq!((&**topic, opts.ts, opts.max_in_flight), ("a.*", Some(9), Some(20)));
    assert_eq!(opts.filter.map(|filter| filter.get()), Some(r#"{"key":"k"}"#));
    let (_, Ok(ClientFrame::Nack { ids, delay_ms: Some(50), reason, .. })) = &frames[10] else {
        panic!("{:?}", frames[10])
    };
    assert_eq!((&ids[..], reason.as_deref()), (&[ID.into()][..], Some("busy")));
}

#[test]
fn a_reason_is_a_text_or_the_json_of_another_value() {
    for (json, text) in
        [(r#""no \"stock\"""#, "no \"stock\""), (r#"{"code": 7}"#, r#"{"code": 7}"#), ("7", "7")]
    {
        let frame = format!(r#"{{"op":"NACK","topic":"t","group":"g","id":"x","reason":{json}}}"#);
        let (_, Ok(ClientFrame::Nack { reason, .. })) = ClientFrame::read(&frame) else { panic!("{frame}") };
        assert_eq!(reason.as_deref(), Some(text));
    }
}

#[test]
fn every_op_has_a_golden_frame_that_names_it() {
    let mut seen: Vec<Op> = Vec::new();
    for line in CLIENT.lines() {
        let sent: serde_json::Value = serde_json::from_str(line).unwrap();
        let op = ClientFrame::read(line).1.unwrap().op();
        assert_eq!(sent["op"], op.name(), "{line}");
        assert_eq!(Op::from_name(op.name()), Some(op));
        assert_eq!(Op::ALL[op as usize], op);
        seen.push(op);
    }
    for op in Op::ALL {
        assert!(seen.contains(&op), "add a frame with op {} to fixtures/protocol/client.jsonl", op.name());
    }
    assert_eq!(Op::from_name("publish"), None);
}

#[test]
fn an_unknown_op_is_answered_with_the_known_ones() {
    let error = ClientFrame::read(r#"{"op":"DANCE"}"#).1.unwrap_err().to_string();
    assert!(error.starts_with("unknown op `DANCE`; use AUTH, PUBLISH, "), "{error}");
    assert!(error.ends_with(", RESUME, FETCH or SEEK"), "{error}");
}

#[test]
fn golden_server_frames_are_written() {
    let headers = Some(BTreeMap::from([("a".to_owned(), "1".to_owned())]));
    let (partition, tags, sid) = (Some(3), Some(vec!["t".to_owned()]), Some("s".to_owned()));
    let most = EventMeta { partition, headers, tags, caused_by: Some(vec![id()]), sid };
    let (least, id) = (EventMeta::default(), id());
    let full = EventView {
        id: &id,
        ts: 1,
        topic: "a.b",
        offset: Offset(7),
        key: Some("k\n"),
        meta: &most,
        payload: br#"{"n":1.50}"#,
    };
    let bare = EventView { ts: -1, offset: Offset(0), key: None, meta: &least, payload: b"null", ..full };
    let reply = |corr| Reply { corr: server::raw(corr) };
    let written = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    };
    let context = |attempt, ack_deadline_ms| Context { attempt, ack_deadline_ms };
    let published = serde_json::json!({"id": ID, "offset": 3});
    let stale = serde_json::json!({"stale": true, "stale_ids": [ID]});
    let frames = [
        written(&|out| reply("\"1\"").ok(out)),
        written(&|out| Reply { corr: None }.ok_with(out, &serde_json::json!({}))),
        written(&|out| reply("7").ok_with(out, &published)),
        written(&|out| reply("\"2\"").err(out, "rate_limited", "too fast; wait \"a bit\"", Some(20))),
        written(&|out| Reply { corr: None }.err(out, "bad_json", "no", None)),
        written(&|out| server::event(out, "a.*", "g", &full, context(2, 30_000))),
        written(&|out| server::events(out, None, "a.b", "g", [(bare, context(1, 1000)); 2].into_iter())),
        written(&|out| server::rebalance(out, "a.b", "g", 4, &[1, 2], &[])),
        written(&|out| server::events(out, server::raw("\"7\""), "a.b", "g", std::iter::empty())),
        written(&|out| reply("\"8\"").ok_with(out, &stale)),
    ];
    assert_eq!(frames.to_vec(), SERVER.lines().collect::<Vec<_>>());
}

#[test]
fn an_event_is_written_as_the_model_writes_it() {
    let frame: serde_json::Value = serde_json::from_str(SERVER.lines().nth(5).unwrap()).unwrap();
    let event: Event = serde_json::from_value(frame["event"].clone()).unwrap();
    let mut out = Vec::new();
    let view = EventView {
        id: &event.id,
        ts: event.ts,
        topic: event.topic.as_str(),
        offset: event.offset,
        key: event.key.as_deref(),
        meta: &event.meta(),
        payload: event.payload.get().as_bytes(),
    };
    server::event_json(&mut out, &view);
    assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(&event).unwrap());
}

#[test]
fn wrong_frames_say_what_is_wrong_and_keep_their_corr() {
    for (text, code, corr) in [
        ("", "bad_json", None),
        ("[1]", "bad_request", None),
        (r#"["AUTH"]"#, "bad_request", None),
        (r#"{"op":"SUBSCRIBE","topic":"a","group":"g","opts":["latest"]}"#, "bad_request", None),
        (r#"{"op":"PUBLISH","events":[["a",1]]}"#, "bad_request", None),
        ("{\"op\":\"ACK\"", "bad_json", None),
        (r#"{"corr":1}"#, "bad_request", Some("1")),
        (r#"{"op":7,"corr":"x"}"#, "bad_request", Some("\"x\"")),
        (r#"{"op":"DANCE","corr":"x"}"#, "unknown_op", Some("\"x\"")),
        (r#"{"op":"PUBLISH","topic":"a","corr":"x"}"#, "bad_request", Some("\"x\"")),
        (r#"{"op":"PUBLISH","payload":1}"#, "bad_request", None),
        (
            r#"{"op":"PUBLISH","topic":"a","payload":1,"opts":{"kee":1},"corr":"x"}"#,
            "bad_request",
            Some("\"x\""),
        ),
        (r#"{"op":"PUBLISH","topic":"a","payload":1,"opts":{"id":"no"}}"#, "bad_request", None),
        (r#"{"op":"PUBLISH","topic":"a","payload":1,"events":[]}"#, "bad_request", None),
        (r#"{"op":"SUBSCRIBE","topic":"a","corr":"x"}"#, "bad_request", Some("\"x\"")),
        (r#"{"op":"SUBSCRIBE","topic":"a","group":"g","opts":{"form":"latest"}}"#, "bad_request", None),
        (r#"{"op":"ACK","topic":"a","group":"g"}"#, "bad_request", None),
        (r#"{"op":"ACK","topic":"a","group":"g","id":"1","ids":["2"]}"#, "bad_request", None),
        (r#"{"op":"ACK","topic":"a","topic":"b","group":"g","id":"1"}"#, "bad_request", None),
    ] {
        let (echoed, frame) = ClientFrame::read(text);
        assert_eq!(frame.unwrap_err().code(), code, "{text}");
        assert_eq!(echoed.map(|corr| corr.get()), corr, "{text}");
    }
    let long = format!(r#"{{"op":"AUTH","corr":"{}"}}"#, "x".repeat(300));
    assert_eq!(ClientFrame::read(&long).1.unwrap_err().code(), "bad_request");
}
