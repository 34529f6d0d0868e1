//! Random schemas and instances, small enough that an instance often fits a schema.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

const NAMES: [&str; 4] = ["a", "b", "ab", "kind"];
const PATTERNS: [&str; 4] = ["^a", "b$", "^[a-z]$", "^[0-9]+$"];
const FORMATS: [&str; 4] = ["date", "ipv4", "uuid", "nickname"];
const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

/// A whole document of one draft or the other, with two definitions that may refer to each other.
pub(super) fn schema() -> BoxedStrategy<Value> {
    let parts = (node(), node(), node(), prop::bool::weighted(0.2));
    parts
        .prop_map(|(mut root, one, two, seventh)| {
            if !root.is_object() {
                root = json!({ "anyOf": [root] });
            }
            let map = root.as_object_mut().unwrap();
            map.insert("$defs".into(), json!({ "one": one, "two": two }));
            if seventh {
                map.insert("$schema".into(), json!("http://json-schema.org/draft-07/schema#"));
            }
            root
        })
        .boxed()
}

fn node() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        8 => vec(keyword(), 0..4).prop_map(merged),
        2 => select(TYPES.to_vec()).prop_map(|name| json!({ "type": name })),
        1 => any::<bool>().prop_map(Value::from),
        1 => select(vec!["#/$defs/one", "#/$defs/two", "#"]).prop_map(|at| json!({ "$ref": at })),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        vec(prop_oneof![2 => keyword(), 3 => applicator(inner)], 1..4).prop_map(merged)
    })
    .boxed()
}

fn merged(keywords: Vec<Value>) -> Value {
    let mut all = Map::new();
    for keyword in keywords {
        all.extend(keyword.as_object().cloned().unwrap_or_default());
    }
    Value::Object(all)
}

fn small() -> BoxedStrategy<Value> {
    prop_oneof![3 => (-2_i64..6).prop_map(Value::from), 1 => (-4_i64..12).prop_map(|half| json!(half as f64 / 2.0))].boxed()
}

fn name() -> BoxedStrategy<&'static str> {
    select(NAMES.to_vec()).boxed()
}

fn scalar() -> BoxedStrategy<Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        small(),
        select(vec!["", "a", "ab", "b", "x", "12", "2024-01-01", "1.2.3.4"]).prop_map(Value::from),
    ]
    .boxed()
}

