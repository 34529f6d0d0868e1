//! What is kept of a projector beside its cursor and documents, in the table `Projectors` under its name.

use promethean_model::{GroupName, TopicName};
use promethean_store::port::{RowOp, Table};
use serde::{Deserialize, Serialize};

const VERSION: u32 = 1;

/// Written in the same derived commit as the first cursor, so neither is ever there without the other, except where the
/// topic was deleted and took the cursor with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProjectorRow {
    v: u32,
    /// The topic it reads.
    pub(crate) topic: TopicName,
    /// What it was defined as when its state was begun.
    pub(crate) fingerprint: u64,
    /// Where it began.
    pub(crate) start: u64,
}

impl ProjectorRow {
    pub(crate) const fn new(topic: TopicName, fingerprint: u64, start: u64) -> Self {
        Self { v: VERSION, topic, fingerprint, start }
    }

    pub(crate) fn key(name: &GroupName) -> Vec<u8> {
        name.as_str().as_bytes().to_vec()
    }

    pub(crate) fn put(&self, name: &GroupName) -> Result<RowOp, String> {
        let value = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        Ok(RowOp::Put { table: Table::Projectors, key: Self::key(name), value, must_be_new: false })
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Self, String> {
        let row: Self = serde_json::from_slice(value).map_err(|error| error.to_string())?;
        if row.v == VERSION { Ok(row) } else { Err(format!("version {}", row.v)) }
    }
}
