use serde_json::json;

use super::*;
use crate::schema::compat::check;

#[test]
fn a_finding_reads_as_a_sentence() {
    let old = json!({ "properties": { "id": { "type": "integer" } } });
    let new = json!({ "properties": { "id": { "type": "integer" } }, "required": ["id"] });
    let report = check(&old, &new, Direction::Backward, Undeclared::Any);
    let text = report.to_string();
    assert!(
        text.starts_with("incompatible at /required: required_added ([] -> [\"id\"]). Make `id` optional"),
        "{text}"
    );
    assert!(text.contains("\n  the old schema accepts and the new one refuses: {}"), "{text}");
    let value = serde_json::to_value(&report).unwrap();
    assert_eq!(value["verdict"], "incompatible");
    assert_eq!(value["findings"][0]["rule"], "required_added");
    assert_eq!(value["findings"][0]["direction"], "backward");
    let report = check(&new, &old, Direction::Forward, Undeclared::Any);
    let text = report.to_string();
    assert!(text.contains("Keep `id` required in the new schema."), "{text}");
    assert!(text.contains("the new schema accepts and the old one refuses"), "{text}");
}

#[test]
fn compatible_is_one_word() {
    assert_eq!(Report::of(Vec::new()).to_string(), "compatible");
}