fn keyword() -> BoxedStrategy<Value> {
    let count = || 0_u8..4;
    let numbers = || (select(vec!["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]), small());
    let counts = (
        select(vec![
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
            "minContains",
            "maxContains",
        ]),
        count(),
    );
    prop_oneof![
        4 => vec(select(TYPES.to_vec()), 1..4).prop_map(|mut names| {
            names.sort_unstable();
            names.dedup();
            json!({ "type": names })
        }),
        3 => select(TYPES.to_vec()).prop_map(|name| json!({ "type": name })),
        3 => numbers().prop_map(|(keyword, value)| json!({ keyword: value })),
        1 => numbers().prop_map(|(keyword, value)| json!({ "not": { keyword: value } })),
        1 => Just(json!({ "additionalProperties": false })),
        3 => counts.prop_map(|(keyword, value)| json!({ keyword: value })),
        1 => select(vec![json!(1), json!(2), json!(3), json!(4), json!(0.5), json!(1.5), json!(0.25), json!(0.75), json!(0.1)]).prop_map(|step| json!({ "multipleOf": step })),
        1 => select(PATTERNS.to_vec()).prop_map(|pattern| json!({ "pattern": pattern })),
        1 => select(FORMATS.to_vec()).prop_map(|format| json!({ "format": format })),
        1 => any::<bool>().prop_map(|unique| json!({ "uniqueItems": unique })),
        2 => vec(instance(), 1..4).prop_map(|values| json!({ "enum": values })),
        1 => instance().prop_map(|value| json!({ "const": value })),
        3 => vec(name(), 0..3).prop_map(|mut names| {
            names.sort_unstable();
            names.dedup();
            json!({ "required": names })
        }),
        1 => (name(), name()).prop_map(|(one, two)| json!({ "dependentRequired": { one: [two] } })),
        1 => (name(), name()).prop_map(|(one, two)| json!({ "dependencies": { one: [two] } })),
        1 => Just(json!({ "title": "t", "default": 1 })),
    ]
    .boxed()
}

fn applicator(inner: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    let one = move || inner.clone();
    let (many, map) = (one.clone(), one.clone());
    let several = move || vec(many(), 1..4);
    let named = move || prop::collection::btree_map(name(), map(), 1..4);
    prop_oneof![
        6 => named().prop_map(|map| json!({ "type": "object", "properties": map })),
        2 => named().prop_map(|map| json!({ "properties": map, "additionalProperties": false })),
        2 => one().prop_map(|schema| json!({ "additionalProperties": schema })),
        2 => (select(PATTERNS.to_vec()), one()).prop_map(|(pattern, schema)| json!({ "patternProperties": { pattern: schema } })),
        1 => one().prop_map(|schema| json!({ "propertyNames": schema })),
        2 => one().prop_map(|schema| json!({ "items": schema })),
        1 => several().prop_map(|list| json!({ "prefixItems": list })),
        1 => (several(), one()).prop_map(|(list, rest)| json!({ "items": list, "additionalItems": rest })),
        1 => one().prop_map(|schema| json!({ "contains": schema })),
        2 => several().prop_map(|list| json!({ "allOf": list })),
        3 => several().prop_map(|list| json!({ "anyOf": list })),
        3 => several().prop_map(|list| json!({ "oneOf": list })),
        1 => one().prop_map(|schema| json!({ "not": schema })),
        1 => (one(), one(), one()).prop_map(|(a, b, c)| json!({ "if": a, "then": b, "else": c })),
        1 => (name(), one()).prop_map(|(name, schema)| json!({ "dependentSchemas": { name: schema } })),
        1 => one().prop_map(|schema| json!({ "unevaluatedProperties": schema })),
    ]
    .boxed()
}

/// An instance that is made without a schema.
pub(super) fn instance() -> BoxedStrategy<Value> {
    scalar()
        .prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(name(), inner, 0..4).prop_map(|map| json!(map)),
            ]
        })
        .boxed()
}

/// A small generator whose numbers follow from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides.max(1)
    }
}

/// A copy with one to three keywords changed, added or dropped somewhere.
pub(super) fn mutated(schema: &Value, seed: u64) -> Value {
    let mut dice = Dice(seed);
    let mut copy = schema.clone();
    for _ in 0..=dice.roll(3) {
        let mut places = Vec::new();
        collect(&copy, String::new(), false, &mut places);
        let place = places[dice.roll(places.len())].clone();
        if let Some(Value::Object(map)) = copy.pointer_mut(&place) {
            change(map, &mut dice);
        }
    }
    copy
}

/// The pointers of all schemas.
fn collect(value: &Value, at: String, names: bool, places: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            if !names {
                places.push(at.clone());
            }
            for (key, value) in map {
                let data = ["enum", "const", "required", "type", "dependentRequired", "default"];
                if names || !data.contains(&key.as_str()) {
                    let step = key.replace('~', "~0").replace('/', "~1");
                    let maps =
                        ["properties", "patternProperties", "$defs", "dependentSchemas", "dependencies"];
                    collect(value, format!("{at}/{step}"), !names && maps.contains(&key.as_str()), places);
                }
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                collect(value, format!("{at}/{index}"), false, places);
            }
        }
        _ => {}
    }
}

