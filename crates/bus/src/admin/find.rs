//! Which row of a group speaks for a topic.

use std::sync::Arc;

use promethean_delivery::Subject;
use promethean_model::{GroupName, TopicName};
use promethean_store::port::Table;
use tokio::sync::oneshot;

use crate::core::Core;
use crate::error::BusError;
use crate::group::{Command, Seen, Wanted};
use crate::rows::{GroupKey, GroupRow, group_prefix};
use crate::subscribe::group_row;

/// Rows read at once.
pub(super) const ROWS_PAGE: usize = 500;

/// The group as it concerns one topic: by its name, or by a pattern that matches it.
pub(crate) async fn group_on(
    core: &Core,
    group: &GroupName,
    topic: &TopicName,
) -> Result<(Subject, GroupRow), BusError> {
    let exact = Subject::Topic(topic.clone());
    if let Some(row) = group_row(core, group, &exact).await? {
        return Ok((exact, row));
    }
    let rows = group_rows(core, &group_prefix(group)).await?;
    let matching = rows.into_iter().find(|(key, _)| key.subject.matches(topic));
    let unknown = || BusError::UnknownGroup { group: group.clone(), subject: topic.to_string() };
    matching.map(|(key, row)| (key.subject, row)).ok_or_else(unknown)
}

/// All groups whose key begins so. One that is being deleted is none.
pub(crate) async fn group_rows(core: &Core, prefix: &[u8]) -> Result<Vec<(GroupKey, GroupRow)>, BusError> {
    let mut rows = stored_rows(core, prefix).await?;
    rows.retain(|(_, row)| !row.deleting);
    Ok(rows)
}

/// All rows of groups whose key begins so.
pub(crate) async fn stored_rows(core: &Core, prefix: &[u8]) -> Result<Vec<(GroupKey, GroupRow)>, BusError> {
    let mut found = Vec::new();
    let mut after: Option<Vec<u8>> = None;
    loop {
        let rows = core.store.rows(Table::Groups, prefix, after.as_deref(), ROWS_PAGE).await?;
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
    core: &Arc<Core>,
    wanted: &Wanted,
    command: impl FnOnce(oneshot::Sender<Result<T, BusError>>) -> Command,
) -> Result<T, BusError> {
    let (answer, answered) = oneshot::channel();
    core.owners.send(core, wanted, command(answer))?;
    answered.await.unwrap_or(Err(BusError::Closed))
}

/// What an owner says of itself, if there is one.
pub(super) async fn look(core: &Core, topic: &TopicName, group: &GroupName) -> Option<Seen> {
    let owner = core.owners.get(topic, group)?;
    let (answer, answered) = oneshot::channel();
    // One that ends meanwhile is as good as none.
    owner.mailbox.send_now(Command::Look(answer)).ok()?;
    answered.await.ok()?.ok()
}
