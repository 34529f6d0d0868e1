//! Which groups or collections a rule is about.

use std::fmt;

use promethean_model::{GroupName, NameError};

/// Names, by one of three forms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Names {
    /// This one.
    One(String),
    /// All that begin so: `billing*`. `*` and `**` are all.
    Prefix(String),
    /// Words between dots, where `*` is one word and a last `**` is the rest: how policies name groups.
    Words(String),
}

impl Names {
    /// A name, or a prefix and `*`. Groups and collections have one alphabet.
    pub(super) fn parse(text: &str) -> Result<Self, NameError> {
        let Some(prefix) = text.strip_suffix("**").or_else(|| text.strip_suffix('*')) else {
            return Ok(Self::One(text.parse::<GroupName>()?.to_string()));
        };
        if !prefix.is_empty() {
            // A prefix has the alphabet and at most the length of a name, so that it can begin one.
            prefix.parse::<GroupName>()?;
        }
        Ok(Self::Prefix(prefix.to_owned()))
    }

    /// A name, or a pattern of words.
    pub(super) fn parse_words(text: &str) -> Result<Self, NameError> {
        if !text.contains('*') {
            return Self::parse(text);
        }
        // The same shape without stars must be a name; `**` may only be last, and a star only a whole word.
        let mut words = text.split('.').peekable();
        while let Some(word) = words.next() {
            let is_star = word == "*" || (word == "**" && words.peek().is_none());
            if word.contains('*') && !is_star {
                word.parse::<GroupName>()?;
            }
        }
        text.replace('*', "x").parse::<GroupName>()?;
        Ok(Self::Words(text.to_owned()))
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        match self {
            Self::One(one) => one == name,
            Self::Prefix(prefix) => name.starts_with(prefix.as_str()),
            Self::Words(pattern) => words_match(pattern, name),
        }
    }
}

fn words_match(pattern: &str, name: &str) -> bool {
    let mut words = name.split('.');
    for expected in pattern.split('.') {
        match (expected, words.next()) {
            ("**", Some(_)) => return true,
            ("*", Some(_)) => {}
            (expected, Some(word)) if expected == word => {}
            _ => return false,
        }
    }
    words.next().is_none()
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(text) | Self::Words(text) => f.write_str(text),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}
