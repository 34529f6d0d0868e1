//! Each rule with a run that keeps it and one that breaks it.

use super::*;

/// A publish by producer `p`: the payload is the id's own bytes.
fn event(topic: &str, id: &str) -> Invocation {
    Invocation {
        producer: "p".into(),
        topic: topic.into(),
        id: id.into(),
        key: Some("k".into()),
        payload: payload_hash(id.as_bytes()),
        batch: None,
    }
}

fn in_batch(topic: &str, id: &str) -> Invocation {
    Invocation { batch: Some("b".into()), ..event(topic, id) }
}

/// Topics as readers saw them, from `topic: id id id`; `topic@5: ...` starts at offset 5, `topic+: ...` is compacted and
/// `_` is a hole.
fn seen(topics: &[&str]) -> ObservedTopics {
    let parse = |line: &&str| {
        let (head, ids) = line.split_once(':').unwrap();
        let compacted = head.ends_with('+');
        let (topic, earliest) = head.trim_end_matches('+').split_once('@').unwrap_or((head, "0"));
        let topic = topic.trim_end_matches('+');
        let earliest = earliest.parse().unwrap();
        let event =
            |(i, id): (usize, &str)| ObservedEvent::new(earliest + i as u64, id, Some("k"), id.as_bytes());
        let events = ids.split_whitespace().enumerate().filter(|(_, id)| *id != "_").map(event).collect();
        (topic.to_owned(), ObservedTopic { earliest, compacted, events })
    };
    topics.iter().map(parse).collect()
}

/// A ledger of `id=outcome` words for topic `t`: an offset, `fail`, `unknown`, or nothing at all.
fn ledger(words: &str) -> Ledger {
    let ledger = Ledger::new();
    for word in words.split_whitespace() {
        let (id, outcome) = word.split_once('=').unwrap();
        let op = ledger.record_invoked(event("t", id));
        match outcome {
            "" => {}
            "fail" => ledger.record_fail(op),
            "unknown" => ledger.record_unknown(op),
            offset => ledger.record_ok(op, offset.parse().unwrap()),
        }
    }
    ledger
}

/// What the check prints, up to each first colon: the kinds of violation, sorted.
fn verdict(ledger: &Ledger, observed: &ObservedTopics) -> String {
    let kind = |violation: &Violation| violation.to_string().split(':').next().unwrap().to_owned();
    match ledger.check(observed) {
        Ok(_) => "ok".into(),
        Err(found) => {
            let mut kinds: Vec<String> = found.iter().map(kind).collect();
            kinds.sort();
            kinds.join(", ")
        }
    }
}

fn check(words: &str, topics: &[&str], expected: &str) {
    assert_eq!(verdict(&ledger(words), &seen(topics)), expected, "{words} seen as {topics:?}");
}

#[test]
fn an_acknowledged_event_is_there_once_at_its_offset() {
    check("a=0 b=1", &["t: a b"], "ok");
    check("a=0 b=1", &["t: a"], "lost");
    check("a=0", &[], "lost");
    check("a=1 b=0", &["t: b a"], "out of order");
    check("a=0 b=2 c=", &["t: a b c"], "moved");
    check("a=0", &["t: a a"], "duplicated");
}

#[test]
fn retention_may_drop_acknowledged_events_below_the_earliest_only() {
    check("a=0 b=1 c=2", &["t@2: c"], "ok");
    check("a=0 b=1 c=2", &["t@1: c"], "lost, moved");
}

#[test]
fn bytes_are_the_published_ones() {
    let ledger = ledger("a=0");
    for (key, payload) in [(Some("k"), "x"), (Some("other"), "a"), (None, "a")] {
        let events = vec![ObservedEvent::new(0, "a", key, payload.as_bytes())];
        let observed =
            ObservedTopics::from([("t".to_owned(), ObservedTopic { events, ..ObservedTopic::default() })]);
        assert_eq!(verdict(&ledger, &observed), "changed");
    }
}

#[test]
fn a_refused_event_is_not_there() {
    check("a=fail b=0", &["t: b"], "ok");
    check("a=fail b=1", &["t: a b"], "not refused");
}

#[test]
fn an_unknown_event_is_there_at_most_once() {
    for outcome in ["a=unknown", "a="] {
        check(outcome, &["t: a"], "ok");
        check(outcome, &["t:"], "ok");
        check(outcome, &["t: a a"], "duplicated");
    }
}

#[test]
fn nothing_is_there_that_was_never_invoked() {
    check("a=0", &["t: a x"], "invented");
    check("a=0", &["t: a", "u: a"], "invented");
}

#[test]
fn offsets_have_no_gaps() {
    let ledger = ledger("a=0 b=2");
    let mut observed = seen(&["t: a b"]);
    observed.get_mut("t").unwrap().events[1].offset = 2;
    assert_eq!(verdict(&ledger, &observed), "gap");
    let mut observed = seen(&["t: a"]);
    observed.get_mut("t").unwrap().events.clear();
    assert_eq!(verdict(&self::ledger("a=unknown"), &observed), "ok");
}

#[test]
fn a_producers_order_is_kept() {
    check("a=unknown b=0", &["t: b"], "ok");
    check("a=unknown b=", &["t: a b"], "ok");
    check("a=unknown b=", &["t: b a"], "out of order");
    let two = Ledger::new();
    two.record_invoked(event("t", "a"));
    two.record_invoked(Invocation { producer: "q".into(), ..event("t", "b") });
    assert_eq!(verdict(&two, &seen(&["t: b a"])), "ok", "producers do not wait for each other");
}

