//! Names of topics, and the endings that the system gives to topics it derives.

use std::fmt;
use std::sync::Arc;

use super::error::{NameError, NameFault, NameKind};
use super::newtype::name_newtype;
use crate::limits::TOPIC_NAME_BYTES_MAX;

const ALLOWED: &str = "a-z, 0-9, `_`, `-`, `:` inside a word and `.` between words";

/// A topic's name: words of `[a-z0-9_-]`, with `:` allowed inside a word, joined by `.`; at most 180 bytes.
///
/// Parsing accepts the system's own names, because users may read those topics. Names of topics that a user
/// writes to are parsed with [`TopicName::parse_user`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName(Arc<str>);

/// The last word of a topic that the system derives from another name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SystemSuffix {
    /// `.dlq`: dead letters.
    Dlq,
    /// `.snapshot`: the latest state per key.
    Snapshot,
    /// `.changed`: a collection's changefeed.
    Changed,
    /// `.vN`: events in the form of schema version N. N has no leading zero.
    Version(u32),
}

name_newtype!(TopicName, check);

impl TopicName {
    /// Parses a name that a user may publish to, create or configure: not one of the system's own.
    pub fn parse_user(text: &str) -> Result<Self, NameError> {
        let topic: Self = text.parse()?;
        if text.starts_with('_') {
            return fail(NameFault::ReservedPrefix);
        }
        match topic.system_suffix() {
            Some(suffix) => fail(NameFault::ReservedSuffix { suffix: suffix.to_string() }),
            None => Ok(topic),
        }
    }

    /// Whether only the system writes this topic: it begins with `_` or ends in a [`SystemSuffix`].
    pub fn is_system(&self) -> bool {
        self.0.starts_with('_') || self.system_suffix().is_some()
    }

    /// The system's suffix, if the name ends in one. A name of a single word has none.
    pub fn system_suffix(&self) -> Option<SystemSuffix> {
        let (_, last) = self.0.rsplit_once('.')?;
        SystemSuffix::of_word(last)
    }

    /// The name without its system suffix, if it ends in one.
    pub fn base(&self) -> Option<Self> {
        let (base, last) = self.0.rsplit_once('.')?;
        SystemSuffix::of_word(last).map(|_| Self(base.into()))
    }

    /// The name with a system suffix appended. Fails if that is too long.
    pub fn with_suffix(&self, suffix: SystemSuffix) -> Result<Self, NameError> {
        format!("{self}{suffix}").parse()
    }

    /// The topic of its dead letters. Whether a dead-letter topic may have one itself is the caller's rule.
    pub fn dlq(&self) -> Result<Self, NameError> {
        self.with_suffix(SystemSuffix::Dlq)
    }

    /// The topic of its snapshots.
    pub fn snapshot(&self) -> Result<Self, NameError> {
        self.with_suffix(SystemSuffix::Snapshot)
    }

    /// The topic of its changes.
    pub fn changed(&self) -> Result<Self, NameError> {
        self.with_suffix(SystemSuffix::Changed)
    }

    /// The topic of its events in the form of schema version `version`.
    pub fn versioned(&self, version: u32) -> Result<Self, NameError> {
        self.with_suffix(SystemSuffix::Version(version))
    }

    /// The words between the dots.
    pub fn words(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('.')
    }
}

impl SystemSuffix {
    fn of_word(word: &str) -> Option<Self> {
        match word {
            "dlq" => Some(Self::Dlq),
            "snapshot" => Some(Self::Snapshot),
            "changed" => Some(Self::Changed),
            _ => {
                let digits = word.strip_prefix('v')?;
                let version: u32 = digits.parse().ok()?;
                // Only the text that `Display` writes: `v01` is free for users.
                (version.to_string() == digits).then_some(Self::Version(version))
            }
        }
    }
}

impl fmt::Display for SystemSuffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dlq => f.write_str(".dlq"),
            Self::Snapshot => f.write_str(".snapshot"),
            Self::Changed => f.write_str(".changed"),
            Self::Version(version) => write!(f, ".v{version}"),
        }
    }
}

fn check(text: &str) -> Result<(), NameError> {
    if text.is_empty() {
        return fail(NameFault::Empty);
    }
    if text.len() > TOPIC_NAME_BYTES_MAX {
        return fail(NameFault::TooLong { bytes: text.len(), bytes_max: TOPIC_NAME_BYTES_MAX });
    }
    let mut start = 0;
    for word in text.split('.') {
        check_word(word, start)?;
        start += word.len() + 1;
    }
    Ok(())
}

fn check_word(word: &str, start: usize) -> Result<(), NameError> {
    let allowed = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '_' | '-' | ':');
    if word.is_empty() {
        return fail(NameFault::EmptyWord { at: start });
    }
    if let Some((at, char)) = word.char_indices().find(|(_, c)| !allowed(*c)) {
        return fail(NameFault::Char { char, at: start + at, allowed: ALLOWED });
    }
    if word.starts_with(':') {
        return fail(NameFault::ColonAtEdge { at: start });
    }
    if word.ends_with(':') {
        return fail(NameFault::ColonAtEdge { at: start + word.len() - 1 });
    }
    Ok(())
}

