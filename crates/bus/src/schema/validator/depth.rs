//! How deep a schema is when its references are followed. Compiling and checking go down that far, on the stack.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Levels of all that references lead to. Each is gone down once when a schema is compiled.
const LEVELS_MAX: usize = 4_096;
/// Levels of what leads back to itself. Each is gone down once for every level of a payload, which has up to 120.
const CYCLE_LEVELS_MAX: usize = 160;

/// Refuses a schema that is too deep, with the reason.
pub(super) fn check(schema: &Value) -> Result<(), String> {
    let mut targets = BTreeMap::new();
    let mut found = references(schema);
    while let Some(reference) = found.pop_first() {
        if targets.contains_key(&reference) {
            continue;
        }
        let target = resolve(schema, &reference);
        let further = references(target);
        found.extend(further.iter().cloned());
        targets.insert(reference, (depth(target), further));
    }
    let levels = depth(schema) + targets.values().map(|(depth, _)| depth).sum::<usize>();
    if levels > LEVELS_MAX {
        return Err(format!("its references lead {levels} levels down, of at most {LEVELS_MAX}; use fewer"));
    }
    let in_cycles = targets.iter().filter(|(name, _)| leads_to_itself(name, &targets));
    let levels: usize = in_cycles.map(|(_, (depth, _))| depth).sum();
    if levels > CYCLE_LEVELS_MAX {
        return Err(format!(
            "the parts that lead back to themselves are {levels} levels deep, of at most {CYCLE_LEVELS_MAX}; make them smaller"
        ));
    }
    Ok(())
}

type Targets = BTreeMap<String, (usize, BTreeSet<String>)>;

fn leads_to_itself(name: &str, targets: &Targets) -> bool {
    let mut seen = BTreeSet::new();
    let mut next = vec![name];
    while let Some(at) = next.pop() {
        for further in targets.get(at).into_iter().flat_map(|(_, further)| further) {
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

/// All references in a value, wherever they are: what is none does no harm.
fn references(value: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut next = vec![value];
    while let Some(value) = next.pop() {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
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
