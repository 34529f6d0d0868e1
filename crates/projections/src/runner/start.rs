//! From a declaration to a runner, which goes on where the projector was.

use std::sync::Arc;

use promethean_bus::rows::StartPosition;
use promethean_model::{GroupName, Offset, TopicName};
use promethean_store::port::{Batch, CollectionOp, CommitError, Cursor, CursorOp, RowOp, Table};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

use super::feed_start::FeedStarts;
use super::{ProjectorRunner, RunnerCommand};
use crate::collections::WrittenCollections;
use crate::definition::{CollectionDeclared, Projector, StartAt, bad};
use crate::error::ProjectionError;
use crate::fold::DocCache;
use crate::projections::ProjectionContext;
use crate::rebuild::report::RebuildReport;
use crate::rebuild::{Rebuild, RebuildStart};
use crate::status::StatusCell;

/// The most commands that wait for a runner.
const COMMANDS_MAX: usize = 8;
/// The version of the form of [`ProjectorRow`].
const ROW_VERSION: u32 = 1;

/// A runner that can be started.
pub(crate) struct PreparedRunner {
    pub(crate) runner: ProjectorRunner,
    /// Why the projector cannot begin by itself.
    pub(crate) halted: Option<String>,
}

/// How the handle reaches a runner.
pub(crate) struct RunnerHandle {
    pub(crate) status: StatusCell,
    pub(crate) commands: mpsc::Sender<RunnerCommand>,
}

/// Where a projector goes on.
struct StartPoint {
    next: Offset,
    /// The epoch of the stored cursor.
    epoch: u64,
    is_new: bool,
    changed: bool,
    halted: Option<String>,
    /// The offset where the projector's state begins.
    start: Offset,
    /// The report of the last rebuild.
    report: Option<RebuildReport>,
    /// Whether dead letters of the last rebuild are of events that the served state counts.
    is_behind_letters: bool,
}

/// What is stored of a projector beside its cursor and documents, in the table `Projectors` under its name.
///
/// Written in the same derived commit as the first cursor, so that one is never stored without the other,
/// except where the topic was deleted and took the cursor with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProjectorRow {
    v: u32,
    /// The topic that the projector reads.
    topic: TopicName,
    /// The fingerprint of its definition when its state was begun.
    fingerprint: u64,
    /// The offset where its state begins.
    start: u64,
    /// The number of its rebuilds that made dead letters; see [`RebuildReport`].
    #[serde(default, skip_serializing_if = "is_zero")]
    letters: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl ProjectorRow {
    /// The write of the row of a projector whose state begins at `start`.
    pub(crate) fn put(projector: &Projector, start: Offset, letters: u64) -> Result<RowOp, ProjectionError> {
        let (topic, fingerprint) = (projector.topic.clone(), projector.fingerprint());
        let row = Self { v: ROW_VERSION, topic, fingerprint, start: start.get(), letters };
        let value = serde_json::to_vec(&row)
            .map_err(|error| bad(format!("projector `{}`", projector.name), error.to_string()))?;
        Ok(RowOp::Put {
            table: Table::Projectors,
            key: Self::key(&projector.name),
            value,
            must_be_new: false,
        })
    }

    fn key(name: &GroupName) -> Vec<u8> {
        name.as_str().as_bytes().to_vec()
    }

    fn decode(value: &[u8]) -> Result<Self, String> {
        let row: Self = serde_json::from_slice(value).map_err(|error| error.to_string())?;
        if row.v == ROW_VERSION { Ok(row) } else { Err(format!("version {}", row.v)) }
    }
}

/// Why a projector is rebuilt that has letters of a rebuild whose documents are gone.
const BEHIND_LETTERS: &str =
    "its last rebuild made dead letters and did not come to its end, so it is rebuilt";

fn start_position(from: StartAt) -> StartPosition {
    match from {
        StartAt::Earliest => StartPosition::Earliest,
        StartAt::Latest => StartPosition::Latest,
    }
}

