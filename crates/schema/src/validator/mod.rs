//! Compiles a JSON Schema the way every part of the bus does.
//!
//! Drafts 2020-12 and 7. Formats are checked in both. Patterns run on the linear engine, so that no payload can make
//! a pattern slow. A reference stays inside its document.

pub use jsonschema::Validator;
use jsonschema::{Draft, PatternOptions, Registry, ValidationOptions};
use serde_json::Value;

use crate::error::BadSchema;

mod depth;
mod patterns;
#[cfg(test)]
mod tests;

/// Bytes that one compiled pattern may take, and again as many for its cache in each thread that runs it.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Compiles a schema.
pub fn compile(schema: &Value) -> Result<Validator, BadSchema> {
    compile_weighed(schema).map(|(validator, _)| validator)
}

/// Compiles a schema, and says how many bytes its patterns take.
pub fn compile_weighed(schema: &Value) -> Result<(Validator, usize), BadSchema> {
    let draft = draft_of(schema)?;
    depth::check(schema).map_err(BadSchema::whole)?;
    let pattern_bytes = patterns::weigh(schema, draft).map_err(BadSchema::whole)?;
    let validator = options(draft)
        .build(schema)
        .map_err(|error| BadSchema::at(error.instance_path().to_string(), error.to_string()))?;
    Ok((validator, pattern_bytes))
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

/// Compiles the part of a document that a JSON pointer names. The document is in the registry under that address.
pub(crate) fn compile_part(
    registry: &Registry<'_>,
    draft: Draft,
    address: &str,
    pointer: &str,
) -> Option<Validator> {
    let reference = serde_json::json!({ "$ref": format!("{address}#{}", fragment(pointer)) });
    options(draft).with_registry(registry).build(&reference).ok()
}

/// A JSON pointer as it is written behind the `#` of an address.
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

/// What is the same for every schema.
pub(crate) fn options<'a>(draft: Draft) -> ValidationOptions<'a> {
    options_with(draft, PATTERN_BYTES_MAX)
}

/// The same, with patterns of at most so many bytes.
fn options_with<'a>(draft: Draft, pattern_bytes_max: usize) -> ValidationOptions<'a> {
    let patterns = PatternOptions::regex().size_limit(pattern_bytes_max).dfa_size_limit(PATTERN_BYTES_MAX);
    jsonschema::options()
        .with_draft(draft)
        .offline()
        .should_validate_formats(true)
        .should_ignore_unknown_formats(true)
        .with_pattern_options(patterns)
}