fn fail<T>(fault: NameFault) -> Result<T, NameError> {
    Err(NameError { kind: NameKind::Topic, fault })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn topic(text: &str) -> TopicName {
        text.parse().unwrap()
    }

    #[test]
    fn accepts() {
        for text in
            ["a", "heartbeat.received", "a-b_c.0", "tenant:7.orders", "_alarms", "a.dlq", &"x".repeat(180)]
        {
            assert_eq!(topic(text).as_str(), text);
        }
    }

    #[test]
    fn refuses_hostile_names() {
        let check = |text: &str, fault: NameFault| {
            assert_eq!(text.parse::<TopicName>().unwrap_err().fault, fault, "{text:?}");
        };
        let char = |char, at| NameFault::Char { char, at, allowed: ALLOWED };
        check("", NameFault::Empty);
        check(".", NameFault::EmptyWord { at: 0 });
        check("..", NameFault::EmptyWord { at: 0 });
        check("a..b", NameFault::EmptyWord { at: 2 });
        check("a.", NameFault::EmptyWord { at: 2 });
        check(".a", NameFault::EmptyWord { at: 0 });
        check("../etc", NameFault::EmptyWord { at: 0 });
        check("a/b", char('/', 1));
        check("a\\b", char('\\', 1));
        check("%2e", char('%', 0));
        check("a.\0", char('\0', 2));
        check("a.Bc", char('B', 2));
        check("a.*", char('*', 2));
        check("a b", char(' ', 1));
        check("a\n", char('\n', 1));
        check("caf\u{e9}", char('\u{e9}', 3));
        check("\u{ff0e}", char('\u{ff0e}', 0));
        check(":a", NameFault::ColonAtEdge { at: 0 });
        check("a.b:.c", NameFault::ColonAtEdge { at: 3 });
        check(":", NameFault::ColonAtEdge { at: 0 });
        check(&"x".repeat(181), NameFault::TooLong { bytes: 181, bytes_max: 180 });
        check(&"\u{e9}".repeat(91), NameFault::TooLong { bytes: 182, bytes_max: 180 });
    }

    #[test]
    fn users_cannot_name_the_systems_topics() {
        for text in
            ["a", "dlq", "v1", "snapshot", "a.dlq.b", "a.v1.b", "a.v01", "a.v", "a.v99999999999", "a._b"]
        {
            assert_eq!(TopicName::parse_user(text).unwrap().as_str(), text);
            assert!(!topic(text).is_system(), "{text}");
        }
        for text in ["a.dlq", "a.snapshot", "a.changed", "a.v0", "a.v17", "a.dlq.dlq"] {
            let error = TopicName::parse_user(text).unwrap_err();
            assert!(matches!(error.fault, NameFault::ReservedSuffix { .. }), "{text}: {error}");
            assert!(topic(text).is_system());
        }
        assert_eq!(TopicName::parse_user("_alarms").unwrap_err().fault, NameFault::ReservedPrefix);
        assert!(topic("_alarms").is_system() && topic("_alarms").system_suffix().is_none());
    }

    #[test]
    fn messages_say_what_to_do() {
        let message = |text: &str| TopicName::parse_user(text).unwrap_err().to_string();
        assert_eq!(
            message("Orders"),
            "topic name has 'O' at byte 0; use only a-z, 0-9, `_`, `-`, `:` inside a word and `.` between words"
        );
        assert_eq!(
            message("orders.v2"),
            "topic name ends in `.v2`, which is kept for topics that the system writes; use another last word"
        );
    }

    #[test]
    fn derives_and_strips_suffixes() {
        let orders = topic("orders");
        assert_eq!(orders.dlq().unwrap().as_str(), "orders.dlq");
        assert_eq!(orders.snapshot().unwrap().as_str(), "orders.snapshot");
        assert_eq!(orders.changed().unwrap().as_str(), "orders.changed");
        assert_eq!(orders.versioned(3).unwrap().system_suffix(), Some(SystemSuffix::Version(3)));
        assert_eq!(orders.versioned(u32::MAX).unwrap().base(), Some(orders.clone()));
        assert_eq!(orders.base(), None);
        assert_eq!(
            topic(&"x".repeat(177)).dlq().unwrap_err().fault,
            NameFault::TooLong { bytes: 181, bytes_max: 180 }
        );
        assert_eq!(topic("a.b:c.d").words().collect::<Vec<_>>(), ["a", "b:c", "d"]);
    }

    proptest! {
        #[test]
        fn parses_exactly_the_grammar(text in "[a-c:._/A\u{e9}-]{0,12}") {
            let word = |w: &str| {
                !w.is_empty()
                    && w.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b':'))
                    && !w.starts_with(':')
                    && !w.ends_with(':')
            };
            prop_assert_eq!(text.parse::<TopicName>().is_ok(), text.split('.').all(word));
        }

        #[test]
        fn arbitrary_text_never_panics(text in any::<String>()) {
            if let Ok(topic) = TopicName::parse_user(&text) {
                prop_assert_eq!(topic.as_str(), text);
            }
        }
    }
}
