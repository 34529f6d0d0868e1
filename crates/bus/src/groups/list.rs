//! Groups and how far they are.

use promethean_delivery::{BlockedKey, DeliveryStatus, Reason, Subject, decode_finished};
use promethean_model::{GroupName, Offset, TopicName};

use super::Groups;
use super::lookup::{group_on, group_rows, view_owner};
use crate::error::BusError;
use crate::rows::GroupRow;

/// A group.
#[derive(Debug, Clone)]
pub struct GroupInfo {
    /// Its name.
    pub group: GroupName,
    /// What it is subscribed to.
    pub subject: Subject,
    /// Its options, whether it is paused, and since when it exists.
    pub row: GroupRow,
    /// How far it is on each of its topics, by name.
    pub topics: Vec<GroupProgress>,
}

/// How far a group is on one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupProgress {
    /// The topic.
    pub topic: TopicName,
    /// Every offset below is finished.
    pub floor: Offset,
    /// The topic's durable end.
    pub end: Offset,
    /// Events not finished.
    pub lag: u64,
    /// Events leased.
    pub in_flight: usize,
    /// Members in this process.
    pub members: usize,
    /// Why nothing is delivered at this moment; `None` while something is.
    pub reason: Option<Reason>,
    /// Events that retention dropped before the group was given them, since its owner began.
    pub expired: u64,
    /// Keys whose events wait, and for which.
    pub blocked_keys: Vec<BlockedKey>,
    /// What the store said last, if it failed.
    pub failure: Option<String>,
}

impl Groups {
    /// Every group, or the groups of one topic.
    pub(crate) async fn list(&self, topic: Option<&TopicName>) -> Result<Vec<GroupInfo>, BusError> {
        let mut found = Vec::new();
        for (key, row) in group_rows(self, b"").await? {
            if topic.is_some_and(|topic| !key.subject.matches(topic)) {
                continue;
            }
            let mut topics = Vec::new();
            for cursor in self.base.store.cursors_of_group(&key.group).await? {
                let wanted = topic.is_none_or(|topic| *topic == cursor.topic);
                if wanted && key.subject.matches(&cursor.topic) {
                    topics.push(self.progress_of(&cursor.topic, &key.group).await?);
                }
            }
            found.push(GroupInfo { group: key.group, subject: key.subject, row, topics });
        }
        Ok(found)
    }

    /// The progress of a group on a topic.
    pub(crate) async fn progress(
        &self,
        topic: &TopicName,
        group: &GroupName,
    ) -> Result<GroupProgress, BusError> {
        group_on(self, group, topic).await?;
        self.progress_of(topic, group).await
    }

    async fn progress_of(&self, topic: &TopicName, group: &GroupName) -> Result<GroupProgress, BusError> {
        if let Some(seen) = view_owner(self, topic, group).await {
            let DeliveryStatus { floor, end, lag, in_flight, expired, blocked_keys, .. } = seen.status;
            return Ok(GroupProgress {
                topic: topic.clone(),
                floor,
                end,
                lag,
                in_flight,
                members: seen.members,
                reason: seen.reason,
                expired,
                blocked_keys,
                failure: seen.failure.map(|failure| failure.to_string()),
            });
        }
        let (floor, end, lag) = self.committed_progress(topic, group).await?;
        let following = self.followers.get(group, topic);
        let reason = match (lag, &following) {
            (0, _) => Some(Reason::CaughtUp),
            (_, None) => Some(Reason::NoMembers),
            (_, Some(_)) => None,
        };
        Ok(GroupProgress {
            topic: topic.clone(),
            floor,
            end,
            lag,
            in_flight: 0,
            members: usize::from(following.is_some()),
            reason,
            expired: 0,
            blocked_keys: Vec::new(),
            failure: following.flatten(),
        })
    }

    /// Floor, end and lag as they are in the store.
    async fn committed_progress(
        &self,
        topic: &TopicName,
        group: &GroupName,
    ) -> Result<(Offset, Offset, u64), BusError> {
        let cursor = self.base.store.cursor(group, topic).await?;
        // A topic that the group has no cursor on yet is delivered from its beginning.
        let cursor = cursor.unwrap_or_default();
        let end = self.base.store.durable_end(topic).max(cursor.floor);
        let finished = decode_finished(&cursor.data, cursor.floor)
            .map_err(|error| BusError::StorageFailed { reason: error.to_string() })?;
        let above: u64 = finished.iter().map(promethean_model::OffsetRange::len).sum();
        Ok((cursor.floor, end, end.since(cursor.floor).saturating_sub(above)))
    }
}
