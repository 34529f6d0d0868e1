//! The refusal of a payload, with the rules that it breaks.

use promethean_model::TopicName;
use serde::Serialize;
use serde_json::Value;

use crate::validator::Validator;

/// Violations that a refusal lists, at most.
pub const VIOLATIONS_MAX: usize = 32;
/// Violations that are counted, at most.
const COUNTED_MAX: usize = 1_000;
/// Bytes of a message, and of a path, at most.
const TEXT_BYTES_MAX: usize = 256;

/// One rule that a payload breaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SchemaViolation {
    /// Where in the payload, as a JSON pointer; empty for the whole payload.
    pub path: String,
    /// The keyword of the schema that it breaks.
    pub rule: String,
    /// What is wrong, for people.
    pub message: String,
}

/// A payload that does not fit its schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SchemaRejected {
    /// The topic.
    pub topic: TopicName,
    /// The version it was checked against.
    pub version: u32,
    /// The first 32 violations.
    pub violations: Vec<SchemaViolation>,
    /// How many violations there are; 1,000 stands for 1,000 or more. Where looking for all would take long, only
    /// one is named and counted.
    pub total: usize,
    /// The index of the event in its batch, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
}

impl SchemaRejected {
    /// Collects what a validator finds wrong in a payload that it refused. Looks for all violations for so many
    /// steps, then for the first one for as many. A violation takes at least one step, and some 500 bytes.
    pub fn new(topic: &TopicName, version: u32, validator: &Validator, payload: &Value, steps: u64) -> Self {
        let (mut violations, mut total) = (Vec::new(), 0);
        let all = validator.broken_rules(payload, steps, COUNTED_MAX, |error| {
            total += 1;
            if violations.len() < VIOLATIONS_MAX {
                violations.push(SchemaViolation::of(&error));
            }
        });
        if all.is_err() {
            let first = validator.first_broken_rule(payload, steps).ok().flatten();
            violations.push(first.map_or_else(SchemaViolation::unknown, |error| SchemaViolation::of(&error)));
            total = 1;
        }
        Self { topic: topic.clone(), version, violations, total, index: None }
    }
}

impl SchemaViolation {
    fn of(error: &jsonschema::ValidationError<'_>) -> Self {
        Self {
            path: short(error.instance_path().to_string()),
            rule: error.kind().keyword().to_owned(),
            message: short(error.to_string()),
        }
    }

    /// The violation of a payload that breaks rules in too many alternatives to name one.
    fn unknown() -> Self {
        Self {
            path: String::new(),
            rule: "schema".to_owned(),
            message: "it fits none of the schema's alternatives, and there are too many to say where"
                .to_owned(),
        }
    }
}

impl std::fmt::Display for SchemaRejected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { topic, version, violations, total, index } = self;
        if let Some(index) = index {
            write!(f, "event {index}: ")?;
        }
        write!(f, "the payload does not fit schema version {version} of topic `{topic}`")?;
        if let Some(SchemaViolation { path, message, .. }) = violations.first() {
            let path = if path.is_empty() { "/" } else { path };
            write!(f, ": at `{path}`, {message}")?;
        }
        if *total > 1 {
            write!(f, ", and {} more", total - 1)?;
        }
        write!(f, "; repair it, or name the version that it fits in the header `{}`", crate::VERSION_HEADER)
    }
}

impl std::error::Error for SchemaRejected {}

/// Cuts a text that may quote a large payload.
fn short(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        let end = (0..=TEXT_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push('\u{2026}');
    }
    text
}
