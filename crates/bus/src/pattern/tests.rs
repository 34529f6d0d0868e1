use proptest::prelude::*;

use super::*;

fn subject(text: &str) -> Subject {
    text.parse().unwrap()
}

#[test]
fn matches_words() {
    let check = |pattern: &str, yes: &[&str], no: &[&str]| {
        for topic in yes {
            assert!(subject(pattern).matches(&topic.parse().unwrap()), "{pattern} {topic}");
        }
        for topic in no {
            assert!(!subject(pattern).matches(&topic.parse().unwrap()), "{pattern} {topic}");
        }
    };
    check(
        "a.*",
        &["a.b", "a.c:d", "a._x"],
        &["a", "a.b.c", "b.a", "a.dlq", "a.v1", "a.changed", "a.snapshot"],
    );
    check("a.**", &["a.b", "a.b.c", "a.dlq.b"], &["a", "b.a", "a.dlq", "a.b.dlq", "a.b.v7"]);
    check("**", &["a", "a.b", "dlq", "a.v01"], &["_alarms", "_a.b", "a.dlq"]);
    check("*", &["a", "v1"], &["a.b", "_a"]);
    check("*.b.*", &["a.b.c"], &["a.b", "a.c.c", "a.b.c.d", "_a.b.c", "a.b.dlq"]);
    check("a.dlq", &["a.dlq"], &["a", "a.dlq.b"]);
    check("a", &["a"], &["a.b", "b"]);
}

#[test]
fn refuses_and_says_why() {
    let check = |text: &str, part: &str| {
        let error = text.parse::<Pattern>().unwrap_err();
        assert_eq!(error.code(), "bad_pattern");
        assert!(error.to_string().contains(part), "{text}: {error}");
    };
    check("a.b*", "`b*` mixes it");
    check("a.***", "whole words");
    check("**.a", "not the last word");
    check("a.**.b", "not the last word");
    check("**.**", "not the last word");
    check("a.b", "neither");
    check("", "neither");
    check("A.*", "'A' at byte 0");
    check("a..*", "empty word at byte 2");
    check("*.", "empty word");
    check("_a.*", "name the topic itself");
    check("*.dlq", "name the topic itself");
    check("a.*.v3", "name the topic itself");
    check(&format!("{}.*", "x".repeat(179)), "181 bytes");
    assert_eq!("A".parse::<Subject>().unwrap_err().code(), "bad_name");
}

#[test]
fn a_topic_contains_no_pattern() {
    assert!(!subject("a.b").contains(&subject("a.*")));
    assert!(subject("a.dlq").contains(&subject("a.dlq")));
    assert!(!subject("a.*").contains(&subject("a.dlq")));
    assert!(subject("**").contains(&subject("a")));
    assert_eq!(subject("a").topic().map(TopicName::as_str), Some("a"));
    assert_eq!(subject("*").topic(), None);
}

#[test]
fn serde_goes_through_the_parser() {
    let read: Subject = serde_json::from_str("\"a.*\"").unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), "\"a.*\"");
    assert!(serde_json::from_str::<Subject>("\"a*\"").is_err());
}

/// Every topic of up to five words out of two that patterns name and one that they do not. Patterns of up to four words
/// that differ in what they match differ on one of these.
fn topics() -> Vec<TopicName> {
    let mut all = vec![String::new()];
    let mut last = all.clone();
    for _ in 0..5 {
        last =
            last.iter().flat_map(|start| ["a", "b", "fresh"].map(|word| format!("{start}.{word}"))).collect();
        all.extend(last.iter().cloned());
    }
    all.iter().skip(1).map(|text| text.trim_start_matches('.').parse().unwrap()).collect()
}

fn any_subject() -> impl Strategy<Value = Subject> {
    let word = proptest::sample::select(vec!["a", "b", "*"]);
    (proptest::collection::vec(word, 0..4), any::<bool>()).prop_filter_map("no words", |(mut words, many)| {
        if many {
            words.push("**");
        }
        words.join(".").parse().ok()
    })
}

proptest! {
    #[test]
    fn contains_is_what_enumeration_says((ours, theirs) in (any_subject(), any_subject())) {
        let counted = topics().iter().all(|topic| !theirs.matches(topic) || ours.matches(topic));
        prop_assert_eq!(ours.contains(&theirs), counted, "{} {}", ours, theirs);
    }

    #[test]
    fn contains_is_an_order(a in any_subject(), b in any_subject(), c in any_subject()) {
        prop_assert!(a.contains(&a));
        prop_assert!(!(a.contains(&b) && b.contains(&c)) || a.contains(&c));
        prop_assert!(!(a.contains(&b) && b.contains(&a)) || a == b);
    }

    #[test]
    fn arbitrary_text_never_panics(text in any::<String>(), stars in "[*.ab_]{0,10}") {
        for text in [text, stars] {
            if let Ok(subject) = text.parse::<Subject>() {
                prop_assert_eq!(subject.to_string(), text);
            }
        }
    }
}