fn change(map: &mut Map<String, Value>, dice: &mut Dice) {
    let keys: Vec<String> = map.keys().filter(|key| !key.starts_with('$')).cloned().collect();
    if !keys.is_empty() && dice.roll(3) > 0 {
        let key = keys[dice.roll(keys.len())].clone();
        if dice.roll(3) == 0 {
            map.remove(&key);
        } else if let Some(value) = map.get_mut(&key) {
            change_value(&key, value, dice);
        }
        return;
    }
    let count = json!(dice.roll(4));
    let added = [
        ("type", json!(TYPES[dice.roll(7)])),
        ("minimum", count.clone()),
        ("exclusiveMaximum", count.clone()),
        ("minLength", count.clone()),
        ("maxItems", count.clone()),
        ("required", json!([NAMES[dice.roll(4)]])),
        ("additionalProperties", json!(dice.roll(2) == 0)),
        ("properties", json!({ NAMES[dice.roll(4)]: { "type": TYPES[dice.roll(7)] } })),
        ("uniqueItems", json!(true)),
        ("maxProperties", count),
        ("not", json!({ "type": TYPES[dice.roll(7)] })),
        ("title", json!("changed")),
    ];
    let (key, value) = added[dice.roll(added.len())].clone();
    map.insert(key.into(), value);
}

fn change_value(key: &str, value: &mut Value, dice: &mut Dice) {
    match value {
        Value::Number(number) if key != "multipleOf" => {
            let by = [-1.0, 1.0, 0.5, 2.0][dice.roll(4)];
            let whole = !key.contains("imum");
            let moved = (number.as_f64().unwrap() + by).max(if whole { 0.0 } else { -9.0 });
            *value = if whole { json!(moved as u64) } else { json!(moved) };
        }
        Value::Number(_) => *value = json!([1, 2, 3, 4, 6][dice.roll(5)]),
        Value::Array(list) if key != "prefixItems" && dice.roll(2) == 0 && list.len() > 1 => {
            let place = dice.roll(list.len());
            list.remove(place);
        }
        Value::Array(list) if key == "enum" => list.push(json!(["a", "z", "12"][dice.roll(3)])),
        Value::Array(list) if key == "required" => list.push(json!(["q", "z"][dice.roll(2)])),
        Value::Array(list) if key == "type" => list.reverse(),
        Value::Array(list) if key.ends_with("Of") => match dice.roll(3) {
            0 => list.push(json!({ "type": TYPES[dice.roll(7)] })),
            1 => list.reverse(),
            _ => list.push(list[0].clone()),
        },
        Value::String(text) if key == "type" => {
            *value = match text.as_str() {
                "integer" => json!("number"),
                other => json!([other, if other == "null" { "string" } else { "null" }]),
            };
        }
        Value::Bool(said) => *value = json!(!*said),
        Value::Object(map) if key == "properties" && dice.roll(2) == 0 => {
            map.insert(NAMES[dice.roll(4)].into(), json!({ "type": TYPES[dice.roll(7)] }));
        }
        _ => {}
    }
}

/// Instances near a schema: its values, its bounds and their neighbours, put together by its structure.
pub(super) fn near(schema: &Value, seed: u64) -> Vec<Value> {
    let mut dice = Dice(seed ^ 0x5eed);
    (0..40).map(|_| grown(schema, schema, &mut dice, 5)).collect()
}

/// A value that is made without the schema.
fn plain(dice: &mut Dice) -> Value {
    let some = [
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(1),
        json!(1.5),
        json!(-1),
        json!("a"),
        json!(""),
        json!("ab"),
        json!("zzz"),
        json!([]),
        json!({}),
        json!([1, 1]),
        json!({ "a": 1 }),
        json!({ "q": "x", "b": 2 }),
        json!("12"),
    ];
    some[dice.roll(some.len())].clone()
}

