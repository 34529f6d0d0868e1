//! How deep a schema is when its references are followed. Compiling and checking go down that far, on the stack.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Levels of all that references lead to. Each is gone down once when a schema is compiled.
const LEVELS_MAX: usize = 4_096;
/// Levels of what leads back to itself. Each is gone down once for every level of a payload, which has up to 120.
const CYCLE_LEVELS_MAX: usize = 160;

/// Ways through references from the root. Each is gone for every payload.
const WAYS_MAX: u64 = 50_000;

/// Refuses a schema that is too deep or branches too often, with the reason.
pub(super) fn check(schema: &Value) -> Result<(), String> {
    let mut targets = Targets::new();
    let mut found = references(schema);
    while let Some(reference) = found.pop_first() {
        if targets.contains_key(&reference) {
            continue;
        }
        let target = resolve(schema, &reference);
        let further = references(target);
        found.extend(further.iter().cloned());
        targets.insert(reference, Target { depth: depth(target), further, in_place: in_place(target) });
    }
    let ways = ways(&in_place(schema), &targets, &mut BTreeMap::new());
    if ways > WAYS_MAX {
        return Err(format!(
            "its references branch into {ways} ways, of at most {WAYS_MAX}; refer to the same part less often"
        ));
    }
    let levels = depth(schema) + targets.values().map(|target| target.depth).sum::<usize>();
    if levels > LEVELS_MAX {
        return Err(format!("its references lead {levels} levels down, of at most {LEVELS_MAX}; use fewer"));
    }
    let in_cycles = targets.iter().filter(|(name, _)| leads_to_itself(name, &targets));
    let levels: usize = in_cycles.map(|(_, target)| target.depth).sum();
    if levels > CYCLE_LEVELS_MAX {
        return Err(format!(
            "the parts that lead back to themselves are {levels} levels deep, of at most {CYCLE_LEVELS_MAX}; make them smaller"
        ));
    }
    Ok(())
}

const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// What a reference leads to.
struct Target {
    depth: usize,
    /// The references in it.
    further: BTreeSet<String>,
    /// Those that are followed without going down in a payload, and how often each occurs.
    in_place: BTreeMap<String, u64>,
}

type Targets = BTreeMap<String, Target>;

/// How many ways lead on from these references, for one value. One that is being followed already leads no further: whether it does is
/// up to the payload, which ends.
fn ways(from: &BTreeMap<String, u64>, targets: &Targets, known: &mut BTreeMap<String, u64>) -> u64 {
    let mut sum: u64 = 1;
    for (reference, times) in from {
        let each = match known.get(reference) {
            Some(ways) => *ways,
            None => {
                known.insert(reference.clone(), 1);
                let further = targets.get(reference).map(|target| &target.in_place);
                let ways = further.map_or(1, |further| ways(further, targets, known));
                known.insert(reference.clone(), ways);
                ways
            }
        };
        sum = sum.saturating_add(each.saturating_mul(*times));
    }
    sum
}

fn leads_to_itself(name: &str, targets: &Targets) -> bool {
    let mut seen = BTreeSet::new();
    let mut next = vec![name];
    while let Some(at) = next.pop() {
        for further in targets.get(at).into_iter().flat_map(|target| &target.further) {
            if further == name {
                return true;
            }
            if seen.insert(further.as_str()) {
                next.push(further);
            }
        }
    }
    false
}

/// All references in a value, wherever they are: what is none does no harm. Definitions are looked at where something
/// refers to them.
fn references(value: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut next = vec![value];
    while let Some(value) = next.pop() {
        match value {
            Value::Object(members) => {
                for (name, member) in members.iter().filter(|(name, _)| !DEFINITIONS.contains(&name.as_str()))
                {
                    if let ("$ref" | "$dynamicRef" | "$recursiveRef", Some(text)) =
                        (name.as_str(), member.as_str())
                    {
                        found.insert(text.to_owned());
                    }
                    next.push(member);
                }
            }
            Value::Array(items) => next.extend(items),
            _ => {}
        }
    }
    found
}

/// The references that apply to the same value as a schema does.
fn in_place(schema: &Value) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    let mut next = vec![schema];
    while let Some(Value::Object(members)) = next.pop() {
        for (name, member) in members {
            match (name.as_str(), member) {
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(text)) => {
                    *found.entry(text.clone()).or_default() += 1;
                }
                ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                    next.extend(schemas.iter().filter(|one| one.is_object()))
                }
                ("not" | "if" | "then" | "else", Value::Object(_)) => next.push(member),
                ("dependentSchemas" | "dependencies", Value::Object(schemas)) => {
                    next.extend(schemas.values().filter(|one| one.is_object()));
                }
                _ => {}
            }
        }
    }
    found
}

/// What a reference leads to; the whole document where that is not plain, which is at least as deep.
fn resolve<'a>(schema: &'a Value, reference: &str) -> &'a Value {
    let pointer = reference.strip_prefix('#').filter(|pointer| !pointer.contains('%'));
    pointer.and_then(|pointer| schema.pointer(pointer)).unwrap_or(schema)
}

/// At most as deep as JSON may be.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 1,
    }
}
