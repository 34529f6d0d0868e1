//! Patterns of topics: `*` stands for one word, a last `**` for one or more words.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use promethean_model::{NameError, TopicName};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::error::DeliveryError;

/// A pattern of topics: words with `*` in place of some of them, and `**` in place of the last. It never
/// matches the system's topics, which begin with `_` or end in a system suffix; a pattern that could match
/// only them is refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern(Arc<str>);

/// A topic or a pattern to subscribe to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// One topic; may be a system topic.
    Topic(TopicName),
    /// Every topic that matches, including topics created later.
    Pattern(Pattern),
}

const ONE: &str = "*";
const MANY: &str = "**";

impl Pattern {
    /// The text.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the pattern matches `topic`.
    pub fn matches(&self, topic: &TopicName) -> bool {
        let mut words = topic.as_str().split('.');
        for expected in self.0.split('.') {
            match (expected, words.next()) {
                (MANY, Some(_)) => return !topic.is_system(),
                (ONE, Some(_)) => {}
                (_, Some(word)) if word == expected => {}
                _ => return false,
            }
        }
        words.next().is_none() && !topic.is_system()
    }

    /// The words before the first `*`, joined by dots: every topic that matches begins with them.
    pub fn prefix(&self) -> &str {
        let end = self.0.find('*').unwrap_or(self.0.len());
        self.0.get(..end).unwrap_or_default().trim_end_matches('.')
    }

    /// Whether this pattern matches every topic that `other` matches. May be `false` where it is so only
    /// because names have a length limit.
    pub fn contains(&self, other: &Self) -> bool {
        let mut theirs = other.0.split('.');
        for ours in self.0.split('.') {
            match (ours, theirs.next()) {
                // The rest of the other pattern is at least one word.
                (MANY, Some(_)) => return true,
                (_, Some(MANY)) => return false,
                (ONE, Some(_)) => {}
                (ours, Some(theirs)) if ours == theirs => {}
                _ => return false,
            }
        }
        theirs.next().is_none()
    }
}

impl Subject {
    /// The text.
    #[inline]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Topic(topic) => topic.as_str(),
            Self::Pattern(pattern) => pattern.as_str(),
        }
    }

    /// Whether the subject includes `topic`.
    pub fn matches(&self, topic: &TopicName) -> bool {
        match self {
            Self::Topic(one) => one == topic,
            Self::Pattern(pattern) => pattern.matches(topic),
        }
    }

    /// Whether this subject includes every topic that `other` includes.
    pub fn contains(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Topic(topic)) => self.matches(topic),
            (Self::Pattern(ours), Self::Pattern(theirs)) => ours.contains(theirs),
            (Self::Topic(_), Self::Pattern(_)) => false,
        }
    }

    /// The topic; `None` for a pattern.
    pub fn topic(&self) -> Option<&TopicName> {
        match self {
            Self::Topic(topic) => Some(topic),
            Self::Pattern(_) => None,
        }
    }
}

impl FromStr for Pattern {
    type Err = DeliveryError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words = || text.split('.');
        if !words().any(|word| word == ONE || word == MANY) && !text.contains('*') {
            return bad("it has neither `*` nor `**`; add one, or name the topic itself".into());
        }
        if let Some(word) = words().find(|word| word.contains('*') && *word != ONE && *word != MANY) {
            let word: String = word.chars().take(40).collect();
            return bad(format!("`*` stands for whole words, `{word}` mixes it; write `a.*`, not `a.b*`"));
        }
        let many = words().position(|word| word == MANY);
        if many.is_some_and(|at| at + 1 != words().count()) {
            return bad("`**` is not the last word; move it there, or write `*` for each word".into());
        }
        // With `x` for each `*` it must be the name of a topic. `x` keeps the byte positions and makes no
        // system suffix.
        let sample: TopicName =
            text.replace('*', "x").parse().map_err(|error: NameError| refuse(error.to_string()))?;
        if sample.is_system() {
            return bad("the system's topics match no pattern; name the topic itself".into());
        }
        Ok(Self(text.into()))
    }
}

impl FromStr for Subject {
    type Err = DeliveryError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains('*') {
            text.parse().map(Self::Pattern)
        } else {
            Ok(Self::Topic(text.parse::<TopicName>()?))
        }
    }
}

impl From<TopicName> for Subject {
    fn from(topic: TopicName) -> Self {
        Self::Topic(topic)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Subject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Subject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

fn bad<T>(reason: String) -> Result<T, DeliveryError> {
    Err(refuse(reason))
}

fn refuse(reason: String) -> DeliveryError {
    DeliveryError::BadPattern { reason }
}

#[cfg(test)]
mod tests {
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

    /// Every topic of up to five words out of `a` and `b`, which the patterns use, and `fresh`, which they do
    /// not. Two patterns of up to four words that match different topics differ on one of these.
    fn topics() -> Vec<TopicName> {
        let mut all = vec![String::new()];
        let mut last = all.clone();
        for _ in 0..5 {
            last = last
                .iter()
                .flat_map(|start| ["a", "b", "fresh"].map(|word| format!("{start}.{word}")))
                .collect();
            all.extend(last.iter().cloned());
        }
        all.iter().skip(1).map(|text| text.trim_start_matches('.').parse().unwrap()).collect()
    }

    fn any_subject() -> impl Strategy<Value = Subject> {
        let word = proptest::sample::select(vec!["a", "b", "*"]);
        (proptest::collection::vec(word, 0..4), any::<bool>()).prop_filter_map(
            "no words",
            |(mut words, many)| {
                if many {
                    words.push("**");
                }
                words.join(".").parse().ok()
            },
        )
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
}
