//! Bounds: large, deep, wide and recursive schemas take a bounded number of steps and no stack.

use serde_json::{Value, json};

use super::*;

/// The verdict, and the steps it took.
fn run(old: &Value, new: &Value) -> (Verdict, u64) {
    let (report, steps) = check_within(old, new, Direction::Backward, Undeclared::Any, LIMITS);
    assert!(steps <= LIMITS.steps_max + 20_000, "{steps}");
    (report.verdict, steps)
}

fn nested(depth: usize, leaf: &Value) -> Value {
    (0..depth).fold(
        leaf.clone(),
        |inner, _| json!({ "type": "object", "properties": { "a": inner }, "required": ["a"] }),
    )
}

#[test]
fn deep_schemas() {
    let (verdict, steps) =
        run(&nested(60, &json!({ "type": "integer" })), &nested(60, &json!({ "type": "number" })));
    assert_eq!(verdict, Verdict::Compatible);
    assert!(steps < 2_000, "{steps}");
    let (verdict, _) =
        run(&nested(60, &json!({ "type": "number" })), &nested(60, &json!({ "type": "integer" })));
    assert_ne!(verdict, Verdict::Compatible);
}

#[test]
fn large_schemas() {
    let properties = |kind: &str| -> Value {
        let map: serde_json::Map<String, Value> = (0..3_000)
            .map(|n| (format!("property_{n}"), json!({ "type": kind, "description": "x".repeat(20) })))
            .collect();
        json!({ "type": "object", "properties": map, "additionalProperties": false })
    };
    let (verdict, steps) = run(&properties("integer"), &properties("number"));
    assert_eq!(verdict, Verdict::Compatible);
    assert!(steps < 20_000, "{steps}");
}

#[test]
fn wide_unions() {
    let union = |keyword: &str, count: u32| {
        let member =
            |n| json!({ "type": "object", "properties": { "kind": { "const": n } }, "required": ["kind"] });
        json!({ keyword: (0..count).map(member).collect::<Vec<_>>() })
    };
    assert_eq!(run(&union("oneOf", 40), &union("oneOf", 40)).0, Verdict::Compatible);
    assert_eq!(run(&union("oneOf", 20), &union("anyOf", 21)).0, Verdict::Compatible);
    // Past the limit on ways a union is left out, which is never a proof.
    assert_ne!(run(&union("oneOf", 300), &union("anyOf", 301)).0, Verdict::Incompatible);
    assert_ne!(run(&union("anyOf", 301), &union("anyOf", 300)).0, Verdict::Compatible);
}

#[test]
fn products_of_unions() {
    let factor = |n: u32| json!({ "anyOf": [{ "required": [format!("a{n}")] }, { "required": [format!("b{n}")] }, { "type": "string" }] });
    let product = |count: u32| json!({ "allOf": (0..count).map(factor).collect::<Vec<_>>() });
    run(&product(40), &product(39));
    run(&product(40), &json!({ "type": "object" }));
    // In place, each definition asks three times for the next.
    let mut defs = serde_json::Map::new();
    for n in 0..30 {
        let next = json!({ "$ref": format!("#/$defs/d{}", n + 1) });
        defs.insert(
            format!("d{n}"),
            json!({ "anyOf": [next, { "not": next }, { "allOf": [next, { "minLength": n }] }] }),
        );
    }
    defs.insert("d30".into(), json!({ "type": "string" }));
    let steep = json!({ "$defs": defs, "$ref": "#/$defs/d0" });
    run(&json!({ "type": "string", "minLength": 2 }), &steep);
}

#[test]
fn references_that_share() {
    // Each definition asks twice for the next: unfolded, it is two to the fortieth.
    let chain = |leaf: &str| {
        let mut defs = serde_json::Map::new();
        for n in 0..40 {
            let next = format!("#/$defs/d{}", n + 1);
            let both = json!({ "l": { "$ref": next }, "r": { "$ref": next } });
            defs.insert(
                format!("d{n}"),
                json!({ "type": "object", "properties": both, "additionalProperties": false }),
            );
        }
        defs.insert("d40".into(), json!({ "type": leaf }));
        json!({ "$defs": defs, "$ref": "#/$defs/d0" })
    };
    let (verdict, steps) = run(&chain("integer"), &chain("number"));
    assert_eq!(verdict, Verdict::Compatible);
    assert!(steps < 20_000, "{steps}");
    assert_ne!(run(&chain("number"), &chain("integer")).0, Verdict::Compatible);
}

#[test]
fn long_chains_of_references() {
    let chain = |leaf: &str| {
        let mut defs = serde_json::Map::new();
        for n in 0..400 {
            defs.insert(format!("d{n}"), json!({ "$ref": format!("#/$defs/d{}", n + 1) }));
        }
        defs.insert("d400".into(), json!({ "type": leaf }));
        json!({ "$defs": defs, "$ref": "#/$defs/d0" })
    };
    run(&chain("integer"), &chain("number"));
}

#[test]
fn recursion_of_all_kinds() {
    let own = json!({ "$ref": "#" });
    assert_eq!(run(&own, &json!({ "$ref": "#", "title": "t" })).0, Verdict::Compatible);
    assert_ne!(run(&own, &json!({ "type": "string" })).0, Verdict::Compatible);
    let in_place = json!({ "$defs": { "a": { "anyOf": [{ "$ref": "#/$defs/b" }, { "type": "string" }] }, "b": { "not": { "$ref": "#/$defs/a" } } }, "$ref": "#/$defs/a" });
    assert_ne!(run(&in_place, &json!({ "type": "string" })).0, Verdict::Compatible);
    let expression = |leaf: &str| {
        let two = json!({ "type": "object", "properties": { "l": { "$ref": "#" }, "r": { "$ref": "#" } }, "required": ["l", "r"], "additionalProperties": false });
        json!({ "anyOf": [{ "type": leaf }, two, { "type": "array", "items": { "$ref": "#" } }, { "type": "object", "additionalProperties": { "$ref": "#" } }] })
    };
    let (verdict, steps) = run(&expression("integer"), &expression("number"));
    assert_eq!(verdict, Verdict::Compatible);
    assert!(steps < 5_000, "{steps}");
    assert_ne!(run(&expression("number"), &expression("integer")).0, Verdict::Compatible);
    // Nothing finite is in it, and no proof needs to know.
    let endless = json!({ "type": "object", "properties": { "a": { "$ref": "#" } }, "required": ["a"] });
    run(&endless, &json!({ "type": "string" }));
}

#[test]
fn steps_have_an_end() {
    let limits = Limits { steps_max: 10, tries_max: 10 };
    let old = nested(30, &json!({ "anyOf": [{ "type": "integer" }, { "type": "string" }] }));
    let new = nested(30, &json!({ "anyOf": [{ "type": "number" }, { "type": "string" }] }));
    let (report, _) = check_within(&old, &new, Direction::Backward, Undeclared::Any, limits);
    assert_eq!(report.verdict, Verdict::Undecidable);
    assert_eq!(report.findings[0].rule, Rule::TooComplex);
}
