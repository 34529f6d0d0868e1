//! From a declaration to a projector at work, going on where it was.

use std::sync::Arc;

use promethean_bus::groups::Follower;
use promethean_bus::rows::StartPosition;
use promethean_model::Offset;
use promethean_store::port::{Batch, CollectionOp, CommitError, Cursor, CursorOp, StateOp, Table};
use tokio::sync::{mpsc, watch};

use crate::definition::{CollectionDeclared, From, Projector, bad};
use crate::error::ProjectionError;
use crate::fold::Kept;
use crate::rebuild::{Beginning, Rebuild};
use crate::row::ProjectorRow;
use crate::runner::{Command, Parts, Runner};
use crate::status::Shown;
use crate::target::Target;

/// A projector that can be run.
pub(crate) struct Ready {
    pub(crate) runner: Runner,
    /// Why it cannot begin by itself.
    pub(crate) halted: Option<String>,
}

/// How others reach it.
pub(crate) struct Reach {
    pub(crate) shown: Shown,
    pub(crate) commands: mpsc::Sender<Command>,
}

/// Where it goes on.
struct Place {
    next: Offset,
    /// The epoch of the stored cursor.
    epoch: u64,
    is_new: bool,
    changed: bool,
    halted: Option<String>,
    /// Where its state begins.
    start: Offset,
}

/// Commands that wait, at most.
const COMMANDS_MAX: usize = 8;

/// Takes the projector's group and finds its place.
pub(crate) async fn prepare(
    parts: &Arc<Parts>,
    projector: Projector,
    declared: &[CollectionDeclared],
    stopping: watch::Receiver<bool>,
) -> Result<(Ready, Reach), ProjectionError> {
    let from = match projector.from {
        From::Earliest => StartPosition::Earliest,
        From::Latest => StartPosition::Latest,
    };
    let follower = parts.bus.follow(&projector.name, &projector.topic, from).await?;
    if parts.store.cursor(&projector.name, &projector.topic).await?.is_none() {
        // Before it is known where it begins: what is there then must stay.
        follower.hold_from(Offset::ZERO);
    }
    // Before the place is looked up: what is published between the two must wake it.
    let watch = parts.store.watch(&projector.topic);
    let target = Target::live(&projector, declared);
    let rebuild_needed = declare(parts, &target).await?;
    let mut place = find(parts, &projector).await?;
    let (beginning, seeded) = begins(parts, &projector, &target, &follower, &mut place).await;
    let epoch = if beginning { place.epoch } else { take(parts, &projector, &place).await? };
    let shown = Shown::new(projector.name.clone(), projector.topic.clone(), projector.collections.clone());
    shown.change(|shown| {
        shown.changed = place.changed;
        shown.position = place.next.get();
    });
    let buried = follower.buried_from(place.next).await?.into_iter().collect();
    let (sender, commands) = mpsc::channel(COMMANDS_MAX);
    let mut runner = Runner {
        parts: Arc::clone(parts),
        projector,
        target,
        follower,
        shown: shown.clone(),
        commands,
        stopping,
        watch,
        next: place.next,
        epoch,
        buried,
        beginning,
        rebuild: seeded,
        kept: Kept::default(),
        needs_rebuild: place.halted.clone(),
        start: place.start,
        ahead: None,
        timing: None,
    };
    let mut halted = place.halted;
    runner.hold();
    if rebuild_needed.is_none() && !runner.beginning {
        // What an earlier rebuild left behind.
        let mut batch = Batch::derived();
        batch.state.extend(runner.target.shadow()?.drops().map(StateOp::from));
        parts.store.commit(batch).await?;
    }
    if let Some(reason) = rebuild_needed.filter(|_| !runner.beginning) {
        // The old collection is served until the new one, with its indexes, takes its place.
        if let Err(error) = runner.begin_rebuild(runner.projector.accept_loss, false).await {
            halted = Some(format!("{reason}; that cannot be done: {error}"));
        }
    }
    Ok((Ready { runner, halted }, Reach { shown, commands: sender }))
}

/// Whether a new projector begins with snapshots, and what was made of them; nothing yet if the store does not work.
async fn begins(
    parts: &Parts,
    projector: &Projector,
    target: &Target,
    follower: &Follower,
    place: &mut Place,
) -> (bool, Option<Rebuild>) {
    if !place.is_new {
        return (false, None);
    }
    let rebuild = match seeded(parts, projector, target, follower, place.start).await {
        Ok(None) => return (false, None),
        Ok(rebuild) => rebuild,
        Err(error) => {
            place.halted = (!error.may_heal()).then(|| format!("it could not begin with snapshots: {error}"));
            None
        }
    };
    // So that its lag is shown: it has read nothing yet.
    place.next = Offset::ZERO;
    (true, rebuild)
}

