//! Compiles a JSON Schema into a validator, the same way for every user.
//!
//! Drafts 2020-12 and 7 are understood, and formats are checked in both. Patterns run on the linear engine,
//! so that no payload can make a pattern slow. A reference stays inside its document. A check ends after a
//! bounded number of steps, see `metered`.

use std::sync::Arc;

use jsonschema::json::{Json, SerdeJson};
use jsonschema::{Draft, PatternOptions, Registry, Retrieve, ValidationError, ValidationOptions};
use serde_json::Value;

use self::metered::{Metered, MeteredValue};
use crate::error::BadSchema;

mod bounds;
mod metered;

pub use self::metered::OutOfSteps;

/// Bytes that one compiled pattern may take, and again as many for its cache in each thread that runs it.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// A compiled schema.
#[derive(Debug, Clone)]
pub struct Validator(jsonschema::Validator<Metered>);

impl Validator {
    /// Whether a payload fits, however long it takes to tell.
    pub fn is_valid(&self, payload: &Value) -> bool {
        self.0.is_valid(MeteredValue(payload))
    }

    /// Whether a payload fits, if that can be told within so many steps. A step is one look at one value of
    /// the payload by one keyword.
    pub fn fits(&self, payload: &Value, steps: u64) -> Result<bool, OutOfSteps> {
        metered::within(steps, || self.is_valid(payload))
    }

    /// Calls a function with each rule that a payload breaks, at most `most` of them, if all can be found within
    /// so many steps.
    pub(crate) fn broken_rules(
        &self,
        payload: &Value,
        steps: u64,
        most: usize,
        each: impl FnMut(ValidationError<'_>),
    ) -> Result<(), OutOfSteps> {
        // The validator makes all errors before it yields the first: their number is bounded by the steps alone.
        let errors = metered::within(steps, || self.0.iter_errors(MeteredValue(payload)))?;
        errors.take(most).for_each(each);
        Ok(())
    }

    /// The first rule that a payload breaks, if it can be found within so many steps.
    pub(crate) fn first_broken_rule<'a>(
        &self,
        payload: &'a Value,
        steps: u64,
    ) -> Result<Option<ValidationError<'a>>, OutOfSteps> {
        metered::within(steps, || self.0.validate(MeteredValue(payload)).err())
    }
}

/// Compiles a schema.
pub fn compile(schema: &Value) -> Result<Validator, BadSchema> {
    compile_weighed(schema).map(|(validator, _)| validator)
}

/// Compiles a schema. Returns the validator, and the bytes that its patterns take.
pub fn compile_weighed(schema: &Value) -> Result<(Validator, usize), BadSchema> {
    let draft = draft_of(schema)?;
    bounds::check_depth(schema).map_err(BadSchema::whole)?;
    let pattern_bytes = bounds::weigh_patterns(schema, draft).map_err(BadSchema::whole)?;
    let validator = options_with::<Metered>(draft, PATTERN_BYTES_MAX)
        .build(schema)
        .map_err(|error| BadSchema::at(error.instance_path().to_string(), error.to_string()))?;
    Ok((Validator(validator), pattern_bytes))
}

/// The draft that a schema is written in: the one it names, else 2020-12.
pub fn draft_of(schema: &Value) -> Result<Draft, BadSchema> {
    let Some(named) = schema.get("$schema") else { return Ok(Draft::Draft202012) };
    let name = named.as_str().unwrap_or_default();
    let place = name.strip_prefix("https://").or_else(|| name.strip_prefix("http://")).unwrap_or_default();
    match place.strip_suffix('#').unwrap_or(place) {
        "json-schema.org/draft/2020-12/schema" => Ok(Draft::Draft202012),
        "json-schema.org/draft-07/schema" => Ok(Draft::Draft7),
        _ => {
            let reason = format!(
                "the draft {named} is not understood; use https://json-schema.org/draft/2020-12/schema or http://json-schema.org/draft-07/schema#"
            );
            Err(BadSchema::at("/$schema".to_owned(), reason))
        }
    }
}