/// Takes the projector's group, finds where it goes on, and makes its runner.
pub(crate) async fn prepare(
    context: &Arc<ProjectionContext>,
    projector: Projector,
    declared: &[CollectionDeclared],
    stopping: watch::Receiver<bool>,
) -> Result<(PreparedRunner, RunnerHandle), ProjectionError> {
    let from = start_position(projector.from);
    let follower = context.bus.follow(&projector.name, &projector.topic, from).await?;
    if context.store.cursor(&projector.name, &projector.topic).await?.is_none() {
        // Until it is known where the projector begins, retention must take nothing.
        follower.hold_from(Offset::ZERO);
    }
    // Before the start point is looked up: an event published between the two must wake the runner.
    let watch = context.store.watch(&projector.topic);
    let collections = WrittenCollections::served(&projector, declared);
    let mut rebuild_needed = declare(context, &collections).await?;
    let mut point = find(context, &projector).await?;
    if point.is_behind_letters {
        rebuild_needed.get_or_insert_with(|| BEHIND_LETTERS.to_owned());
    }
    let (beginning, rebuild) = begin_new(context, &projector, &collections, &mut point).await;
    let epoch = if beginning { point.epoch } else { take(context, &projector, &point).await? };
    let status = StatusCell::new(&projector);
    status.change(|status| {
        status.changed = point.changed;
        status.position = point.next.get();
        status.rebuild = point.report.as_ref().map(|report| report.status.clone());
    });
    let end = context.store.durable_end(&projector.topic);
    let buried = follower.given_up(point.next, end).await?;
    let is_new = point.is_new && !beginning;
    let feed_starts = FeedStarts::find(&*context.store, &collections, is_new).await?;
    let (sender, commands) = mpsc::channel(COMMANDS_MAX);
    let mut halted = point.halted.clone();
    let mut runner = ProjectorRunner {
        context: Arc::clone(context),
        projector,
        collections,
        follower,
        status: status.clone(),
        commands,
        stopping,
        watch,
        next: point.next,
        epoch,
        buried,
        beginning,
        rebuild,
        cache: DocCache::default(),
        needs_rebuild: point.halted,
        required: rebuild_needed.clone().filter(|_| !beginning),
        start: point.start,
        feed_starts,
        read_ahead: None,
        timer_run: None,
    };
    runner.hold();
    if rebuild_needed.is_none() && !runner.beginning {
        // The collections of an earlier rebuild that did not come to its end.
        context.store.commit(runner.collections.shadow()?.drops()).await?;
    }
    if let Some(reason) = rebuild_needed.filter(|_| !runner.beginning) {
        // The old collection is served until the new one, with its indexes, replaces it.
        if let Err(error) = runner.begin_rebuild(runner.projector.accept_loss, false).await {
            halted = Some(format!("{reason}; that cannot be done: {error}"));
        }
    }
    Ok((PreparedRunner { runner, halted }, RunnerHandle { status, commands: sender }))
}

/// Begins a new projector with snapshots, if it is to. Returns whether it does, and the rebuild that reads
/// them; no rebuild if the store does not work, or if the projector is halted.
async fn begin_new(
    context: &ProjectionContext,
    projector: &Projector,
    collections: &WrittenCollections,
    point: &mut StartPoint,
) -> (bool, Option<Rebuild>) {
    if !point.is_new {
        return (false, None);
    }
    let rebuild = match from_snapshots(context, projector, collections, point.start).await {
        Ok(None) => return (false, None),
        Ok(rebuild) => rebuild,
        Err(error) => {
            point.halted = (!error.may_heal()).then(|| format!("it could not begin with snapshots: {error}"));
            None
        }
    };
    // It has read nothing yet, and its lag shows that.
    point.next = Offset::ZERO;
    (true, rebuild)
}

/// Begins the rebuild that reads the snapshots which a new projector starts with. `None` if the projector
/// starts with the log, or if there are no snapshots and no event is gone. The projector has no cursor before
/// they are read.
pub(super) async fn from_snapshots(
    context: &ProjectionContext,
    projector: &Projector,
    collections: &WrittenCollections,
    start: Offset,
) -> Result<Option<Rebuild>, ProjectionError> {
    if projector.snapshots.is_none() {
        return Ok(None);
    }
    let accept_loss = projector.accept_loss;
    let from = RebuildStart { start, live: None, accept_loss, may_pass: false };
    let rebuild = Rebuild::begin(context, projector, collections, from).await?;
    Ok(rebuild.snapshots().is_some().then_some(rebuild))
}

