//! Any text that is given as a schema is answered in bounded time: compiled, compared, registered or refused.

use std::cell::Cell;

use promethean_bus::schemas::RegisterOptions;
use promethean_model::{Clock, SystemClock};
use promethean_schema::SchemaRejected;
use promethean_schema::SchemaText;
use promethean_schema::compat::{CompatDirection, Undeclared, check};
use promethean_schema::validator::compile;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};

use super::super::bus::harness::{StoreKind, World, topic};

/// Pairs that CI tries; `PROPTEST_CASES` asks for more.
const CASES: u32 = 600;
/// The time after which the bus gives up on a schema, also on a machine that is busy with other tests.
const TIME_MS_MAX: u64 = 10_000;

const NAMES: [&str; 6] = ["a", "b", "", "a/b~c", "\u{1f600}", "$ref"];
const TYPES: [&str; 8] = ["null", "boolean", "integer", "number", "string", "array", "object", "strin"];
const TEXTS: [&str; 22] = [
    "#",
    "#/$defs/a",
    "#/$defs/b",
    "#/properties/a",
    "#/%zz",
    "#a",
    "a.json",
    "http://x.invalid/",
    "",
    "^a",
    "(",
    "[",
    "a{1,9999}",
    "(a*)*$",
    "\\p{L}{20}",
    "(?=a)",
    "\\u{110000}",
    "date",
    "ipv4",
    "regex",
    "uuid",
    "-",
];
const DRAFTS: [&str; 4] = [
    "https://json-schema.org/draft/2020-12/schema",
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-03/schema#",
    "",
];
const COUNTS: [&str; 8] = [
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minContains",
    "maxContains",
];
const NUMBERS: [&str; 5] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];
const STRINGS: [&str; 8] =
    ["pattern", "format", "$ref", "$dynamicRef", "$anchor", "$id", "title", "contentEncoding"];
const ONE: [&str; 12] = [
    "not",
    "if",
    "then",
    "else",
    "items",
    "contains",
    "additionalProperties",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "additionalItems",
    "x-unknown",
];
const LISTS: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];
const MAPS: [&str; 6] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];

const OTHERS: [&str; 8] =
    ["$schema", "type", "enum", "required", "dependentRequired", "uniqueItems", "$vocabulary", "$comment"];

fn number() -> BoxedStrategy<Value> {
    prop_oneof![
        4 => (-3_i64..9).prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<u64>().prop_map(Value::from),
        1 => prop::num::f64::NORMAL.prop_map(Value::from),
        1 => select(vec!["1e400", "0.1", "-0.0", "123456789012345678901234567890", "1e-320"])
            .prop_map(|text| serde_json::from_str(text).unwrap_or(Value::Null)),
    ]
    .boxed()
}

fn scalar() -> BoxedStrategy<Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number(),
        select(TEXTS.to_vec()).prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ]
    .boxed()
}

