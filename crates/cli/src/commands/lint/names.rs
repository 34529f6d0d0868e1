//! Checks of topic names.

use promethean_model::TopicName;
use promethean_model::name::SystemSuffix;

use super::finding::{LintFindings, LintRule};

/// Parses a name; reports it and returns `None` if no topic can have it.
pub(super) fn read(name: &str, place: &str, findings: &mut LintFindings) -> Option<TopicName> {
    match name.parse::<TopicName>() {
        Ok(topic) => Some(topic),
        Err(error) => {
            findings.add(LintRule::TopicName, place, error.to_string(), "give the topic another name");
            None
        }
    }
}

/// Reports problems of the name of a topic that users publish to.
pub(super) fn check(topic: &TopicName, place: &str, findings: &mut LintFindings) {
    if topic.is_system() {
        let what = match topic.system_suffix() {
            Some(suffix) => {
                format!("`{topic}` ends in `{suffix}`, which is kept for topics that the server creates")
            }
            None => format!("`{topic}` begins with `_`, which is kept for topics of the server"),
        };
        findings.add(LintRule::TopicSystem, place, what, "name the topic that users publish to");
        return;
    }
    if topic.words().count() == 1 {
        let what =
            format!("`{topic}` is a single word, so no pattern but `*` can match it together with others");
        findings.add(
            LintRule::TopicSingleWord,
            place,
            what,
            "begin with the area it belongs to, as in `orders.placed`",
        );
    }
    let derived =
        [SystemSuffix::Dlq, SystemSuffix::Snapshot, SystemSuffix::Changed, SystemSuffix::Version(u32::MAX)];
    if let Some(suffix) = derived.into_iter().find(|suffix| topic.with_suffix(*suffix).is_err()) {
        let what = format!("`{topic}` is so long that `{topic}{suffix}` would not be a valid name");
        findings.add(LintRule::TopicLong, place, what, "use a name of at most 168 bytes");
    }
}