/// Begins a new projector with the log. Returns the offset of its first event, and the epoch of the cursor.
pub(super) async fn take_new(
    context: &ProjectionContext,
    projector: &Projector,
) -> Result<(Offset, u64), ProjectionError> {
    let point = find(context, projector).await?;
    Ok((point.next, take(context, projector, &point).await?))
}

/// Declares collections. Returns a reason if one of them must be rebuilt for that.
async fn declare(
    context: &ProjectionContext,
    collections: &WrittenCollections,
) -> Result<Option<String>, ProjectionError> {
    let mut needed = None;
    for wanted in collections.declarations() {
        let there = context.store.collection(&wanted.name).await?;
        let differs = there.is_some_and(|there| there.docs > 0 && there.collection.indexes != wanted.indexes);
        match context.store.commit(Batch::derived().with(CollectionOp::Declare(wanted))).await {
            Ok(_) => {}
            Err(CommitError::BadIndex { collection, .. }) if differs => {
                needed = Some(format!("the indexes of collection `{collection}` changed, so it is rebuilt"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(needed)
}

/// Finds where a projector goes on, from its cursor and its row.
async fn find(context: &ProjectionContext, projector: &Projector) -> Result<StartPoint, ProjectionError> {
    let (store, topic) = (&context.store, &projector.topic);
    let cursor = store.cursor(&projector.name, topic).await?;
    let row = store.row(Table::Projectors, &ProjectorRow::key(&projector.name)).await?;
    let row = row.map(|row| ProjectorRow::decode(&row)).transpose();
    let row = row.map_err(|reason| bad(format!("projector `{}`", projector.name), reason))?;
    let end = store.durable_end(topic);
    let report = RebuildReport::read(&**store, &projector.name).await?;
    let mut point = StartPoint {
        next: end,
        epoch: 0,
        is_new: false,
        changed: false,
        halted: None,
        start: Offset::ZERO,
        is_behind_letters: false,
        report,
    };
    if let (Some(row), Some(report)) = (&row, &point.report) {
        point.is_behind_letters = row.letters != report.letters;
    }
    match (cursor, row) {
        (cursor, Some(row)) if row.topic != *topic => {
            let reason = format!("its state is of topic `{}`, not `{topic}`; rebuild it", row.topic);
            point.halted = Some(reason);
            point.epoch = cursor.map_or(0, |cursor| cursor.epoch);
        }
        (Some(cursor), Some(row)) => {
            point.start = Offset(row.start);
            point.changed = row.fingerprint != projector.fingerprint();
            (point.next, point.epoch) = (cursor.floor, cursor.epoch);
            if cursor.floor > end {
                let floor = cursor.floor;
                let reason = format!(
                    "topic `{topic}` ends at {end}, before this projector's position {floor}: it lost its tail; rebuild the projector"
                );
                point.halted = Some(reason);
            }
        }
        (None, Some(_)) => {
            let reason =
                format!("topic `{topic}` or its group was deleted since its state was made; rebuild it");
            point.halted = Some(reason);
        }
        (cursor, None) => {
            point.is_new = true;
            point.epoch = cursor.map_or(0, |cursor| cursor.epoch);
            if projector.from == StartAt::Earliest {
                let info = store.topic_info(topic).await?;
                point.next = info.map_or(Offset::ZERO, |info| info.earliest);
            } else {
                point.start = point.next;
            }
        }
    }
    Ok(point)
}

/// Takes the cursor over, so that an earlier owner can no longer move it. The cursor of a halted projector
/// stays as it is. Returns the epoch.
async fn take(
    context: &ProjectionContext,
    projector: &Projector,
    point: &StartPoint,
) -> Result<u64, ProjectionError> {
    if point.halted.is_some() {
        return Ok(point.epoch);
    }
    let epoch = point.epoch + 1;
    let mut batch = Batch::derived().with(CursorOp::Put {
        group: projector.name.clone(),
        topic: projector.topic.clone(),
        cursor: Cursor { floor: point.next, epoch, data: Vec::new() },
        expected_epoch: point.epoch,
    });
    if point.is_new {
        let letters = point.report.as_ref().map_or(0, |report| report.letters);
        batch = batch.with(ProjectorRow::put(projector, point.start, letters)?);
    }
    context.store.commit(batch).await?;
    Ok(epoch)
}