/// Compiles the part of a document that a JSON pointer names. The document is in the registry under that
/// address.
pub(crate) fn compile_part(
    registry: &Registry<'_>,
    draft: Draft,
    address: &str,
    pointer: &str,
) -> Option<Validator> {
    let reference = serde_json::json!({ "$ref": format!("{address}#{}", fragment(pointer)) });
    options_with::<Metered>(draft, PATTERN_BYTES_MAX)
        .with_registry(registry)
        .build(&reference)
        .ok()
        .map(Validator)
}

/// Writes a JSON pointer as the fragment of an address, behind the `#`.
fn fragment(pointer: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~$!&'()*+,;=:@".contains(&byte);
    let mut text = String::with_capacity(pointer.len());
    for byte in pointer.bytes() {
        if plain(byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// The options of the validator, equal for every schema. For single keywords, whose check needs no budget.
pub(crate) fn options<'a>(draft: Draft) -> ValidationOptions<'a> {
    options_with::<SerdeJson>(draft, PATTERN_BYTES_MAX)
}

/// The options of the validator, with patterns of at most so many bytes.
fn options_with<'a, F: Json>(
    draft: Draft,
    pattern_bytes_max: usize,
) -> ValidationOptions<'a, Arc<dyn Retrieve>, F> {
    let patterns = PatternOptions::regex().size_limit(pattern_bytes_max).dfa_size_limit(PATTERN_BYTES_MAX);
    ValidationOptions::default()
        .with_draft(draft)
        .offline()
        .should_validate_formats(true)
        .should_ignore_unknown_formats(true)
        .with_pattern_options(patterns)
}

#[cfg(test)]
mod tests {
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
        for name in [json!("http://json-schema.org/draft-04/schema#"), json!("draft-07"), json!(7), json!("")]
        {
            assert_eq!(compile(&json!({ "$schema": name })).unwrap_err().at, "/$schema", "{name}");
        }
    }

    #[test]
    fn a_draft_has_its_own_rules() {
        let schema = |draft: &str| json!({ "$schema": draft, "items": [{ "type": "string" }], "additionalItems": false });
        assert!(compile(&schema("http://json-schema.org/draft-07/schema#")).unwrap().is_valid(&json!(["a"])));
        let refused = compile(&schema("https://json-schema.org/draft/2020-12/schema")).unwrap_err();
        assert_ne!(refused.at, "/$schema");
    }

    #[test]
    fn formats_are_checked_in_both_drafts() {
        for draft in
            ["https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"]
        {
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
        let document =
            json!({ "$defs": { "a b/c": { "type": "string" }, "n": { "$ref": "#/$defs/a%20b~1c" } } });
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
        recursive.broken_rules(&payload, 1_000_000, 1, |error| panic!("{error}")).unwrap();
        assert!(compile(&chain(60, back, all_of)).unwrap_err().to_string().contains("themselves"));
    }

    #[test]
    fn references_branch_only_so_often() {
        let twice = |next: Value| json!({"allOf": [next.clone(), next]});
        assert!(compile(&chain(10, json!({"type": "number"}), twice)).is_ok());
        assert!(
            compile(&chain(40, json!({"type": "number"}), twice)).unwrap_err().to_string().contains("ways")
        );
    }

    #[test]
    fn patterns_are_weighed_and_bounded_together() {
        let weight = |schema: Value| compile_weighed(&schema).unwrap().1;
        assert_eq!(weight(json!({"type": "string", "format": "date"})), 0);
        let small = weight(json!({"pattern": "^a"}));
        assert!(small > 0 && weight(json!({"pattern": "^\\p{L}{20}$"})) > 4 * small);
        assert_eq!(weight(json!({"allOf": [{"pattern": "^a"}, {"pattern": "^a"}]})), small);
        assert_eq!(
            weight(json!({"pattern": "^a", "patternProperties": {"^b": {"pattern": "^c"}}})),
            3 * small
        );
        let many = |count: usize| {
            let one = |n: usize| (format!("^\\p{{L}}{{20}}{n}$"), json!(true));
            json!({"patternProperties": Value::Object((0..count).map(one).collect())})
        };
        assert!(compile(&many(3)).is_ok());
        assert!(compile(&many(2_000)).unwrap_err().to_string().contains("patterns take more than"));
    }
}
