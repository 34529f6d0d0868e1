//! What users see of versions, and of registering one.

use promethean_model::{Compat, TopicName, Undeclared};
use promethean_schema::Compared;
use serde::Serialize;

/// The facts about a version, without its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SchemaInfo {
    /// Its number, from 1.
    pub version: u32,
    /// A hash, equal for schemas that say the same.
    pub fingerprint: String,
    /// The rule by which it was compared.
    pub compat: Compat,
    /// What the comparison took undeclared properties for.
    pub undeclared: Undeclared,
    /// Whether it was registered by force, because the comparison could not decide.
    pub forced: bool,
    /// When it was registered, epoch ms.
    pub created: i64,
    /// The length of its text.
    pub bytes: usize,
}

/// A version with its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoredSchema {
    /// The facts about it.
    #[serde(flatten)]
    pub info: SchemaInfo,
    /// Its text, as it was given.
    pub schema: String,
}

/// The version to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhichSchema {
    /// The one with the highest number.
    Latest,
    /// The one with this number.
    Version(u32),
}

/// How to register a schema.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RegisterOptions {
    /// The number to give it, above that of the latest; without one, the next number.
    pub version: Option<u32>,
    /// Whether to register what the comparison cannot decide.
    pub force: bool,
    /// Whether to write nothing and only answer what would happen.
    pub dry_run: bool,
}

/// The answer to registering a schema.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Registered {
    /// The topic.
    pub topic: TopicName,
    /// Its version.
    pub version: u32,
    /// Whether the latest version says the same, so that nothing was written.
    pub unchanged: bool,
    /// Whether the comparison could not decide, and it was forced.
    pub forced: bool,
    /// Whether nothing was written because a dry run was asked for.
    pub dry_run: bool,
    /// The comparisons, the latest version first.
    pub compared: Vec<Compared>,
}

/// A topic with schemas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SchemaTopic {
    /// The topic.
    pub topic: TopicName,
    /// How many versions it has.
    pub versions: usize,
    /// The latest of them.
    pub latest: u32,
}

/// A page of topics with schemas, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SchemaTopics {
    /// The topics.
    pub topics: Vec<SchemaTopic>,
    /// The name after which the next page begins; `None` if this page was not full.
    pub next: Option<TopicName>,
}
