use promethean_model::{EventId, Offset};
use promethean_store::port::EventBody;
use proptest::prelude::*;

use super::*;

fn event(key: Option<&str>, meta: &[u8]) -> StoredEvent {
    let body = EventBody { key: key.map(str::as_bytes), meta, payload: b"1" };
    StoredEvent::new("a".parse().unwrap(), Offset(0), EventId::from_bytes([0; 16]), 0).with_body(body)
}

fn with(headers: &[(&str, &str)], tags: &[&str]) -> Vec<u8> {
    let own = |text: &&str| (*text).to_owned();
    let meta = EventMeta {
        headers: Some(headers.iter().map(|(name, value)| (own(name), own(value))).collect()),
        tags: Some(tags.iter().map(own).collect()),
        ..EventMeta::default()
    };
    let mut bytes = Vec::new();
    meta.encode(&mut bytes);
    bytes
}

#[test]
fn kinds_all_hold_values_one_does() {
    let full = with(&[("r", "eu"), ("k", "new")], &["hot", "x"]);
    let check = |json: &str, passes: bool| {
        let filter = Filter::from_json(json).unwrap();
        assert_eq!(filter.matches(&event(Some("host:1"), &full)), passes, "{json}");
    };
    check("{}", true);
    check(r#"{"key":"host:1"}"#, true);
    check(r#"{"key":["other","host:1"]}"#, true);
    check(r#"{"key":"host:"}"#, false);
    check(r#"{"keyPrefix":"host:"}"#, true);
    check(r#"{"keyPrefix":["a","host:"]}"#, true);
    check(r#"{"key":"host:1","keyPrefix":"b"}"#, false);
    check(r#"{"headers":{"r":"eu"}}"#, true);
    check(r#"{"headers":{"r":["us","eu"],"k":"new"}}"#, true);
    check(r#"{"headers":{"r":"eu","k":"old"}}"#, false);
    check(r#"{"headers":{"absent":"eu"}}"#, false);
    check(r#"{"tags":"hot"}"#, true);
    check(r#"{"tags":["cold","x"]}"#, true);
    check(r#"{"tags":"cold"}"#, false);
    check(r#"{"tags":"hot","headers":{"r":"us"}}"#, false);
}

#[test]
fn what_an_event_lacks_does_not_pass() {
    let bare = event(None, &[]);
    for filter in [
        Filter::default().key("k"),
        Filter::default().key_prefix(""),
        Filter::default().header("h", ""),
        Filter::default().tag("t"),
    ] {
        assert!(!filter.matches(&bare), "{filter:?}");
    }
    assert!(Filter::default().matches(&bare) && Filter::default().is_empty());
    assert!(Filter::default().key_prefix("").matches(&event(Some("k"), &[])));
}

#[test]
fn meta_is_read_only_when_needed_and_never_hides_an_event() {
    let unreadable = event(Some("k"), &[99, 1]);
    assert!(Filter::default().key("k").matches(&unreadable));
    assert!(!Filter::default().key("x").tag("t").matches(&unreadable));
    assert!(Filter::default().tag("t").matches(&unreadable));
}

#[test]
fn refuses_and_says_why() {
    let check = |json: &str, part: &str| {
        let error = Filter::from_json(json).unwrap_err();
        assert_eq!(error.code(), "bad_filter");
        assert!(error.to_string().contains(part), "{json}: {error}");
    };
    check(r#"{"keys":"a"}"#, "unknown `keys`");
    check(r#"{"key":[]}"#, "`key` is an empty list");
    check(r#"{"headers":{"h":[]}}"#, "`headers.h` is an empty list");
    check(r#"{"headers":{"":"x"}}"#, "a header's name is empty");
    check(r#"{"key":1}"#, "`key` must be a text");
    check(r#"{"headers":["a"]}"#, "`headers` must be an object");
    check("[]", "must be an object");
    assert!(serde_json::from_str::<Filter>("[]").is_err());
    let many: Vec<String> = (0..65).map(|n| n.to_string()).collect();
    check(&serde_json::json!({ "tags": many }).to_string(), "65 values; give at most 64");
    check(&serde_json::json!({ "key": "k".repeat(1025) }).to_string(), "over 1024 bytes");
}

#[test]
fn one_value_is_written_plainly() {
    let filter = Filter::default().key("k").tag("b").tag("a").header("h", "v");
    let json = serde_json::to_string(&filter).unwrap();
    assert_eq!(json, r#"{"key":"k","headers":{"h":"v"},"tags":["a","b"]}"#);
    assert_eq!(Filter::from_json(&json).unwrap(), filter);
    assert_eq!(Filter::from_json(r#"{"tags":["b","a","b"]}"#).unwrap(), Filter::default().tag("a").tag("b"));
    assert_eq!(serde_json::to_string(&Filter::default()).unwrap(), "{}");
}

proptest! {
    #[test]
    fn json_round_trips(keys in proptest::collection::vec(any::<String>(), 0..4), name in "[a-z]{1,4}", tag in any::<String>()) {
        let filter = keys.into_iter().fold(Filter::default().tag(tag).header(name, "v"), Filter::key);
        let json = serde_json::to_string(&filter).unwrap();
        prop_assert_eq!(serde_json::from_str::<Filter>(&json).unwrap(), filter);
    }
}
