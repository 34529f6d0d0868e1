//! Output as text.

use promethean_schema::compat::{CompatDirection, Verdict};
use serde_json::Value;

/// The heading of a comparison: the question and its answer.
pub(super) fn heading(direction: CompatDirection, verdict: Verdict) -> String {
    let question = match direction {
        CompatDirection::Backward => "backward (the new schema accepts what the old one accepted)",
        CompatDirection::Forward => "forward (the old schema accepts what the new one accepts)",
    };
    let answer = match verdict {
        Verdict::Compatible => "yes",
        Verdict::Incompatible => "no",
        Verdict::Undecidable => "cannot be decided",
    };
    format!("{question}: {answer}")
}

/// The comparisons of a server, one line each.
pub(super) fn comparisons(compared: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for one in compared.as_array().into_iter().flatten() {
        let (version, verdict) = (at(one, "version"), text(at(one, "verdict")));
        lines.push(format!("{} with version {version}: {verdict}", text(at(one, "direction"))));
        for finding in at(one, "findings").as_array().into_iter().flatten() {
            let place = match text(at(finding, "path")) {
                "" => "the schema",
                path => path,
            };
            lines.push(format!("  {place}: {}. {}", text(at(finding, "rule")), text(at(finding, "fix"))));
            if let Some(example) = finding.get("example") {
                lines.push(format!("    for example: {}", short(&example.to_string())));
            }
        }
    }
    lines
}

/// The violations of a payload, one line each.
pub(super) fn violations(refused: &Value) -> Vec<String> {
    let line = |violation: &Value| {
        let path = match text(at(violation, "path")) {
            "" => "/",
            path => path,
        };
        format!("  {path}: {}", text(at(violation, "message")))
    };
    at(refused, "violations").as_array().into_iter().flatten().map(line).collect()
}

/// The value of a field; null if the field is missing.
pub(super) fn at<'a>(value: &'a Value, name: &str) -> &'a Value {
    value.get(name).unwrap_or(&Value::Null)
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Characters of an example that are printed.
const SHOWN_MAX: usize = 160;

fn short(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}\u{2026}", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
