//! The cases in `fixtures/schema/compat.json`, whose answers were worked out by hand, are answered like that.

use promethean_schema::compat::{CompatDirection, CompatReport, Undeclared, Verdict, check};
use promethean_schema::validator::compile;
use serde_json::Value;

const CASES: &str = include_str!("../../../../fixtures/schema/compat.json");

#[test]
fn every_case_is_answered_as_it_should_be() {
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    assert!(cases.len() >= 170, "{}", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let undeclared = match case.get("undeclared") {
            Some(said) => serde_json::from_value(said.clone()).unwrap(),
            None => Undeclared::Any,
        };
        let mut rules = Vec::new();
        for direction in [CompatDirection::Backward, CompatDirection::Forward] {
            let report = check(&case["old"], &case["new"], direction, undeclared);
            let verdict = serde_json::to_value(report.verdict).unwrap();
            if verdict != case[direction.to_string()] {
                wrong.push(format!("{}, {direction}: {verdict}\n{report}", case["name"]));
            }
            examples_hold(case, direction, &report);
            rules.extend(report.findings.iter().map(|finding| finding.rule.word()));
        }
        for rule in case["rules"].as_array().into_iter().flatten() {
            if !rules.iter().any(|found| rule == found) {
                wrong.push(format!("{}: {rule} is not among {rules:?}", case["name"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n\n{}", wrong.len(), cases.len(), wrong.join("\n\n"));
}

/// Each example is accepted by the one schema and refused by the other.
fn examples_hold(case: &Value, direction: CompatDirection, report: &CompatReport) {
    for finding in &report.findings {
        assert_eq!(finding.verdict == Verdict::Incompatible, finding.example.is_some(), "{}", case["name"]);
        let Some(example) = &finding.example else { continue };
        let (old, new) = (compile(&case["old"]).unwrap(), compile(&case["new"]).unwrap());
        let (accepts, refuses) = if direction == CompatDirection::Backward { (old, new) } else { (new, old) };
        assert!(accepts.is_valid(example) && !refuses.is_valid(example), "{}: {example}", case["name"]);
    }
}