fn grown(root: &Value, schema: &Value, dice: &mut Dice, depth: usize) -> Value {
    let Some(map) = schema.as_object().filter(|_| depth > 0) else { return plain(dice) };
    let keys: Vec<&String> = map.keys().collect();
    if keys.is_empty() || dice.roll(12) == 0 {
        return plain(dice);
    }
    if map.keys().any(|key| key.to_lowercase().contains("propert") || key == "required") && dice.roll(3) > 0 {
        return grown_object(root, map, dice, depth);
    }
    let key = keys[dice.roll(keys.len())];
    let said = &map[key];
    match (key.as_str(), said) {
        ("enum", Value::Array(list)) => list[dice.roll(list.len())].clone(),
        ("const", value) => value.clone(),
        ("$ref", Value::String(at)) => match root.pointer(&at[1..]) {
            Some(target) => grown(root, target, dice, depth - 1),
            None => plain(dice),
        },
        ("allOf" | "anyOf" | "oneOf", Value::Array(list)) => {
            grown(root, &list[dice.roll(list.len())], dice, depth - 1)
        }
        ("not" | "if" | "then" | "else", schema) => grown(root, schema, dice, depth - 1),
        ("minLength" | "maxLength", Value::Number(length)) => {
            let length = usize::try_from(length.as_u64().unwrap_or(0)).unwrap() + dice.roll(3);
            json!("a".repeat(length.saturating_sub(1)))
        }
        (_, Value::Number(number)) => {
            let float = number.as_f64().unwrap() + [0.0, 1.0, -1.0, 0.5][dice.roll(4)];
            if float.fract() == 0.0 { json!(float as i64) } else { json!(float) }
        }
        ("items" | "contains", schema) if !schema.is_array() => {
            json!((0..dice.roll(4)).map(|_| grown(root, schema, dice, depth - 1)).collect::<Vec<_>>())
        }
        ("prefixItems" | "items", Value::Array(list)) => {
            let mut items: Vec<Value> =
                list.iter().map(|schema| grown(root, schema, dice, depth - 1)).collect();
            match dice.roll(3) {
                0 => items.push(plain(dice)),
                1 => items.truncate(1),
                _ => {}
            }
            json!(items)
        }
        ("type", said) => of_type(said, dice),
        ("format", _) => {
            json!(["2024-01-01", "1.2.3.4", "123e4567-e89b-12d3-a456-426614174000", "x"][dice.roll(4)])
        }
        _ => plain(dice),
    }
}

fn grown_object(root: &Value, map: &Map<String, Value>, dice: &mut Dice, depth: usize) -> Value {
    let mut object = Map::new();
    for (name, schema) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if dice.roll(3) > 0 {
            object.insert(name.clone(), grown(root, schema, dice, depth - 1));
        }
    }
    for name in map.get("required").and_then(Value::as_array).into_iter().flatten() {
        let name = name.as_str().unwrap();
        if !object.contains_key(name) && dice.roll(8) > 0 {
            let schema = map.get("properties").and_then(|map| map.get(name)).unwrap_or(&Value::Null);
            object.insert(name.into(), grown(root, schema, dice, depth - 1));
        }
    }
    if dice.roll(3) == 0 {
        let schema = map.get("additionalProperties").unwrap_or(&Value::Null);
        object.insert(
            ["q", "a", "b", "ab", "kind", "z", "12"][dice.roll(7)].into(),
            grown(root, schema, dice, depth - 1),
        );
    }
    Value::Object(object)
}

fn of_type(said: &Value, dice: &mut Dice) -> Value {
    let name = match said {
        Value::Array(names) => names[dice.roll(names.len())].as_str(),
        other => other.as_str(),
    };
    match name.unwrap_or_default() {
        "boolean" => json!(dice.roll(2) == 0),
        "integer" => json!([json!(0), json!(3), json!(-2), json!(2.0), json!(7)][dice.roll(5)]),
        "number" => json!([json!(0.5), json!(3), json!(-1.5), json!(2.5)][dice.roll(4)]),
        "string" => json!(["", "a", "b", "ab", "abc", "12"][dice.roll(6)]),
        "array" => json!([json!([]), json!([1]), json!([1, "a", null]), json!([{}, {}])][dice.roll(4)]),
        "object" => json!(
            [json!({}), json!({ "a": 1 }), json!({ "a": "x", "b": null }), json!({ "q": 1 })][dice.roll(4)]
        ),
        _ => Value::Null,
    }
}
