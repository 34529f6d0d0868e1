//! The end of a rebuild: it is compared with what is served, and takes its place.

use promethean_model::CollectionName;
use promethean_store::port::{Batch, Cursor, CursorOp, ReadError, StateOp};

use super::Rebuild;
use crate::definition::{Projector, bad};
use crate::error::ProjectionError;
use crate::hash::Hashing;
use crate::logic::Failed;
use crate::row::ProjectorRow;
use crate::runner::Parts;
use crate::status::RebuildStatus;
use crate::target::Target;

/// The hashes of what is served and of what takes its place. Large collections take long, so it is done in steps, while
/// which neither changes.
pub(super) struct Comparison {
    before: Hash,
    after: Hash,
}

enum Hash {
    /// On the heap: a hash takes much room.
    OnItsWay(Box<Hashing>),
    /// `None`: there is nothing to hash.
    Done(Option<u128>),
}

impl Hash {
    fn of(target: &Target) -> Self {
        let stored: Vec<CollectionName> =
            target.names().into_iter().map(|(_, stored_as)| stored_as.clone()).collect();
        Self::OnItsWay(Box::new(Hashing::new(stored.into_iter())))
    }

    /// Whether it is done.
    async fn step(&mut self, parts: &Parts) -> Result<bool, Failed> {
        let Self::OnItsWay(hashing) = self else { return Ok(true) };
        match hashing.step(&*parts.store).await {
            Ok(None) => {}
            Ok(hash) => *self = Self::Done(hash),
            // One whose declaration was refused may not be there.
            Err(ReadError::UnknownCollection { .. }) => *self = Self::Done(None),
            Err(error) => return Err(Failed::of_read(&error)),
        }
        Ok(matches!(self, Self::Done(_)))
    }

    const fn get(&self) -> Option<u128> {
        match self {
            Self::OnItsWay(_) => None,
            Self::Done(hash) => *hash,
        }
    }
}

impl Rebuild {
    /// Compares some more documents; whether all are compared.
    pub(super) async fn compare(&mut self, parts: &Parts, served: &Target) -> Result<bool, Failed> {
        let Comparison { before, after } = self
            .comparison
            .get_or_insert_with(|| Comparison { before: Hash::of(served), after: Hash::of(&self.target) });
        match before.step(parts).await {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            // What is served cannot be read: that is no reason not to replace it.
            Err(_) => *before = Hash::Done(None),
        }
        after.step(parts).await
    }

    /// Takes the place of what is served, once the two are compared; the epoch of the cursor then.
    pub(crate) async fn finish(
        &self,
        parts: &Parts,
        projector: &Projector,
        served: &Target,
        epoch: u64,
    ) -> Result<(RebuildStatus, u64), Failed> {
        let replaced = self.replace(parts, projector, served, epoch).await;
        let epoch = replaced.map_err(|error| match error {
            error if error.may_heal() => Failed::Later(error.to_string()),
            error => Failed::Halt(error.to_string()),
        })?;
        let hash = |of: fn(&Comparison) -> &Hash| self.comparison.as_ref().and_then(|both| of(both).get());
        let (before, after) = (hash(|both| &both.before), hash(|both| &both.after));
        let status = RebuildStatus {
            running: false,
            equal: Some(before == after),
            hash: after.map(|hash| format!("{hash:032x}")),
            error: None,
            ..self.status()
        };
        Ok((status, epoch))
    }

    async fn replace(
        &self,
        parts: &Parts,
        projector: &Projector,
        served: &Target,
        epoch: u64,
    ) -> Result<u64, ProjectionError> {
        let mut batch = Batch::derived();
        batch.state.extend(served.replacements(&self.target).into_iter().map(StateOp::from));
        let row = ProjectorRow::new(projector.topic.clone(), projector.fingerprint(), self.start.get());
        let row = row.put(&projector.name).map_err(|reason| bad("row".to_owned(), reason))?;
        // The topic's deletion took the cursor with it, and its epoch.
        let stored = parts.store.cursor(&projector.name, &projector.topic).await?;
        let expected_epoch = stored.map_or(0, |cursor| cursor.epoch);
        let epoch = epoch.max(expected_epoch);
        let cursor = CursorOp::Put {
            group: projector.name.clone(),
            topic: projector.topic.clone(),
            cursor: Cursor { floor: self.next, epoch, data: Vec::new() },
            expected_epoch,
        };
        parts.store.commit(batch.with(row).with(cursor)).await?;
        Ok(epoch)
    }

    /// Drops what was made.
    pub(crate) async fn failed(&self, parts: &Parts, reason: String) -> RebuildStatus {
        let mut batch = Batch::derived();
        batch.state.extend(self.target.drops().map(StateOp::from));
        // If not now, then when the next one begins.
        let _ = parts.store.commit(batch).await;
        RebuildStatus { running: false, error: Some(reason), ..self.status() }
    }
}
