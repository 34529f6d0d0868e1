//! The comparison of a new version with those before.

use std::sync::Arc;

use promethean_model::{Compat, TopicName, TopicSettings};
use serde::Serialize;
use serde_json::Value;

use super::book;
use super::compat::{self, Direction, Report, Verdict};
use super::registry::SchemaInfo;
use super::text::SchemaText;
use crate::core::Core;
use crate::error::BusError;

/// A comparison with one version, one way.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// The version it was compared with.
    pub version: u32,
    /// Which way.
    pub direction: Direction,
    /// What came out.
    #[serde(flatten)]
    pub report: Report,
}

/// A new version that does not fit, or of which that cannot be told.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Incompatible {
    /// The topic.
    pub topic: TopicName,
    /// The rule.
    pub compat: Compat,
    /// `incompatible`, or `undecidable` if that is the worst.
    pub verdict: Verdict,
    /// Every comparison that did not come out well.
    pub compared: Vec<Compared>,
}

// Numbers in findings come from JSON, which has none that differ from themselves.
impl Eq for Incompatible {}

impl std::fmt::Display for Incompatible {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { topic, verdict, compared, .. } = self;
        let first = compared.first();
        let version = first.map_or(0, |compared| compared.version);
        let finding = first.and_then(|compared| compared.report.findings.first());
        let what = match verdict {
            Verdict::Undecidable => "cannot be compared",
            _ => "is not compatible",
        };
        write!(f, "the schema {what} with version {version} of topic `{topic}`")?;
        if let Some(finding) = finding {
            write!(
                f,
                ": {} at `{}`: {}",
                finding.rule.word(),
                finding.path,
                finding.fix.trim_end_matches('.')
            )?;
        }
        let way = match verdict {
            Verdict::Undecidable => "register it with `force` if you know that it is",
            _ => "change it, or set the topic's `compat` to none",
        };
        write!(f, "; {way}")
    }
}

impl std::error::Error for Incompatible {}

/// Compares with all versions that the topic's rule names, the latest first.
pub(super) async fn compare(
    core: &Core,
    topic: &TopicName,
    settings: &TopicSettings,
    versions: &[SchemaInfo],
    new: &SchemaText,
) -> Result<Vec<Compared>, BusError> {
    let (directions, all) = Direction::asked_by(settings.compat);
    let numbers = versions.iter().rev().map(|known| known.version).take(if all { usize::MAX } else { 1 });
    let mut compared = Vec::new();
    if directions.is_empty() {
        return Ok(compared);
    }
    let undeclared = settings.undeclared;
    let new = Arc::new(new.value().clone());
    for version in numbers {
        if core.is_closed() {
            return Err(BusError::Closed);
        }
        let old = book::stored(core, topic, version).await?;
        let new: Arc<Value> = Arc::clone(&new);
        let one = move |direction: &Direction| Compared {
            version,
            direction: *direction,
            report: compat::check(old.value(), &new, *direction, undeclared),
        };
        compared.extend(book::aside(core, move || directions.iter().map(one).collect::<Vec<_>>()).await?);
    }
    Ok(compared)
}

/// Refuses what did not come out well, unless it is forced; forced is only what cannot be told.
pub(super) fn judge(
    topic: &TopicName,
    compat: Compat,
    compared: &[Compared],
    force: bool,
) -> Result<bool, BusError> {
    let verdict = match Verdict::worst(compared.iter().map(|compared| compared.report.verdict)) {
        Verdict::Compatible => return Ok(false),
        Verdict::Undecidable if force => return Ok(true),
        bad => bad,
    };
    let mut bad: Vec<Compared> =
        compared.iter().filter(|compared| compared.report.verdict != Verdict::Compatible).cloned().collect();
    // What is worst is told first.
    bad.sort_by_key(|compared| compared.report.verdict != verdict);
    Err(BusError::SchemaIncompatible(Box::new(Incompatible {
        topic: topic.clone(),
        compat,
        verdict,
        compared: bad,
    })))
}
