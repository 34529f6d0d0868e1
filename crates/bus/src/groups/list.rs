//! Lists groups with their progress.

use promethean_delivery::{BlockedKey, DeliveryStatus, Reason, Subject, decode_finished};
use promethean_model::{GroupName, Offset, TopicName};
use promethean_store::port::Table;

use super::Groups;
use super::MemberStatus;
use super::lookup::{group_on, group_row, group_rows, view_owner};
use crate::error::BusError;
use crate::rows::{GroupKey, GroupRow, group_prefix};

/// A group.
#[derive(Debug, Clone)]
pub struct GroupInfo {
    /// The group's name.
    pub group: GroupName,
    /// The topic or pattern that it is subscribed to.
    pub subject: Subject,
    /// Its stored row: options, whether it is paused, and when it was created.
    pub row: GroupRow,
    /// Its progress on each of its topics, ordered by name.
    pub topics: Vec<GroupProgress>,
    /// The topic to go on after, if the group of a pattern may have more topics than are listed.
    pub next_topic: Option<TopicName>,
}

/// Topics of a pattern that a page of groups shows for each group.
const TOPICS_SHOWN: usize = 100;
/// Topics that a page of groups looks at to find those of its groups. The group at which the page reaches this number is
/// its last, so a page looks at no more than these and once at every topic.
const TOPICS_LOOKED_AT: usize = 10_000;
/// Rows of groups read at once.
const ROWS_PAGE: usize = 500;

/// The progress of a group on one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupProgress {
    /// The topic.
    pub topic: TopicName,
    /// Every offset below this one is finished.
    pub floor: Offset,
    /// The topic's durable end.
    pub end: Offset,
    /// How many events are not finished.
    pub lag: u64,
    /// How many events are leased.
    pub in_flight: usize,
    /// How many members the group has in this process.
    pub members: usize,
    /// Its members, at most 100; first the members whose events block others.
    pub member_list: Vec<MemberStatus>,
    /// Why nothing is delivered at this moment; `None` while events are delivered.
    pub reason: Option<Reason>,
    /// How many events retention removed before the group got them, since its owner started.
    pub expired: u64,
    /// Keys whose events wait, each with the event that blocks it.
    pub blocked_keys: Vec<BlockedKey>,
    /// The last error of the store or of the follower, if there is one.
    pub failure: Option<String>,
}

/// Which groups to list.
#[derive(Debug, Clone, Copy, Default)]
pub struct GroupQuery<'a> {
    /// Only groups that reach this topic, with their progress on it alone.
    pub topic: Option<&'a TopicName>,
    /// Only groups after this one, in the order of their names and subjects.
    pub after: Option<&'a GroupKey>,
}

/// A page of groups.
#[derive(Debug, Clone, Default)]
pub struct GroupPage {
    /// The groups, by name and subject.
    pub groups: Vec<GroupInfo>,
    /// The group to go on after, if there may be more.
    pub next: Option<GroupKey>,
}

impl Groups {
    /// Every group, or the groups of one topic, with their progress on all their topics.
    pub(crate) async fn list(&self, topic: Option<&TopicName>) -> Result<Vec<GroupInfo>, BusError> {
        let mut found = Vec::new();
        for (key, row) in group_rows(self, b"").await? {
            if topic.is_none_or(|topic| key.subject.matches(topic)) {
                found.push(self.info(key, row, topic, usize::MAX).await?.0);
            }
        }
        Ok(found)
    }

    /// Groups that are wanted, at most `limit`, and fewer where finding their topics is much work. Only of these the progress
    /// is read. `next` names only a group that is wanted: a client must not learn the names of others.
    pub(crate) async fn page(
        &self,
        query: GroupQuery<'_>,
        limit: usize,
        wanted: impl Fn(&GroupKey) -> bool,
    ) -> Result<GroupPage, BusError> {
        let mut after = query.after.map(|key| GroupKey::encode(&key.group, &key.subject));
        let mut page = GroupPage::default();
        let mut looked = 0;
        loop {
            let rows = self.base.store.rows(Table::Groups, b"", after.as_deref(), ROWS_PAGE).await?;
            for row in &rows {
                let key = GroupKey::decode(&row.key)?;
                if query.topic.is_some_and(|topic| !key.subject.matches(topic)) || !wanted(&key) {
                    continue;
                }
                if page.groups.len() == limit || looked >= TOPICS_LOOKED_AT {
                    return Ok(page);
                }
                let row = GroupRow::decode(&row.value)?;
                if !row.deleting {
                    page.next = Some(key.clone());
                    let (info, more) = self.info(key, row, query.topic, TOPICS_SHOWN).await?;
                    looked += more;
                    page.groups.push(info);
                }
            }
            let Some(last) = rows.last() else {
                page.next = None;
                return Ok(page);
            };
            after = Some(last.key.clone());
        }
    }

    /// Whether there is a group of this name on exactly this subject.
    pub(crate) async fn has(&self, group: &GroupName, subject: &Subject) -> Result<bool, BusError> {
        Ok(group_row(self, group, subject).await?.is_some())
    }