/// What a new projector begins with, if that is snapshots. It is no projector with a place before it has read them.
pub(crate) async fn seeded(
    parts: &Parts,
    projector: &Projector,
    target: &Target,
    follower: &Follower,
    start: Offset,
) -> Result<Option<Rebuild>, ProjectionError> {
    if projector.snapshots.is_none() {
        return Ok(None);
    }
    let from = Beginning { follower, start, live: None, accept_loss: projector.accept_loss, may_pass: false };
    let rebuild = Rebuild::begin(parts, projector, target, from).await?;
    // There may be none, with nothing gone.
    Ok(rebuild.snapshots().is_some().then_some(rebuild))
}

/// Begins with the log: where, and the epoch of the cursor.
pub(crate) async fn take_new(parts: &Parts, projector: &Projector) -> Result<(Offset, u64), ProjectionError> {
    let place = find(parts, projector).await?;
    Ok((place.next, take(parts, projector, &place).await?))
}

/// Declares collections; the reason where one must be rebuilt for that.
async fn declare(parts: &Parts, target: &Target) -> Result<Option<String>, ProjectionError> {
    let mut needed = None;
    for declaration in target.declarations() {
        let CollectionOp::Declare(wanted) = &declaration else { continue };
        let there = parts.store.collection(&wanted.name).await?;
        match parts.store.commit(Batch::derived().with(declaration.clone())).await {
            Ok(_) => {}
            Err(CommitError::BadIndex { collection, .. })
                if there
                    .as_ref()
                    .is_some_and(|there| there.docs > 0 && there.collection.indexes != wanted.indexes) =>
            {
                needed = Some(format!("the indexes of collection `{collection}` changed, so it is rebuilt"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(needed)
}

async fn find(parts: &Parts, projector: &Projector) -> Result<Place, ProjectionError> {
    let (store, topic) = (&parts.store, &projector.topic);
    let cursor = store.cursor(&projector.name, topic).await?;
    let row = store.row(Table::Projectors, &ProjectorRow::key(&projector.name)).await?;
    let row = row.map(|row| ProjectorRow::decode(&row)).transpose();
    let row = row.map_err(|reason| bad(format!("projector `{}`", projector.name), reason))?;
    let end = store.durable_end(topic);
    let mut place =
        Place { next: end, epoch: 0, is_new: false, changed: false, halted: None, start: Offset::ZERO };
    match (cursor, row) {
        (cursor, Some(row)) if row.topic != *topic => {
            let reason = format!("its state is of topic `{}`, not `{topic}`; rebuild it", row.topic);
            place.halted = Some(reason);
            place.epoch = cursor.map_or(0, |cursor| cursor.epoch);
        }
        (Some(cursor), Some(row)) => {
            place.start = Offset(row.start);
            place.changed = row.fingerprint != projector.fingerprint();
            (place.next, place.epoch) = (cursor.floor, cursor.epoch);
            if cursor.floor > end {
                let floor = cursor.floor;
                let reason = format!(
                    "topic `{topic}` ends at {end}, before this projector's position {floor}: it lost its tail; rebuild the projector"
                );
                place.halted = Some(reason);
            }
        }
        (None, Some(_)) => {
            let reason =
                format!("topic `{topic}` or its group was deleted since its state was made; rebuild it");
            place.halted = Some(reason);
        }
        (cursor, None) => {
            place.is_new = true;
            place.epoch = cursor.map_or(0, |cursor| cursor.epoch);
            if projector.from == From::Earliest {
                let info = store.topic_info(topic).await?;
                place.next = info.map_or(Offset::ZERO, |info| info.earliest);
            } else {
                place.start = place.next;
            }
        }
    }
    Ok(place)
}

/// Takes the cursor over, so that an earlier owner can no longer move it. One that does not go on leaves it as it is.
async fn take(parts: &Parts, projector: &Projector, place: &Place) -> Result<u64, ProjectionError> {
    if place.halted.is_some() {
        return Ok(place.epoch);
    }
    let epoch = place.epoch + 1;
    let mut batch = Batch::derived().with(CursorOp::Put {
        group: projector.name.clone(),
        topic: projector.topic.clone(),
        cursor: Cursor { floor: place.next, epoch, data: Vec::new() },
        expected_epoch: place.epoch,
    });
    if place.is_new {
        let row = ProjectorRow::new(projector.topic.clone(), projector.fingerprint(), place.start.get());
        let op = row
            .put(&projector.name)
            .map_err(|reason| bad(format!("projector `{}`", projector.name), reason))?;
        batch.state.push(StateOp::from(op));
    }
    parts.store.commit(batch).await?;
    Ok(epoch)
}
