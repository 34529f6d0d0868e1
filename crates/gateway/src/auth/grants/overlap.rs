//! Whether two patterns have a topic in common.

use promethean_delivery::{Pattern, Subject};

/// Whether some topic is meant by both. Exact: where words agree one by one there is a topic of the user's, because no
/// pattern ends in a word of the system.
pub(super) fn overlap(a: &Subject, b: &Subject) -> bool {
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
            // What is left of the other is at least one word, and `**` takes it.
            (Some("**"), Some(_)) | (Some(_), Some("**")) => return true,
            (Some("*"), Some(_)) | (Some(_), Some("*")) => {}
            (Some(our), Some(their)) if our == their => {}
            _ => return false,
        }
    }
}
