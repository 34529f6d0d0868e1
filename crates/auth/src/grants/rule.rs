//! One rule, which allows or denies accesses.

use std::fmt;

use promethean_delivery::{Pattern, Subject};
use promethean_model::{GroupName, SystemSuffix, TopicName};

use super::Access;
use super::names::GrantNames;

/// The accesses of one scope. Whether the rule allows or denies them is not part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rule {
    Publish(Subject),
    /// With groups, only in one of them; reading without a group is then not included.
    Subscribe(Subject, Option<GrantNames>),
    /// Collections and their changefeeds.
    Read(GrantNames),
    Manage(Subject),
    /// Everything.
    Admin,
}

impl Rule {
    /// Whether the rule includes all of an access.
    pub(super) fn covers(&self, access: &Access<'_>) -> bool {
        match (self, access) {
            (Self::Admin, _) => true,
            (Self::Publish(ours), Access::Publish(topic)) => ours.matches(topic),
            (Self::Subscribe(ours, groups), Access::Subscribe(asked, group)) => {
                covers_subject(ours, asked) && in_groups(groups.as_ref(), *group)
            }
            (Self::Manage(ours), Access::Manage(asked)) => covers_subject(ours, asked),
            (Self::Read(names), Access::Read(collection)) => names.matches(collection),
            (Self::Read(names), Access::Subscribe(asked, _)) => reads_changes_of(names, asked),
            _ => false,
        }
    }

    /// Whether the rule includes some part of an access.
    pub(super) fn touches(&self, access: &Access<'_>) -> bool {
        match (self, access) {
            (Self::Subscribe(ours, groups), Access::Subscribe(asked, group)) => {
                touches_subject(ours, asked) && in_groups(groups.as_ref(), *group)
            }
            (Self::Manage(ours), Access::Manage(asked)) => touches_subject(ours, asked),
            // These accesses name one topic or collection, so a part of them is all of them.
            _ => self.covers(access),
        }
    }
}

fn covers_subject(ours: &Subject, asked: &Subject) -> bool {
    match asked {
        Subject::Topic(topic) => belongs_to(topic).any(|topic| ours.matches(&topic)),
        Subject::Pattern(_) => ours.contains(asked),
    }
}

fn touches_subject(ours: &Subject, asked: &Subject) -> bool {
    match asked {
        Subject::Topic(_) => covers_subject(ours, asked),
        Subject::Pattern(_) => overlap(ours, asked),
    }
}

/// A topic, and the topics whose events it holds: `a.dlq`, `a.snapshot` and `a.v2` hold events of `a`. A
/// changefeed does not: `a.changed` holds documents of the collection `a`, which may have nothing to do with
/// topic `a`.
fn belongs_to(topic: &TopicName) -> impl Iterator<Item = TopicName> {
    std::iter::successors(Some(topic.clone()), |topic| match topic.system_suffix()? {
        SystemSuffix::Dlq | SystemSuffix::Snapshot | SystemSuffix::Version(_) => topic.base(),
        SystemSuffix::Changed => None,
    })
}

/// Whether a topic is the changefeed of one of the collections, or holds events of that changefeed.
fn reads_changes_of(collections: &GrantNames, asked: &Subject) -> bool {
    let Some(topic) = asked.topic() else { return false };
    let changes = belongs_to(topic).find(|topic| topic.system_suffix() == Some(SystemSuffix::Changed));
    changes.and_then(|topic| topic.base()).is_some_and(|collection| collections.matches(collection.as_str()))
}

fn in_groups(groups: Option<&GrantNames>, asked: Option<&GroupName>) -> bool {
    match (groups, asked) {
        (None, _) => true,
        (Some(names), Some(group)) => names.matches(group.as_str()),
        (Some(_), None) => false,
    }
}

/// Whether some topic matches both. The answer is exact: if the words agree one by one, a user's topic with
/// these words exists, because no pattern ends in a word of the system.
fn overlap(a: &Subject, b: &Subject) -> bool {
    match (a, b) {
        (Subject::Topic(topic), other) | (other, Subject::Topic(topic)) => other.matches(topic),
        (Subject::Pattern(a), Subject::Pattern(b)) => patterns_overlap(a, b),
    }
}

fn patterns_overlap(a: &Pattern, b: &Pattern) -> bool {
    let (mut ours, mut theirs) = (a.as_str().split('.'), b.as_str().split('.'));
    loop {
        match (ours.next(), theirs.next()) {
            (None, None) => return true,
            // At least one word is left on the other side, and `**` matches it.
            (Some("**"), Some(_)) | (Some(_), Some("**")) => return true,
            (Some("*"), Some(_)) | (Some(_), Some("*")) => {}
            (Some(our), Some(their)) if our == their => {}
            _ => return false,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Publish(subject) => write!(f, "publish:{subject}"),
            Self::Subscribe(subject, None) => write!(f, "subscribe:{subject}"),
            Self::Subscribe(subject, Some(groups)) => write!(f, "subscribe:{subject}@{groups}"),
            Self::Read(names) => write!(f, "read:{names}"),
            Self::Manage(subject) => write!(f, "manage:{subject}"),
            Self::Admin => f.write_str("admin"),
        }
    }
}