    /// One group of this name, with its progress on at most 100 topics after `after`. Of several that cover the subject,
    /// the one that names it exactly.
    pub(crate) async fn find(
        &self,
        group: &GroupName,
        subject: &Subject,
        after: Option<&TopicName>,
    ) -> Result<Option<GroupInfo>, BusError> {
        let rows = group_rows(self, &group_prefix(group)).await?;
        let mut found: Vec<_> = rows.into_iter().filter(|(key, _)| key.subject.contains(subject)).collect();
        found.sort_by_key(|(key, _)| key.subject != *subject);
        let Some((key, row)) = found.into_iter().next() else { return Ok(None) };
        let (info, _) = match subject.topic() {
            Some(topic) => self.info(key, row, Some(topic), TOPICS_SHOWN).await?,
            None => self.info_after(key, row, after, TOPICS_SHOWN).await?,
        };
        Ok(Some(info))
    }

    /// A group with its progress on one of its topics, or on all of them, at most `limit`, and how many topics were looked
    /// at.
    async fn info(
        &self,
        key: GroupKey,
        row: GroupRow,
        topic: Option<&TopicName>,
        limit: usize,
    ) -> Result<(GroupInfo, usize), BusError> {
        match topic.or_else(|| key.subject.topic()).cloned() {
            Some(topic) => {
                let topics = self.started_progress(&topic, &key.group).await?.into_iter().collect();
                Ok((GroupInfo { group: key.group, subject: key.subject, row, topics, next_topic: None }, 1))
            }
            None => self.info_after(key, row, None, limit).await,
        }
    }

    /// A group of a pattern, with its progress on at most `limit` topics after `after`, and how many topics were looked at.
    async fn info_after(
        &self,
        key: GroupKey,
        row: GroupRow,
        after: Option<&TopicName>,
        limit: usize,
    ) -> Result<(GroupInfo, usize), BusError> {
        let GroupKey { group, subject } = key;
        let Subject::Pattern(pattern) = &subject else {
            return Ok((GroupInfo { group, subject, row, topics: Vec::new(), next_topic: None }, 0));
        };
        let (mut names, looked) = self.topics.matching_after(pattern, after, limit.saturating_add(1)).await?;
        let more = names.len() > limit;
        names.truncate(limit);
        let next_topic = names.last().filter(|_| more).cloned();
        let mut topics = Vec::new();
        for topic in &names {
            topics.extend(self.started_progress(topic, &group).await?);
        }
        Ok((GroupInfo { group, subject, row, topics, next_topic }, looked))
    }

    /// The progress of a group on a topic, if it has begun there.
    async fn started_progress(
        &self,
        topic: &TopicName,
        group: &GroupName,
    ) -> Result<Option<GroupProgress>, BusError> {
        match self.base.store.cursor(group, topic).await? {
            Some(_) => self.progress_of(topic, group).await.map(Some),
            None => Ok(None),
        }
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
        if let Some(view) = view_owner(self, topic, group).await {
            let DeliveryStatus { floor, end, lag, in_flight, expired, blocked_keys, .. } = view.status;
            return Ok(GroupProgress {
                topic: topic.clone(),
                floor,
                end,
                lag,
                in_flight,
                members: view.members,
                member_list: view.member_list,
                reason: view.reason,
                expired,
                blocked_keys,
                failure: view.failure.map(|failure| failure.to_string()),
            });
        }
        let (floor, end, lag) = self.committed_progress(topic, group).await?;
        let following = self.followers.get(group, topic);
        let is_following = following.is_some();
        let failure = following.and_then(|state| state.failure);
        let reason = match (&failure, lag, is_following) {
            (Some(failure), _, _) => Some(failure.reason),
            (None, 0, _) => Some(Reason::CaughtUp),
            (None, _, false) => Some(Reason::NoMembers),
            (None, _, true) => None,
        };
        Ok(GroupProgress {
            topic: topic.clone(),
            floor,
            end,
            lag,
            in_flight: 0,
            members: usize::from(is_following),
            member_list: Vec::new(),
            reason,
            expired: 0,
            blocked_keys: Vec::new(),
            failure: failure.map(|failure| failure.message),
        })
    }

    /// Floor, end and lag as the store has them.
    pub(super) async fn committed_progress(
        &self,
        topic: &TopicName,
        group: &GroupName,
    ) -> Result<(Offset, Offset, u64), BusError> {
        let cursor = self.base.store.cursor(group, topic).await?;
        // A group without a cursor on a topic starts at offset 0.
        let cursor = cursor.unwrap_or_default();
        let end = self.base.store.durable_end(topic).max(cursor.floor);
        let finished = decode_finished(&cursor.data, cursor.floor)
            .map_err(|error| BusError::StorageFailed { reason: error.to_string() })?;
        let above: u64 = finished.iter().map(promethean_model::OffsetRange::len).sum();
        Ok((cursor.floor, end, end.since(cursor.floor).saturating_sub(above)))
    }
}
