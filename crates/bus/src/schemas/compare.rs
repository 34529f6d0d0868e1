//! The comparison of a new version with those before.

use std::sync::Arc;

use promethean_model::{TopicName, TopicSettings};
use promethean_schema::compat::{self, Direction};
use promethean_schema::{Compared, SchemaText};
use serde_json::Value;

use super::Schemas;
use super::catalog;
use super::registry::SchemaInfo;
use crate::error::BusError;

/// Compares with all versions that the topic's rule names, the latest first.
pub(super) async fn compare(
    schemas: &Schemas,
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
        if schemas.base.is_closed() {
            return Err(BusError::Closed);
        }
        let old = catalog::stored(schemas, topic, version).await?;
        let new: Arc<Value> = Arc::clone(&new);
        let one = move |direction: &Direction| Compared {
            version,
            direction: *direction,
            report: compat::check(old.value(), &new, *direction, undeclared),
        };
        compared
            .extend(catalog::aside(schemas, move || directions.iter().map(one).collect::<Vec<_>>()).await?);
    }
    Ok(compared)
}
