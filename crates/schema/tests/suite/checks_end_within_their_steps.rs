//! A check of a payload ends within its steps, whatever the schema and the payload are.

use promethean_schema::SchemaRejected;
use promethean_schema::validator::{OutOfSteps, Validator, compile};
use serde_json::{Value, json};

/// A schema whose alternatives double with each level of a payload.
fn doubling() -> Validator {
    let node = json!({"type": "object", "required": ["left"], "properties": {"left": {"$ref": "#"}}});
    compile(&json!({"oneOf": [node, node, {"type": "null"}]})).unwrap()
}

fn levels(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| json!({ "left": inner }))
}

fn rejected(validator: &Validator, payload: &Value, steps: u64) -> SchemaRejected {
    SchemaRejected::new(&"t".parse().unwrap(), 1, validator, payload, steps)
}

#[test]
fn a_doubling_schema_is_decided_soon_and_its_errors_are_bounded() {
    let validator = doubling();
    assert_eq!(validator.fits(&levels(100), 100_000), Ok(false));
    let shallow = rejected(&validator, &levels(3), 5_000);
    assert!(shallow.violations[0].rule == "oneOf" && shallow.total == 1, "{shallow:?}");
    let deep = rejected(&validator, &levels(100), 5_000);
    assert_eq!((deep.total, deep.violations[0].rule.as_str()), (1, "schema"));
}

#[test]
fn alternatives_patterns_and_comparisons_take_steps() {
    let out = Err(OutOfSteps);
    let consts: Vec<Value> = (0..8_000).map(|n| json!({ "const": n.to_string() })).collect();
    let many = compile(&json!({ "items": { "anyOf": consts } })).unwrap();
    assert_eq!(many.fits(&json!(vec!["7999"; 1_000]), 1_000_000), out);
    assert_eq!(many.fits(&json!(vec!["7999"; 10]), 1_000_000), Ok(true));

    let patterns: Vec<Value> = (0..1_000).map(|n| json!({ "pattern": format!("^a*{n}$") })).collect();
    let many = compile(&json!({ "anyOf": patterns })).unwrap();
    assert_eq!(many.fits(&json!("a".repeat(1 << 20)), 1_000_000), out);

    let unique: Vec<Value> = (0..1_000).map(|n| json!({ "uniqueItems": true, "minItems": n })).collect();
    let many = compile(&json!({ "anyOf": unique })).unwrap();
    assert_eq!(many.fits(&json!((0..100_000).chain([0]).collect::<Vec<_>>()), 1_000_000), out);

    let missing: serde_json::Map<String, Value> =
        (0..10_000).map(|n| (n.to_string(), json!(["a"]))).collect();
    let many = compile(&json!({ "items": { "dependentRequired": missing } })).unwrap();
    assert_eq!(many.fits(&json!(vec![json!({}); 1_000]), 1_000_000), out);

    let names: Vec<Value> = (10..1_000).map(|n| json!({ "propertyNames": { "maxLength": n } })).collect();
    let many = compile(&json!({ "allOf": names })).unwrap();
    let members: serde_json::Map<String, Value> = (0..10_000).map(|n| (n.to_string(), json!(n))).collect();
    assert_eq!(many.fits(&Value::Object(members), 1_000_000), out);
}

#[test]
fn an_answer_within_the_steps_is_the_answer_without_a_bound() {
    let validator = doubling();
    for depth in 0..12 {
        let mut payloads = vec![levels(depth)];
        payloads.push((0..depth).fold(Value::Null, |inner, _| json!({ "left": inner })));
        for payload in payloads {
            let known = validator.is_valid(&payload);
            let mut answered = 0;
            for steps in (0..14).map(|power| 1 << power) {
                if let Ok(fits) = validator.fits(&payload, steps) {
                    assert_eq!(fits, known, "{payload} within {steps} steps");
                    answered += 1;
                }
            }
            assert!(answered > 0, "{payload} was never decided");
            assert_eq!(validator.fits(&payload, 1), Err(OutOfSteps));
        }
    }
}
