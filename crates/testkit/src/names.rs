//! Names from text, for tests.

#![expect(clippy::unwrap_used, reason = "a bad name in a test must fail that test")]

use promethean_model::{CollectionName, GroupName, TopicName};

/// The topic of this name.
///
/// # Panics
/// If the text is no name of a topic.
#[must_use]
pub fn topic(name: &str) -> TopicName {
    name.parse().unwrap()
}

/// The group of this name.
///
/// # Panics
/// If the text is no name of a group.
#[must_use]
pub fn group(name: &str) -> GroupName {
    name.parse().unwrap()
}

/// The collection of this name.
///
/// # Panics
/// If the text is no name of a collection.
#[must_use]
pub fn collection(name: &str) -> CollectionName {
    name.parse().unwrap()
}
