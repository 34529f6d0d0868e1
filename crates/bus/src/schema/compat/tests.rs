use serde_json::json;

use super::*;

#[test]
fn a_type_that_narrows_is_shown() {
    let report = check(
        &json!({ "type": "number" }),
        &json!({ "type": "integer" }),
        Direction::Backward,
        Undeclared::Any,
    );
    assert_eq!(report.verdict, Verdict::Incompatible, "{report}");
}
