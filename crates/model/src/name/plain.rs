//! Names of groups, members and collections: one alphabet, one length.

use std::sync::Arc;

use super::error::{NameError, NameFault, NameKind};
use super::newtype::name_newtype;
use super::topic::TopicName;
use crate::limits::PLAIN_NAME_BYTES_MAX;

/// A consumer group's name: 1 to 120 of `[A-Za-z0-9_.:-]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(Arc<str>);

/// A group member's name: 1 to 120 of `[A-Za-z0-9_.:-]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(Arc<str>);

/// A collection's name: 1 to 120 of `[A-Za-z0-9_.:-]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CollectionName(Arc<str>);

name_newtype!(GroupName, check_group);
name_newtype!(MemberId, check_member);
name_newtype!(CollectionName, check_collection);

impl CollectionName {
    /// The collection's changefeed, `<collection>.changed`. Fails where the name is not also a topic's name.
    pub fn changed_topic(&self) -> Result<TopicName, NameError> {
        format!("{self}.changed").parse()
    }
}

fn check_group(text: &str) -> Result<(), NameError> {
    check(NameKind::Group, text)
}

fn check_member(text: &str) -> Result<(), NameError> {
    check(NameKind::Member, text)
}

fn check_collection(text: &str) -> Result<(), NameError> {
    check(NameKind::Collection, text)
}

fn check(kind: NameKind, text: &str) -> Result<(), NameError> {
    let fail = |fault| Err(NameError { kind, fault });
    if text.is_empty() {
        return fail(NameFault::Empty);
    }
    if text.len() > PLAIN_NAME_BYTES_MAX {
        return fail(NameFault::TooLong { bytes: text.len(), bytes_max: PLAIN_NAME_BYTES_MAX });
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '-');
    match text.char_indices().find(|(_, c)| !allowed(*c)) {
        Some((at, char)) => {
            fail(NameFault::Char { char, at, allowed: "letters, digits, `_`, `.`, `:` and `-`" })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_the_alphabet() {
        for text in ["a", "changelog:processes", "Worker-1.eu_west", &"x".repeat(120)] {
            assert_eq!(text.parse::<GroupName>().unwrap().as_str(), text);
            assert_eq!(text.parse::<MemberId>().unwrap().as_str(), text);
            assert_eq!(text.parse::<CollectionName>().unwrap().as_str(), text);
        }
    }

    #[test]
    fn refuses_and_says_why() {
        let check = |text: &str, message: &str| {
            assert_eq!(text.parse::<GroupName>().unwrap_err().to_string(), message);
        };
        check("", "group name is empty; give at least one character");
        check(&"x".repeat(121), "group name has 121 bytes; shorten it to at most 120");
        let allowed = "use only letters, digits, `_`, `.`, `:` and `-`";
        check("a/b", &format!("group name has '/' at byte 1; {allowed}"));
        check("a\0", &format!("group name has '\\0' at byte 1; {allowed}"));
        check("ab%2e", &format!("group name has '%' at byte 2; {allowed}"));
        check("\u{e9}", &format!("group name has '\u{e9}' at byte 0; {allowed}"));
        check("a b", &format!("group name has ' ' at byte 1; {allowed}"));
    }

    #[test]
    fn changefeed_needs_a_topic_name() {
        let topic = |text: &str| text.parse::<CollectionName>().unwrap().changed_topic();
        assert_eq!(topic("host_stats").unwrap().as_str(), "host_stats.changed");
        assert!(topic("Hosts").is_err());
        assert!(topic(".").is_err());
    }

    #[test]
    fn serde_goes_through_the_parser() {
        let name: MemberId = serde_json::from_str("\"m\\u002d1\"").unwrap();
        assert_eq!(serde_json::to_string(&name).unwrap(), "\"m-1\"");
        assert!(
            serde_json::from_str::<MemberId>("\"m/1\"").unwrap_err().to_string().contains("'/' at byte 1")
        );
    }
}
