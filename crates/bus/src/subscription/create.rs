//! Creating a group: its row, and a cursor on each of its topics.

use std::sync::Arc;

use promethean_delivery::{DeliveryError, Subject};
use promethean_model::{GroupName, Offset, TopicName};
use promethean_store::port::{Batch, CommitError, Cursor, CursorOp, RowOp, Table};

use super::request::Subscribe;
use crate::error::BusError;
use crate::groups::{Groups, finish_named, group_rows, stored_row};
use crate::rows::{GroupKey, GroupOptions, GroupRow, StartPosition, group_prefix};
use crate::topics::{TopicEntry, floor_of};

/// Cursors written in one batch.
const CURSORS_PER_BATCH: usize = 500;

/// Finds or creates the group, and checks that its options are the ones asked for. Returns its row, and whether the group
/// is new. Called under the group's lock.
pub(super) async fn find_or_create(
    groups: &Arc<Groups>,
    request: &Subscribe,
) -> Result<(GroupRow, bool), BusError> {
    loop {
        match stored_row(groups, &request.group, &request.subject).await? {
            Some(row) if !row.deleting => return Ok((keep(groups, request, row).await?, false)),
            _ => {
                finish_named(groups, &request.group).await?;
                if let Some(row) = create(groups, request).await? {
                    return Ok((row, true));
                }
                // The group was created meanwhile: read it.
            }
        }
    }
}

/// Checks the request against an existing group. Only the number of partitions can change, and only while the
/// group has no members.
async fn keep(groups: &Groups, request: &Subscribe, row: GroupRow) -> Result<GroupRow, BusError> {
    row.open_to_consumers(&request.group)?;
    row.options.agree(&request.group, &request.options)?;
    let Some(asked) = request.options.partitions.filter(|asked| row.options.partitions != Some(*asked))
    else {
        request.member.name_in(row.options.partitions)?;
        return Ok(row);
    };
    let Some(actual) = row.options.partitions else {
        return Err(BusError::GroupConflict {
            group: request.group.clone(),
            option: "partitions",
            asked: asked.to_string(),
            actual: "none".to_owned(),
        });
    };
    // Before anything changes: a member that is refused leaves the group as it was.
    request.member.name_in(Some(asked))?;
    let key = (request.group.clone(), request.subject.clone());
    // Not counting the caller.
    let members = groups.entries.count(&key).saturating_sub(1);
    if members > 0 {
        return Err(DeliveryError::PartitionsInUse { members, partitions: actual }.into());
    }
    // Owners that have not ended since their members left still use the old number of partitions.
    groups.owners.await_ends(&request.group, &request.subject).await?;
    let options = GroupOptions { partitions: Some(asked), ..row.options };
    let row = GroupRow { options, ..row };
    put(groups, request, &row).await?;
    Ok(row)
}

/// Overwrites the group's row.
async fn put(groups: &Groups, request: &Subscribe, row: &GroupRow) -> Result<(), BusError> {
    let key = GroupKey::encode(&request.group, &request.subject);
    let op = RowOp::Put { table: Table::Groups, key, value: row.encode()?, must_be_new: false };
    groups.base.store.commit(Batch::new().with(op)).await?;
    Ok(())
}

/// Creates the group. `None` if it was created meanwhile.
async fn create(groups: &Arc<Groups>, request: &Subscribe) -> Result<Option<GroupRow>, BusError> {
    let max_attempts = match &request.subject {
        Subject::Topic(topic) => groups.topics.settings.get(topic).max_attempts,
        Subject::Pattern(_) => promethean_model::limits::ATTEMPTS_DEFAULT,
    };
    let options = request.options.clone().create(max_attempts);
    request.member.name_in(options.partitions)?;
    check_alone(groups, request, &options).await?;
    let from = options.from;
    let row = GroupRow::new(options, groups.base.clock.wall_ms());
    let key = GroupKey::encode(&request.group, &request.subject);
    let created = RowOp::Put { table: Table::Groups, key, value: row.encode()?, must_be_new: true };
    let mut batch = Batch::new();
    // The entries keep the topics from being deleted until the cursors are written.
    let (topics, _entries) = topics_of(groups, &request.subject, from).await?;
    for topic in topics {
        if groups.base.store.cursor(&request.group, &topic).await?.is_some() {
            continue;
        }
        let floor = floor_of(&groups.topics, &request.group, &topic, from).await?;
        batch = batch.with(new_cursor(&request.group, topic, floor));
        if batch.state.len() >= CURSORS_PER_BATCH {
            // Cursors without a group do no harm: the next try finds and uses them.
            groups.base.store.commit(std::mem::take(&mut batch)).await?;
        }
    }
    match groups.base.store.commit(batch.with(created)).await {
        Ok(_) => Ok(Some(row)),
        Err(CommitError::RowExists | CommitError::Fenced { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Refuses a second subject for a partitioned group. Partitions are assigned for each subject, so a topic
/// that two subjects share would have two assignments.
async fn check_alone(groups: &Groups, request: &Subscribe, options: &GroupOptions) -> Result<(), BusError> {
    for (key, row) in group_rows(groups, &group_prefix(&request.group)).await? {
        row.open_to_consumers(&request.group)?;
        if key.subject != request.subject
            && (options.partitions.is_some() || row.options.partitions.is_some())
        {
            return Err(BusError::GroupConflict {
                group: request.group.clone(),
                option: "subject",
                asked: request.subject.to_string(),
                actual: format!("{} with partitions", key.subject),
            });
        }
    }
    Ok(())
}

/// The topics of a new group, with their entries. Topics of a pattern that are being deleted are left out: if
/// one is created again, its birth is announced to the pattern's members.
async fn topics_of(
    groups: &Arc<Groups>,
    subject: &Subject,
    from: StartPosition,
) -> Result<(Vec<TopicName>, Vec<TopicEntry>), BusError> {
    match subject {
        // `enter` holds the entry into the topic.
        Subject::Topic(topic) => Ok((vec![topic.clone()], Vec::new())),
        Subject::Pattern(pattern) => {
            if let StartPosition::AfterId(_) | StartPosition::Offset(_) = from {
                return Err(BusError::BadOption {
                    option: "from",
                    given: "an offset or an id in one topic".to_owned(),
                    fix: "a pattern has many topics; use earliest, latest or ts",
                });
            }
            let entered =
                |topic: TopicName| TopicEntry::new(&groups.topics, &topic).ok().map(|entry| (topic, entry));
            Ok(groups.topics.matching(pattern).await?.into_iter().filter_map(entered).unzip())
        }
    }
}

fn new_cursor(group: &GroupName, topic: TopicName, floor: Offset) -> CursorOp {
    let cursor = Cursor { floor, epoch: 0, data: Vec::new() };
    CursorOp::Put { group: group.clone(), topic, cursor, expected_epoch: 0 }
}

/// Creates the cursor of a group on a topic that is newer than the group, or that was created while the group
/// had no members. It starts at offset 0.
pub(super) async fn cursor_for_newborn(
    groups: &Groups,
    group: &GroupName,
    topic: &TopicName,
) -> Result<(), BusError> {
    if groups.base.store.cursor(group, topic).await?.is_some() {
        return Ok(());
    }
    match groups.base.store.commit(Batch::new().with(new_cursor(group, topic.clone(), Offset::ZERO))).await {
        // Fenced: another member was faster.
        Ok(_) | Err(CommitError::Fenced { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
