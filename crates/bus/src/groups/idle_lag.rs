//! The lag of groups that have no owner, for the metrics: a group whose members are all gone is the one whose lag an
//! operator must see.

use std::sync::Mutex;

use promethean_delivery::Subject;
use promethean_model::{GroupName, IgnorePoison, TopicName};
use promethean_store::port::Table;

use super::Groups;
use crate::error::BusError;
use crate::metrics::GroupMetrics;
use crate::rows::{GroupKey, GroupRow};

/// Groups on a topic that one scrape of the metrics reads from the store, at most.
const MEASURED_MAX: usize = 1_000;
/// Rows of groups read at once.
const ROWS_PAGE: usize = 500;

/// The shares of groups without an owner in the metrics, as they were last measured.
#[derive(Debug, Default)]
pub(crate) struct IdleLag {
    shares: Mutex<Vec<GroupMetrics>>,
}

impl Groups {
    /// Puts the lag of groups without an owner into the metrics.
    pub(crate) async fn measure_idle(&self) -> Result<(), BusError> {
        let mut shares = Vec::new();
        let mut after: Option<Vec<u8>> = None;
        while shares.len() < MEASURED_MAX {
            let rows = self.base.store.rows(Table::Groups, b"", after.as_deref(), ROWS_PAGE).await?;
            let Some(last) = rows.last() else { break };
            after = Some(last.key.clone());
            for row in &rows {
                if shares.len() < MEASURED_MAX && !GroupRow::decode(&row.value)?.deleting {
                    self.measure(GroupKey::decode(&row.key)?, &mut shares).await?;
                }
            }
        }
        *self.idle_lag.shares.lock().ignore_poison() = shares;
        Ok(())
    }

    async fn measure(&self, key: GroupKey, shares: &mut Vec<GroupMetrics>) -> Result<(), BusError> {
        match &key.subject {
            Subject::Topic(topic) => self.measure_topic(topic, &key.group, shares).await,
            Subject::Pattern(pattern) => {
                let room = MEASURED_MAX - shares.len();
                for topic in self.topics.matching_after(pattern, None, room).await?.0 {
                    self.measure_topic(&topic, &key.group, shares).await?;
                }
                Ok(())
            }
        }
    }

    async fn measure_topic(
        &self,
        topic: &TopicName,
        group: &GroupName,
        shares: &mut Vec<GroupMetrics>,
    ) -> Result<(), BusError> {
        let is_measured =
            self.owners.get(topic, group).is_some() || self.followers.get(group, topic).is_some();
        if is_measured || self.base.store.cursor(group, topic).await?.is_none() {
            return Ok(());
        }
        let (_, _, lag) = self.committed_progress(topic, group).await?;
        let share = self.base.metrics.group(topic, group);
        share.set_lag(i64::try_from(lag).unwrap_or(i64::MAX));
        shares.push(share);
        Ok(())
    }
}
