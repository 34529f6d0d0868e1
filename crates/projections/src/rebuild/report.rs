//! The report of a projector's last rebuild, which is kept over restarts.

use promethean_model::GroupName;
use promethean_store::port::{Batch, RowOp, Store, Table};
use serde::{Deserialize, Serialize};

use crate::definition::bad;
use crate::error::ProjectionError;
use crate::status::RebuildStatus;

/// The version of the form of [`RebuildReport`].
const REPORT_VERSION: u32 = 1;

/// What is kept of a projector's last rebuild, in the table `Projectors` under its name and `\0rebuild`.
///
/// Written durably before the rebuild makes dead letters, and so before its collections replace the served
/// ones. The projector's own row gets the same number of `letters` together with the collections. If the two
/// numbers differ at a start, there are letters of events that the served state still counts, so that the
/// projector must be rebuilt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RebuildReport {
    v: u32,
    /// The number of rebuilds that were about to make dead letters.
    pub(crate) letters: u64,
    /// The last status of the rebuild.
    pub(crate) status: RebuildStatus,
}

impl RebuildReport {
    pub(crate) const fn new(letters: u64, status: RebuildStatus) -> Self {
        Self { v: REPORT_VERSION, letters, status }
    }

    /// Reads the report of a projector's last rebuild.
    pub(crate) async fn read(
        store: &dyn Store,
        projector: &GroupName,
    ) -> Result<Option<Self>, ProjectionError> {
        let Some(value) = store.row(Table::Projectors, &Self::key(projector)).await? else { return Ok(None) };
        let unreadable = |reason| bad(format!("the last rebuild of projector `{projector}`"), reason);
        let report: Self = serde_json::from_slice(&value).map_err(|error| unreadable(error.to_string()))?;
        match report.v {
            REPORT_VERSION => Ok(Some(report)),
            other => Err(unreadable(format!("version {other}"))),
        }
    }

    /// Writes the report durably.
    pub(crate) async fn write(
        &self,
        store: &dyn Store,
        projector: &GroupName,
    ) -> Result<(), ProjectionError> {
        let value = serde_json::to_vec(self)
            .map_err(|error| bad(format!("the rebuild of projector `{projector}`"), error.to_string()))?;
        let (table, key) = (Table::Projectors, Self::key(projector));
        store.commit(Batch::new().with(RowOp::Put { table, key, value, must_be_new: false })).await?;
        Ok(())
    }

    fn key(projector: &GroupName) -> Vec<u8> {
        let mut key = projector.as_str().as_bytes().to_vec();
        key.extend_from_slice(b"\0rebuild");
        key
    }
}
