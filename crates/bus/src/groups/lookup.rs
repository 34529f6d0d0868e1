//! The rows of groups, and questions to owners.

use std::sync::Arc;

use promethean_delivery::Subject;
use promethean_model::{GroupName, TopicName};
use promethean_store::port::Table;
use tokio::sync::oneshot;

use super::Groups;
use super::message::{OwnerMessage, OwnerView};
use super::owner::WantedOwner;
use crate::error::BusError;
use crate::rows::{GroupKey, GroupRow, group_prefix};

/// Rows read at once.
const ROWS_PAGE: usize = 500;

/// The group as it concerns one topic: by its name, or by a pattern that matches it.
pub(crate) async fn group_on(
    groups: &Groups,
    group: &GroupName,
    topic: &TopicName,
) -> Result<(Subject, GroupRow), BusError> {
    let exact = Subject::Topic(topic.clone());
    if let Some(row) = group_row(groups, group, &exact).await? {
        return Ok((exact, row));
    }
    let rows = group_rows(groups, &group_prefix(group)).await?;
    let matching = rows.into_iter().find(|(key, _)| key.subject.matches(topic));
    let unknown = || BusError::UnknownGroup { group: group.clone(), subject: topic.to_string() };
    matching.map(|(key, row)| (key.subject, row)).ok_or_else(unknown)
}

/// All groups whose key begins so. One that is being deleted is none.
pub(crate) async fn group_rows(
    groups: &Groups,
    prefix: &[u8],
) -> Result<Vec<(GroupKey, GroupRow)>, BusError> {
    let mut rows = stored_rows(groups, prefix).await?;
    rows.retain(|(_, row)| !row.deleting);
    Ok(rows)
}

/// All rows of groups whose key begins so.
pub(crate) async fn stored_rows(
    groups: &Groups,
    prefix: &[u8],
) -> Result<Vec<(GroupKey, GroupRow)>, BusError> {
    let mut found = Vec::new();
    let mut after: Option<Vec<u8>> = None;
    loop {
        let rows = groups.base.store.rows(Table::Groups, prefix, after.as_deref(), ROWS_PAGE).await?;
        for row in &rows {
            found.push((GroupKey::decode(&row.key)?, GroupRow::decode(&row.value)?));
        }
        match rows.into_iter().last() {
            Some(last) => after = Some(last.key),
            None => return Ok(found),
        }
    }
}

/// Asks an owner, which is started if need be.
pub(crate) async fn ask_owner<T>(
    groups: &Arc<Groups>,
    wanted: &WantedOwner,
    command: impl FnOnce(oneshot::Sender<Result<T, BusError>>) -> OwnerMessage,
) -> Result<T, BusError> {
    let (answer, answered) = oneshot::channel();
    groups.owners.send(groups, wanted, command(answer))?;
    answered.await.unwrap_or(Err(BusError::Closed))
}

/// What an owner says of itself, if there is one.
pub(super) async fn view_owner(groups: &Groups, topic: &TopicName, group: &GroupName) -> Option<OwnerView> {
    let owner = groups.owners.get(topic, group)?;
    let (answer, answered) = oneshot::channel();
    // One that ends meanwhile is as good as none.
    owner.mailbox.send_now(OwnerMessage::Look(answer)).ok()?;
    answered.await.ok()?.ok()
}

/// The group's row, if the group is there. One that is being deleted is not.
pub(crate) async fn group_row(
    groups: &Groups,
    group: &GroupName,
    subject: &Subject,
) -> Result<Option<GroupRow>, BusError> {
    Ok(stored_row(groups, group, subject).await?.filter(|row| !row.deleting))
}

/// The group's row as it is stored.
pub(crate) async fn stored_row(
    groups: &Groups,
    group: &GroupName,
    subject: &Subject,
) -> Result<Option<GroupRow>, BusError> {
    let value = groups.base.store.row(Table::Groups, &GroupKey::encode(group, subject)).await?;
    Ok(value.map(|value| GroupRow::decode(&value)).transpose()?)
}

/// The group's row; an error if the group is not there.
pub(crate) async fn require_group(
    groups: &Groups,
    group: &GroupName,
    subject: &Subject,
) -> Result<GroupRow, BusError> {
    let unknown = || BusError::UnknownGroup { group: group.clone(), subject: subject.to_string() };
    group_row(groups, group, subject).await?.ok_or_else(unknown)
}