/// Any JSON; some names are keywords.
fn any_json() -> BoxedStrategy<Value> {
    let name = prop_oneof![select(NAMES.to_vec()), select(ONE.to_vec()), select(MAPS.to_vec())];
    scalar()
        .prop_recursive(3, 12, 4, move |inner| {
            prop_oneof![
                vec(inner.clone(), 0..4).prop_map(Value::from),
                btree_map(name.clone().prop_map(str::to_owned), inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
        .boxed()
}

fn keyword(inner: BoxedStrategy<Value>) -> BoxedStrategy<(String, Value)> {
    let named = |names: &[&'static str]| select(names.to_vec());
    let types = prop_oneof![
        select(TYPES.to_vec()).prop_map(Value::from),
        vec(select(TYPES.to_vec()), 0..3).prop_map(Value::from)
    ];
    let names = vec(select(NAMES.to_vec()), 0..3).prop_map(Value::from);
    let keys = prop_oneof![select(NAMES.to_vec()), select(TEXTS.to_vec())].prop_map(str::to_owned);
    let map = btree_map(keys, inner.clone(), 0..3)
        .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>()));
    let every = [COUNTS.as_slice(), &NUMBERS, &STRINGS, &ONE, &LISTS, &MAPS, &OTHERS].concat();
    prop_oneof![
        2 => (named(&COUNTS), (0_u64..5).prop_map(Value::from)),
        2 => (named(&NUMBERS), number()),
        2 => (named(&STRINGS), select(TEXTS.to_vec()).prop_map(Value::from)),
        3 => (named(&ONE), inner.clone()),
        2 => (named(&LISTS), vec(inner, 0..3).prop_map(Value::from)),
        3 => (named(&MAPS), map),
        3 => (Just("type"), types),
        1 => (Just("$schema"), select(DRAFTS.to_vec()).prop_map(Value::from)),
        1 => (Just("enum"), vec(any_json(), 0..4).prop_map(Value::from)),
        1 => (Just("const"), any_json()),
        1 => (Just("required"), names),
        2 => (select(every), any_json()),
    ]
    .prop_map(|(name, value)| (name.to_owned(), value))
    .boxed()
}

/// Mostly a schema, or close to one.
fn schema() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        select(TYPES.to_vec()).prop_map(|name| json!({ "type": name })),
        select(TEXTS.to_vec()).prop_map(|at| json!({ "$ref": at })),
    ];
    let node = leaf.prop_recursive(4, 30, 4, |inner| {
        vec(keyword(inner), 0..4).prop_map(|members| Value::Object(members.into_iter().collect()))
    });
    prop_oneof![9 => node, 1 => any_json()].boxed()
}

#[test]
fn nothing_panics_or_takes_for_ever() {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(CASES);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let clock = SystemClock::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let world = runtime.block_on(World::new(StoreKind::Memory));
    let (compiled, registered, topics) = (Cell::new(0_u32), Cell::new(0_u32), Cell::new(0_u32));
    let outcome = TestRunner::new(config).run(&(schema(), schema(), any_json()), |(old, new, instance)| {
        let began = clock.monotonic_ms();
        for one in [&old, &new] {
            if let Ok(validator) = compile(one) {
                compiled.set(compiled.get() + 1);
                let broken = SchemaRejected::new(&topic("t"), 1, &validator, &instance, u64::MAX).violations;
                prop_assert_eq!(validator.is_valid(&instance), broken.is_empty());
            }
        }
        for undeclared in [Undeclared::Any, Undeclared::Absent] {
            for direction in [CompatDirection::Backward, CompatDirection::Forward] {
                let report = check(&old, &new, direction, undeclared);
                prop_assert!(report.findings.iter().all(|finding| !finding.fix.is_empty()));
            }
        }
        topics.set(topics.get() + 1);
        let on = topic(&format!("t{}", topics.get()));
        for one in [&old, &new] {
            let register = async {
                let text = SchemaText::parse(one.to_string())?;
                world.bus.check_schema(&on, text.clone()).await?;
                world.bus.register_schema(&on, text, RegisterOptions::default()).await
            };
            match runtime.block_on(register) {
                Ok(_) => registered.set(registered.get() + 1),
                Err(error) => {
                    let code = error.code();
                    prop_assert!(matches!(code, "bad_schema" | "schema_incompatible"), "{}", error);
                    prop_assert!(!error.to_string().contains("inside the validator"), "{}", error);
                }
            }
        }
        let validated = runtime.block_on(world.bus.validate(&on, &instance.to_string(), None));
        if let Err(error) = validated {
            prop_assert_eq!(error.code(), "schema_rejected");
        }
        let took = clock.monotonic_ms() - began;
        prop_assert!(took < TIME_MS_MAX, "{} ms", took);
        Ok(())
    });
    outcome.unwrap();
    let (compiled, registered) = (compiled.get(), registered.get());
    println!("{compiled} of {} compiled, {registered} registered", 2 * cases);
    assert!(compiled > cases / 2 && registered > cases / 3, "hardly anything is a schema");
}
