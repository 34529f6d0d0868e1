//! Topics without a schema.

use std::collections::BTreeSet;

use promethean_model::{SchemaRule, TopicName};

use super::finding::{LintFindings, LintRule};

/// Reports a topic without a schema, as its setting `schema` asks for.
pub(super) fn check(
    topic: &TopicName,
    rule: SchemaRule,
    known: &BTreeSet<TopicName>,
    place: &str,
    findings: &mut LintFindings,
) {
    if known.contains(topic) || topic.is_system() {
        return;
    }
    let fix = format!(
        "add {topic}/v1.json to the folder of schemas, or register one with `promethean schema add {topic} FILE`"
    );
    match rule {
        SchemaRule::Off => {}
        SchemaRule::Required => {
            let what =
                format!("`{topic}` has `schema = \"required\"` and no schema, so every publish is refused");
            findings.add(LintRule::SchemaRequired, place, what, fix);
        }
        SchemaRule::Optional => {
            let what = format!("`{topic}` has no schema, so every payload is accepted");
            let fix = format!("{fix}; or set `schema = \"off\"` if that is meant");
            findings.add(LintRule::SchemaMissing, place, what, fix);
        }
    }
}
