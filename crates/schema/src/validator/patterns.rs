//! The memory that the patterns of a schema take once they are compiled. A short pattern such as `\p{L}{20}` can take much.

use std::collections::BTreeSet;

use jsonschema::Draft;
use serde_json::{Value, json};

use super::{PATTERN_BYTES_MAX, options_with};

/// Sizes that a pattern is compiled with to weigh it, ascending; the last is the most it may have.
const SIZES: [usize; 5] = [16 << 10, 64 << 10, 256 << 10, 512 << 10, PATTERN_BYTES_MAX];
/// Bytes that the patterns of one schema may take together.
const ALL_BYTES_MAX: usize = 64 << 20;

/// Weighs the patterns of a schema: bytes that they take together, rounded up. Refuses too many, with the reason.
pub(super) fn weigh(schema: &Value, draft: Draft) -> Result<usize, String> {
    let mut sum = 0;
    for pattern in all(schema) {
        sum += size(pattern, draft);
        if sum > ALL_BYTES_MAX {
            return Err(format!(
                "its patterns take more than {ALL_BYTES_MAX} bytes together; use fewer or simpler ones"
            ));
        }
    }
    Ok(sum)
}

/// Bytes that a pattern takes. A malformed pattern is refused later, when the schema is compiled.
fn size(pattern: &str, draft: Draft) -> usize {
    let schema = json!({ "pattern": pattern });
    let fits = |size: &&usize| options_with(draft, **size).build(&schema).is_ok();
    SIZES.iter().find(fits).copied().unwrap_or(PATTERN_BYTES_MAX)
}

/// All texts in a value that look like patterns; one that is none does no harm. A pattern that occurs twice is compiled
/// once.
fn all(schema: &Value) -> BTreeSet<&str> {
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
