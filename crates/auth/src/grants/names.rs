//! Which groups or collections a rule is about.

use std::fmt;

use promethean_model::{GroupName, NameError};

/// Names of groups or collections, in one of three forms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GrantNames {
    /// One name.
    One(String),
    /// All names with a prefix: `billing*`. `*` and `**` are all names.
    Prefix(String),
    /// Words between dots, where `*` is one word and a last `**` is the rest. Policies name groups like this.
    Words(String),
}

impl GrantNames {
    /// Parses a name, or a prefix and `*`. Groups and collections have the same alphabet.
    pub(super) fn parse(text: &str) -> Result<Self, NameError> {
        let Some(prefix) = text.strip_suffix("**").or_else(|| text.strip_suffix('*')) else {
            return Ok(Self::One(text.parse::<GroupName>()?.to_string()));
        };
        if !prefix.is_empty() {
            // A prefix has the alphabet and at most the length of a name, or no name could begin with it.
            prefix.parse::<GroupName>()?;
        }
        Ok(Self::Prefix(prefix.to_owned()))
    }

    /// Parses a name, or a pattern of words.
    pub(super) fn parse_words(text: &str) -> Result<Self, NameError> {
        if !text.contains('*') {
            return Self::parse(text);
        }
        // A star is a whole word, and `**` only the last one; with letters in place of the stars the text is
        // a name.
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

impl fmt::Display for GrantNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(text) | Self::Words(text) => f.write_str(text),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}
