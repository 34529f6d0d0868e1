//! The bounds of a schema: its depth when references are followed, since compiling and checking recurse that deep,
//! and the memory of its compiled patterns, since a short pattern such as `\p{L}{20}` can take much.

use std::collections::{BTreeMap, BTreeSet};

use jsonschema::Draft;
use jsonschema::json::SerdeJson;
use serde_json::{Value, json};

use super::{PATTERN_BYTES_MAX, options_with};

/// Levels of all targets of references together, at most. Compiling a schema recurses through each of them
/// once.
const LEVELS_MAX: usize = 4_096;
/// Levels of the targets that lead back to themselves, at most. Checking recurses through them once for every
/// level of a payload, which has up to 120.
const CYCLE_LEVELS_MAX: usize = 160;

/// Ways through references from the root, at most. Each is followed for every payload.
const WAYS_MAX: u64 = 50_000;

/// Refuses a schema that is too deep or branches too often, with the reason.
pub(super) fn check_depth(schema: &Value) -> Result<(), String> {
    let mut targets = Targets::new();
    let mut found = references(schema);
    while let Some(reference) = found.pop_first() {
        if targets.contains_key(&reference) {
            continue;
        }
        let target = resolve(schema, &reference);
        let further = references(target);
        found.extend(further.iter().cloned());
        targets.insert(reference, BoundTarget { depth: depth(target), further, in_place: in_place(target) });
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

/// The target of a reference.
struct BoundTarget {
    depth: usize,
    /// The references in it.
    further: BTreeSet<String>,
    /// The references that apply to the same value of a payload, and how often each occurs.
    in_place: BTreeMap<String, u64>,
}

type Targets = BTreeMap<String, BoundTarget>;

/// How many ways lead on from these references, for one value. A reference that is being followed already is
/// not counted again: the payload ends the recursion.
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

/// All texts in a value that look like references; one that is none does no harm. Definitions are left out:
/// they are read where a reference leads to them.
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

/// The references of a schema that apply to the same value of a payload as the schema does.
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

/// The target of a reference. Where it cannot be told, the whole document, which is at least as deep.
fn resolve<'a>(schema: &'a Value, reference: &str) -> &'a Value {
    let pointer = reference.strip_prefix('#').filter(|pointer| !pointer.contains('%'));
    pointer.and_then(|pointer| schema.pointer(pointer)).unwrap_or(schema)
}

/// How deep a value is nested. It recurses, at most as deep as JSON may be.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 1,
    }
}

/// Sizes that a pattern is compiled with to weigh it, ascending; the last is the most it may have.
const PATTERN_SIZES: [usize; 5] = [16 << 10, 64 << 10, 256 << 10, 512 << 10, PATTERN_BYTES_MAX];
/// Bytes that the patterns of one schema may take together.
const ALL_PATTERNS_BYTES_MAX: usize = 64 << 20;

/// Weighs the patterns of a schema: bytes that they take together, rounded up. Refuses too many, with the
/// reason.
pub(super) fn weigh_patterns(schema: &Value, draft: Draft) -> Result<usize, String> {
    let mut sum = 0;
    for pattern in patterns(schema) {
        sum += pattern_bytes(pattern, draft);
        if sum > ALL_PATTERNS_BYTES_MAX {
            return Err(format!(
                "its patterns take more than {ALL_PATTERNS_BYTES_MAX} bytes together; use fewer or simpler ones"
            ));
        }
    }
    Ok(sum)
}

/// Bytes that a pattern takes. A malformed pattern is refused later, when the schema is compiled.
fn pattern_bytes(pattern: &str, draft: Draft) -> usize {
    let schema = json!({ "pattern": pattern });
    let fits = |size: &&usize| options_with::<SerdeJson>(draft, **size).build(&schema).is_ok();
    PATTERN_SIZES.iter().find(fits).copied().unwrap_or(PATTERN_BYTES_MAX)
}

/// All texts in a value that look like patterns; one that is none does no harm. A pattern that occurs twice
/// is compiled once.
fn patterns(schema: &Value) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let mut next = vec![schema];
    while let Some(value) = next.pop() {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    match (name.as_str(), member) {
                        ("pattern", Value::String(pattern)) => drop(found.insert(pattern.as_str())),
                        ("patternProperties", Value::Object(patterns)) => {
                            found.extend(patterns.keys().map(String::as_str));
                        }
                        _ => {}
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
