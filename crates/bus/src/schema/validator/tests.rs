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
        assert!(matches!(compile(&json!({ "$schema": name })), Err(BadSchema::Draft(_))), "{name}");
    }
}

#[test]
fn a_draft_has_its_own_rules() {
    let schema =
        |draft: &str| json!({ "$schema": draft, "items": [{ "type": "string" }], "additionalItems": false });
    assert!(compile(&schema("http://json-schema.org/draft-07/schema#")).unwrap().is_valid(&json!(["a"])));
    assert!(matches!(
        compile(&schema("https://json-schema.org/draft/2020-12/schema")),
        Err(BadSchema::Invalid { .. })
    ));
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
    let Err(BadSchema::Invalid { path, .. }) =
        compile(&json!({ "properties": { "a": { "type": "strin" } } }))
    else {
        panic!("compiled");
    };
    assert_eq!(path, "/properties/a/type");
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
