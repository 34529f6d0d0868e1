//! Patterns over topics: `a.*` is one word, a trailing `a.**` one or more.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use promethean_model::{NameError, TopicName};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::error::BusError;

#[cfg(test)]
mod tests;

/// A pattern: words of topics, `*` in place of some of them, and `**` in place of the last. The system's topics (a
/// leading `_`, a system suffix) are never matched; a pattern that could match nothing else is refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern(Arc<str>);

/// What can be subscribed to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// One topic, the system's included.
    Topic(TopicName),
    /// Every topic that matches, also those born later.
    Pattern(Pattern),
}

const ONE: &str = "*";
const MANY: &str = "**";

impl Pattern {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `topic` matches.
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

    /// Whether every topic that matches `other` matches this one too. May say no where only the length limit of names
    /// makes it so.
    pub fn contains(&self, other: &Self) -> bool {
        let mut theirs = other.0.split('.');
        for ours in self.0.split('.') {
            match (ours, theirs.next()) {
                // Whatever is left of the other, it is at least one word.
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
    pub fn as_str(&self) -> &str {
        match self {
            Self::Topic(topic) => topic.as_str(),
            Self::Pattern(pattern) => pattern.as_str(),
        }
    }

    /// Whether `topic` is meant.
    pub fn matches(&self, topic: &TopicName) -> bool {
        match self {
            Self::Topic(one) => one == topic,
            Self::Pattern(pattern) => pattern.matches(topic),
        }
    }

    /// Whether everything that `other` means is meant by this one too.
    pub fn contains(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Topic(topic)) => self.matches(topic),
            (Self::Pattern(ours), Self::Pattern(theirs)) => ours.contains(theirs),
            (Self::Topic(_), Self::Pattern(_)) => false,
        }
    }

    /// The topic, if it is one.
    pub fn topic(&self) -> Option<&TopicName> {
        match self {
            Self::Topic(topic) => Some(topic),
            Self::Pattern(_) => None,
        }
    }
}

impl FromStr for Pattern {
    type Err = BusError;

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
        // With `x` for `*` it must be a topic's name: a plain letter, so every position stays and no suffix appears.
        let sample: TopicName =
            text.replace('*', "x").parse().map_err(|error: NameError| refuse(error.to_string()))?;
        if sample.is_system() {
            return bad("the system's topics match no pattern; name the topic itself".into());
        }
        Ok(Self(text.into()))
    }
}

impl FromStr for Subject {
    type Err = BusError;

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

fn bad<T>(reason: String) -> Result<T, BusError> {
    Err(refuse(reason))
}

fn refuse(reason: String) -> BusError {
    BusError::BadPattern { reason }
}
