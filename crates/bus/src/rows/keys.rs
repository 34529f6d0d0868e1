//! The keys of rows. Names contain no zero byte, so a prefix that ends with a zero byte never matches the
//! rows of another name.

use promethean_delivery::Subject;
use promethean_model::{GroupName, Offset, TopicName};
use promethean_store::port::ROW_KEY_BYTES_MAX;

use super::{RowError, bad};

/// The key of a row about one event: `group 0 topic 0 offset(be64)`. Rows of a topic are in offset order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventKey {
    /// The group.
    pub group: GroupName,
    /// The topic.
    pub topic: TopicName,
    /// The offset of the event.
    pub offset: Offset,
}

/// The key of a group's row: `group 0 topic-or-pattern`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupKey {
    /// The group.
    pub group: GroupName,
    /// The topic or pattern that it is subscribed to.
    pub subject: Subject,
}

/// The prefix of the keys of all rows of a group.
pub fn group_prefix(group: &GroupName) -> Vec<u8> {
    join(&[group.as_str().as_bytes(), &[0]])
}

/// The prefix of the keys of all rows about events of a group's topic.
pub fn topic_prefix(group: &GroupName, topic: &TopicName) -> Vec<u8> {
    join(&[group.as_str().as_bytes(), &[0], topic.as_str().as_bytes(), &[0]])
}

/// The key of the row of a collection's feed, in the table `Snapshots`.
pub fn feed_key(feed: &TopicName) -> Vec<u8> {
    join(&[b"feed\0", feed.as_str().as_bytes()])
}

/// The scope of a group's dedupe marks on a topic. Stored marks depend on its form, so the form never
/// changes. Names contain no slash, so each topic and group has its own scope.
pub fn dedupe_scope(topic: &TopicName, group: &GroupName) -> String {
    format!("{topic}/{group}")
}

impl EventKey {
    /// Encodes the key.
    pub fn encode(group: &GroupName, topic: &TopicName, offset: Offset) -> Vec<u8> {
        let mut key = topic_prefix(group, topic);
        key.extend_from_slice(&offset.get().to_be_bytes());
        key
    }

    /// Decodes a key that `encode` wrote. The error message names `table`.
    pub fn decode(key: &[u8], table: &'static str) -> Result<Self, RowError> {
        let parsed = || {
            let (names, offset) = key.split_last_chunk::<8>()?;
            let (group, topic) = split(names.strip_suffix(&[0])?)?;
            let offset = Offset(u64::from_be_bytes(*offset));
            Some(Self { group: group.parse().ok()?, topic: topic.parse().ok()?, offset })
        };
        parsed().ok_or_else(|| bad(table, "malformed key"))
    }
}

impl GroupKey {
    /// Encodes the key.
    pub fn encode(group: &GroupName, subject: &Subject) -> Vec<u8> {
        join(&[group.as_str().as_bytes(), &[0], subject.as_str().as_bytes()])
    }

    /// Decodes a key that `encode` wrote.
    pub fn decode(key: &[u8]) -> Result<Self, RowError> {
        let parsed = || {
            let (group, subject) = split(key)?;
            Some(Self { group: group.parse().ok()?, subject: subject.parse().ok()? })
        };
        parsed().ok_or_else(|| bad("Groups", "malformed key"))
    }
}

fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn split(names: &[u8]) -> Option<(&str, &str)> {
    let (first, second) = str::from_utf8(names).ok()?.split_once('\0')?;
    Some((first, second))
}

const _: () = assert!(
    promethean_model::limits::PLAIN_NAME_BYTES_MAX + promethean_model::limits::TOPIC_NAME_BYTES_MAX + 10
        <= ROW_KEY_BYTES_MAX
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_bytes_never_change() {
        let (group, topic) = ("g".parse().unwrap(), "a.b".parse().unwrap());
        assert_eq!(EventKey::encode(&group, &topic, Offset(258)), b"g\0a.b\0\0\0\0\0\0\0\x01\x02");
        assert_eq!(topic_prefix(&group, &topic), b"g\0a.b\0");
        assert_eq!(group_prefix(&group), b"g\0");
        assert_eq!(GroupKey::encode(&group, &"a.**".parse().unwrap()), b"g\0a.**");
    }

    proptest! {
        #[test]
        fn event_keys_round_trip(group in "[A-Za-z0-9_.:-]{1,20}", topic in "[a-z]{1,5}(\\.[a-z]{1,5}){0,3}", offset in any::<u64>()) {
            let key = EventKey {
                group: group.parse().unwrap(),
                topic: topic.parse().unwrap(),
                offset: Offset(offset),
            };
            let bytes = EventKey::encode(&key.group, &key.topic, key.offset);
            prop_assert!(bytes.starts_with(&topic_prefix(&key.group, &key.topic)));
            prop_assert_eq!(EventKey::decode(&bytes, "Attempts"), Ok(key));
        }

        #[test]
        fn group_keys_round_trip(group in "[A-Za-z0-9_.:-]{1,20}", subject in "[a-z]{1,5}(\\.[a-z]{1,5}){0,3}(\\.\\*){0,2}(\\.\\*\\*)?") {
            if let Ok(subject) = subject.parse::<Subject>() {
                let key = GroupKey { group: group.parse().unwrap(), subject };
                prop_assert_eq!(GroupKey::decode(&GroupKey::encode(&key.group, &key.subject)), Ok(key));
            }
        }

        #[test]
        fn garbage_is_refused_or_is_a_key(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(key) = EventKey::decode(&bytes, "Attempts") {
                prop_assert_eq!(EventKey::encode(&key.group, &key.topic, key.offset), bytes.clone());
            }
            if let Ok(key) = GroupKey::decode(&bytes) {
                prop_assert_eq!(GroupKey::encode(&key.group, &key.subject), bytes);
            }
        }

        #[test]
        fn keys_sort_by_offset(a in any::<u64>(), b in any::<u64>()) {
            let (group, topic) = ("g".parse().unwrap(), "t".parse().unwrap());
            let key = |offset| EventKey::encode(&group, &topic, Offset(offset));
            prop_assert_eq!(key(a).cmp(&key(b)), a.cmp(&b));
        }
    }
}
