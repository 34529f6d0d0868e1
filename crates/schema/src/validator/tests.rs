use serde_json::json;

use super::*;

#[test]
fn both_drafts_are_read_and_others_refused() {
    for name in [
        "https://json-schema.org/draft/2020-12/schema",
        "http://json-schema.org/draft/2020-12/schema#",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft-07/schema",
    ] {
        assert!(compile(&json!({ "$schema": name })).is_ok(), "{name}");
    }
    for name in [json!("http://json-schema.org/draft-04/schema#"), json!("draft-07"), json!(7), json!("")] {
        assert_eq!(compile(&json!({ "$schema": name })).unwrap_err().at, "/$schema", "{name}");
    }
}

#[test]
fn a_draft_has_its_own_rules() {
    let schema =
        |draft: &str| json!({ "$schema": draft, "items": [{ "type": "string" }], "additionalItems": false });
    assert!(compile(&schema("http://json-schema.org/draft-07/schema#")).unwrap().is_valid(&json!(["a"])));
    let refused = compile(&schema("https://json-schema.org/draft/2020-12/schema")).unwrap_err();
    assert_ne!(refused.at, "/$schema");
}

#[test]
fn formats_are_checked_in_both_drafts() {
    for draft in ["https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"] {
        let validator = compile(&json!({ "$schema": draft, "format": "date" })).unwrap();
        assert!(validator.is_valid(&json!("2024-02-29")));
        assert!(!validator.is_valid(&json!("2023-02-29")));
    }
}

#[test]
fn references_stay_inside_and_patterns_linear() {
    assert!(compile(&json!({ "$ref": "https://example.com/a.json" })).is_err());
    assert!(compile(&json!({ "$ref": "file:///etc/hostname" })).is_err());
    assert!(compile(&json!({ "$ref": "#/$defs/none" })).is_err());
    assert!(compile(&json!({ "pattern": "(?=a)b" })).is_err(), "lookahead needs backtracking");
    assert!(compile(&json!({ "pattern": "((a{1,1000}){1,1000}){1,1000}" })).is_err(), "too large");
}

#[test]
fn a_bad_schema_says_where() {
    let refused = compile(&json!({ "properties": { "a": { "type": "strin" } } })).unwrap_err();
    assert_eq!(refused.at, "/properties/a/type");
}

#[test]
fn a_part_is_compiled_by_its_pointer() {
    let document = json!({ "$defs": { "a b/c": { "type": "string" }, "n": { "$ref": "#/$defs/a%20b~1c" } } });
    let registry = Registry::new().add("urn:part", &document).unwrap().prepare().unwrap();
    for pointer in ["/$defs/a b~1c", "/$defs/n"] {
        let part = compile_part(&registry, Draft::Draft202012, "urn:part", pointer).unwrap();
        assert!(part.is_valid(&json!("x")) && !part.is_valid(&json!(1)));
    }
}

fn chain(parts: usize, last: Value, part: impl Fn(Value) -> Value) -> Value {
    let name = |n: usize| format!("d{n}");
    let next = |n: usize| match n + 1 == parts {
        true => last.clone(),
        false => part(json!({"$ref": format!("#/$defs/{}", name(n + 1))})),
    };
    let parts: serde_json::Map<String, Value> = (0..parts).map(|n| (name(n), next(n))).collect();
    json!({"$ref": "#/$defs/d0", "$defs": parts})
}

#[test]
fn references_lead_only_so_far_down() {
    let all_of = |next: Value| json!({"allOf": [next]});
    let deep = chain(1_000, json!({"type": "number"}), all_of);
    let compiled = compile(&deep).unwrap();
    assert!(compiled.is_valid(&json!(1)) && !compiled.is_valid(&json!("1")));
    let deeper = chain(2_000, json!({"type": "number"}), all_of);
    assert!(compile(&deeper).unwrap_err().to_string().contains("levels down"));
    // A payload as deep as payloads may be, and a schema that leads back to itself on each of its levels.
    let back = json!({"type": ["array", "number"], "items": {"$ref": "#/$defs/d0"}});
    let recursive = compile(&chain(30, back.clone(), all_of)).unwrap();
    let payload = (0..120).fold(json!(1), |inner, _| json!([inner]));
    assert!(recursive.is_valid(&payload));
    assert_eq!(recursive.iter_errors(&payload).count(), 0);
    assert!(compile(&chain(60, back, all_of)).unwrap_err().to_string().contains("themselves"));
}

#[test]
fn references_branch_only_so_often() {
    let twice = |next: Value| json!({"allOf": [next.clone(), next]});
    assert!(compile(&chain(10, json!({"type": "number"}), twice)).is_ok());
    assert!(compile(&chain(40, json!({"type": "number"}), twice)).unwrap_err().to_string().contains("ways"));
}

#[test]
fn patterns_are_weighed_and_bounded_together() {
    let weight = |schema: Value| compile_weighed(&schema).unwrap().1;
    assert_eq!(weight(json!({"type": "string", "format": "date"})), 0);
    let small = weight(json!({"pattern": "^a"}));
    assert!(small > 0 && weight(json!({"pattern": "^\\p{L}{20}$"})) > 4 * small);
    assert_eq!(weight(json!({"allOf": [{"pattern": "^a"}, {"pattern": "^a"}]})), small);
    assert_eq!(weight(json!({"pattern": "^a", "patternProperties": {"^b": {"pattern": "^c"}}})), 3 * small);
    let many = |count: usize| {
        let one = |n: usize| (format!("^\\p{{L}}{{20}}{n}$"), json!(true));
        json!({"patternProperties": Value::Object((0..count).map(one).collect())})
    };
    assert!(compile(&many(3)).is_ok());
    assert!(compile(&many(2_000)).unwrap_err().to_string().contains("patterns take more than"));
}