#[test]
fn a_retry_explains_a_later_place() {
    check("a=unknown b=0 a=1", &["t: b a"], "ok");
    check("a=unknown b=1 a=0", &["t: a b"], "ok");
    check("a=fail b=0 a=1", &["t: b a"], "ok");
    check("a=unknown b=0 a=fail", &["t: b a"], "out of order");
    check("a=0 a=1 b=", &["t: a b"], "two acks");
}

#[test]
fn a_retry_with_other_bytes_is_a_different_matter() {
    let ledger = ledger("a=unknown");
    let other = Invocation { payload: 1, ..event("t", "a") };
    let op = ledger.record_invoked(other.clone());
    ledger.record_fail(op);
    assert_eq!(verdict(&ledger, &seen(&["t: a"])), "ok", "the conflict was refused");
    let op = ledger.record_invoked(other);
    ledger.record_ok(op, 0);
    assert_eq!(verdict(&ledger, &seen(&["t: a"])), "changed", "acknowledged as if it were the same");
}

#[test]
fn a_batch_is_whole_over_all_topics() {
    let ledger = Ledger::new();
    for (topic, id) in [("t", "a"), ("t", "b"), ("u", "c")] {
        ledger.record_invoked(in_batch(topic, id));
    }
    assert_eq!(verdict(&ledger, &seen(&["t: a b", "u: c"])), "ok");
    assert_eq!(verdict(&ledger, &seen(&["t:", "u:"])), "ok");
    assert_eq!(verdict(&ledger, &seen(&["t: a b"])), "torn");
    assert_eq!(verdict(&ledger, &seen(&["t: a", "u: c"])), "torn");
    assert_eq!(verdict(&ledger, &seen(&["t: a b", "u@9:"])), "ok", "retention may have dropped it");
}

#[test]
fn a_ledger_that_makes_no_sense_is_said_so() {
    let ledger = ledger("a=0");
    ledger.record_ok(1, 0);
    ledger.record_fail(77);
    assert_eq!(verdict(&ledger, &seen(&["t: a"])), "malformed ledger, malformed ledger");
}

#[test]
fn the_summary_counts_events_not_tries() {
    let summary = ledger("a=0 b=1 c=fail d=unknown e= b=1").check(&seen(&["t@1: b d"])).unwrap();
    let expected = Summary { ok: 1, ok_dropped: 1, failed: 1, unknown_present: 1, unknown_absent: 1 };
    assert_eq!(summary, expected);
}

#[test]
fn json_lines_go_there_and_back_and_a_torn_last_line_is_passed_over() {
    let ledger = ledger("a=0 b=fail c=unknown d=");
    ledger.record_invoked(in_batch("t", "e"));
    let mut lines = Vec::new();
    for entry in ledger.entries() {
        Ledger::write_json_line(&mut lines, &entry).unwrap();
    }
    assert_eq!(Ledger::from_json_lines(&lines[..]).unwrap().entries(), ledger.entries());
    let torn = Ledger::from_json_lines(&lines[..lines.len() - 5]).unwrap();
    assert_eq!(torn.entries(), ledger.entries()[..ledger.entries().len() - 1]);
    assert_eq!(torn.record_invoked(event("t", "f")), 5, "numbers go on");
    let broken = [b"{\"entry\":\"ok\"}\n", &lines[..]].concat();
    let error = Ledger::from_json_lines(&broken[..]).unwrap_err();
    assert!(error.to_string().starts_with("line 1 of the ledger"), "{error}");
}

#[test]
fn compaction_may_take_all_but_the_latest_of_a_key() {
    let run = ledger("a=0 b=1 c=2");
    assert_eq!(verdict(&run, &seen(&["t+: a b c"])), "ok");
    assert_eq!(verdict(&run, &seen(&["t+: _ _ c"])), "ok");
    assert_eq!(verdict(&run, &seen(&["t+: a _ c"])), "ok");
    assert_eq!(verdict(&run, &seen(&["t: _ _ c"])), "gap, lost, lost", "only where it is told to");
    assert_eq!(verdict(&run, &seen(&["t+: a b _"])), "lost", "the latest must be there");
    assert_eq!(verdict(&run, &seen(&["t+: c _ _"])), "lost, lost, moved", "offsets never change");
}

#[test]
fn a_tombstone_takes_the_key_with_it() {
    let buried = |last: &str| {
        let run = ledger("a=0");
        let op = run.record_invoked(Invocation { payload: payload_hash(b"null"), ..event("t", "null") });
        match last {
            "unknown" => run.record_unknown(op),
            "fail" => run.record_fail(op),
            offset => run.record_ok(op, offset.parse().unwrap()),
        }
        run
    };
    for (last, expected) in [("1", "ok"), ("unknown", "ok"), ("fail", "lost")] {
        assert_eq!(verdict(&buried(last), &seen(&["t+: "])), expected, "{last}");
    }
    let revived = buried("1");
    let op = revived.record_invoked(event("t", "b"));
    revived.record_ok(op, 2);
    assert_eq!(verdict(&revived, &seen(&["t+: _ _ b"])), "ok");
    assert_eq!(verdict(&revived, &seen(&["t+: _ _ _"])), "lost", "it came after the tombstone");
}

#[test]
fn a_batch_is_not_torn_by_compaction() {
    let run = Ledger::new();
    for (topic, id) in [("t", "a"), ("u", "b")] {
        run.record_unknown(run.record_invoked(in_batch(topic, id)));
    }
    run.record_ok(run.record_invoked(event("t", "c")), 1);
    assert_eq!(verdict(&run, &seen(&["t+: _ c", "u: b"])), "ok");
    assert_eq!(verdict(&run, &seen(&["t: c", "u: b"])), "moved, torn");
}
