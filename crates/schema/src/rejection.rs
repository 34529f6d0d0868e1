//! The refusal of a payload, with the rules that it breaks.

use promethean_model::TopicName;
use serde::Serialize;
use serde_json::Value;

use crate::validator::Validator;

/// Violations that a refusal lists, at most.
pub const VIOLATIONS_MAX: usize = 32;
/// Violations that are counted, at most.
const COUNTED_MAX: usize = 1_000;
/// Bytes of a payload up to which all violations are looked for; of a larger payload, only the first.
const ALL_TOLD_BYTES_MAX: usize = 16 << 10;
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
    /// How many violations there are; 1,000 stands for 1,000 or more. Of a payload above 16 KiB only the first is looked for.
    pub total: usize,
    /// The index of the event in its batch, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
}

impl SchemaRejected {
    /// Collects what a validator finds wrong in a payload that it refused. `bytes` is the size of the payload.
    pub fn new(
        topic: &TopicName,
        version: u32,
        validator: &Validator,
        payload: &Value,
        bytes: usize,
    ) -> Self {
        let (mut violations, mut total) = (Vec::new(), 0);
        let mut add = |error: jsonschema::ValidationError<'_>| {
            total += 1;
            if violations.len() < VIOLATIONS_MAX {
                violations.push(SchemaViolation {
                    path: short(error.instance_path().to_string()),
                    rule: error.kind().keyword().to_owned(),
                    message: short(error.to_string()),
                });
            }
        };
        // The validator makes all errors before it yields the first, and each error quotes a part of the payload.
        if bytes > ALL_TOLD_BYTES_MAX {
            validator.validate(payload).err().into_iter().for_each(&mut add);
        } else {
            validator.iter_errors(payload).take(COUNTED_MAX).for_each(&mut add);
        }
        Self { topic: topic.clone(), version, violations, total, index: None }
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
