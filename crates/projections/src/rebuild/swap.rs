//! The end of a rebuild: its collections are compared with the served ones, and replace them.

use std::collections::VecDeque;

use promethean_bus::groups::Follower;
use promethean_model::CollectionName;
use promethean_store::port::{Cursor, CursorOp, ReadError, Store};
use tracing::warn;
use xxhash_rust::xxh3::Xxh3;

use super::Rebuild;
use super::report::RebuildReport;
use crate::collections::WrittenCollections;
use crate::definition::Projector;
use crate::error::{ProjectFailure, ProjectionError};
use crate::projections::ProjectionContext;
use crate::runner::start::ProjectorRow;
use crate::status::RebuildStatus;

/// Documents hashed in one step.
const PAGE: usize = 1_000;

/// Hashes the keys and bodies of collections, by key. Collections that hold the same have the same hash,
/// whatever they are called.
pub(crate) async fn state_hash(store: &dyn Store, collections: &[CollectionName]) -> Result<u128, ReadError> {
    let mut hasher = StateHasher::new(collections.to_vec());
    loop {
        if let Some(hash) = hasher.step(store).await? {
            return Ok(hash);
        }
    }
}

/// The hash of collections, computed in steps. The collections must not change meanwhile.
struct StateHasher {
    hash: Xxh3,
    /// Collections that are not hashed yet, or not wholly.
    left: VecDeque<CollectionName>,
    /// The key of the last document of the first of them that was hashed.
    after: Option<String>,
}

impl StateHasher {
    fn new(collections: Vec<CollectionName>) -> Self {
        Self { hash: Xxh3::new(), left: collections.into(), after: None }
    }

    /// Hashes some more documents. Returns the hash when there are none left.
    async fn step(&mut self, store: &dyn Store) -> Result<Option<u128>, ReadError> {
        let Some(collection) = self.left.front() else { return Ok(Some(self.hash.digest128())) };
        let docs = store.docs_by_key(collection, self.after.as_deref(), PAGE).await?;
        if self.after.is_none() {
            // Separates collections: in which of them a document is counts too.
            self.hash.update(b"\xff");
        }
        for doc in &docs {
            for text in [&doc.key, &doc.body] {
                self.hash.update(&(text.len() as u64).to_le_bytes());
                self.hash.update(text.as_bytes());
            }
        }
        self.after = docs.into_iter().next_back().map(|last| last.key);
        if self.after.is_none() {
            self.left.pop_front();
        }
        Ok(None)
    }
}

/// The hashes of the served and of the rebuilt collections. Large collections take long, so they are hashed
/// in steps. Neither changes meanwhile.
pub(super) struct Comparison {
    served: HashProgress,
    rebuilt: HashProgress,
}

enum HashProgress {
    /// Boxed: the hasher is large.
    Running(Box<StateHasher>),
    /// `None`: the collections cannot be read.
    Done(Option<u128>),
}

impl HashProgress {
    fn new(collections: &WrittenCollections) -> Self {
        Self::Running(Box::new(StateHasher::new(collections.stored_names())))
    }

    /// Hashes some more documents. Returns whether the hash is done.
    async fn step(&mut self, context: &ProjectionContext) -> Result<bool, ProjectFailure> {
        let Self::Running(hasher) = self else { return Ok(true) };
        match hasher.step(&*context.store).await {
            Ok(None) => {}
            Ok(hash) => *self = Self::Done(hash),
            // A collection whose declaration was refused may not exist.
            Err(ReadError::UnknownCollection { .. }) => *self = Self::Done(None),
            Err(error) => return Err(ProjectFailure::of_read(&error)),
        }
        Ok(matches!(self, Self::Done(_)))
    }

    const fn get(&self) -> Option<u128> {
        match self {
            Self::Running(_) => None,
            Self::Done(hash) => *hash,
        }
    }
}

impl Rebuild {
    /// Compares some more documents. Returns whether all are compared.
    pub(super) async fn compare(
        &mut self,
        context: &ProjectionContext,
        served: &WrittenCollections,
    ) -> Result<bool, ProjectFailure> {
        let Comparison { served, rebuilt } = self.comparison.get_or_insert_with(|| Comparison {
            served: HashProgress::new(served),
            rebuilt: HashProgress::new(&self.collections),
        });
        match served.step(context).await {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            // The served collections cannot be read, which is no reason not to replace them.
            Err(_) => *served = HashProgress::Done(None),
        }
        rebuilt.step(context).await
    }

    /// Replaces the served collections, once the two are compared. Returns the rebuild's last status, and the
    /// epoch of the cursor.
    pub(crate) async fn swap(
        &self,
        context: &ProjectionContext,
        projector: &Projector,
        served: &WrittenCollections,
        follower: &Follower,
        epoch: u64,
    ) -> Result<(RebuildStatus, u64), ProjectFailure> {
        let hash =
            |of: fn(&Comparison) -> &HashProgress| self.comparison.as_ref().and_then(|it| of(it).get());
        let (before, after) = (hash(|it| &it.served), hash(|it| &it.rebuilt));
        let status = RebuildStatus {
            running: false,
            equal: Some(before == after),
            hash: after.map(|hash| format!("{hash:032x}")),
            error: None,
            ..self.status()
        };
        let swapped = async {
            let letters = self.post_letters(context, follower, &status).await?;
            self.replace(context, projector, served, letters, epoch).await
        };
        let epoch = swapped.await.map_err(|error| match error {
            error if error.may_heal() => ProjectFailure::Later(error.to_string()),
            error => ProjectFailure::Halt(error.to_string()),
        })?;
        Ok((status, epoch))
    }

    /// Writes the report, then makes dead letters of the events that failed. Returns the number of rebuilds
    /// that were about to make letters. If it is done again after a stop or a failure, it makes no letter twice.
    async fn post_letters(
        &self,
        context: &ProjectionContext,
        follower: &Follower,
        status: &RebuildStatus,
    ) -> Result<u64, ProjectionError> {
        let last = RebuildReport::read(&*context.store, follower.group()).await?;
        let letters = last.map_or(0, |last| last.letters) + u64::from(self.failed.count() > 0);
        // The report comes first: after a stop between two letters the next start knows that the served state
        // still counts their events.
        RebuildReport::new(letters, status.clone()).write(&*context.store, follower.group()).await?;
        for (event, given_up) in self.failed.all() {
            follower.bury(event, given_up).await?;
        }
        Ok(letters)
    }

    /// Commits the new names of the collections, the row and the cursor at once.
    async fn replace(
        &self,
        context: &ProjectionContext,
        projector: &Projector,
        served: &WrittenCollections,
        letters: u64,
        epoch: u64,
    ) -> Result<u64, ProjectionError> {
        let row = ProjectorRow::put(projector, self.start, letters)?;
        // The deletion of a topic takes the cursor with it, and its epoch.
        let stored = context.store.cursor(&projector.name, &projector.topic).await?;
        let expected_epoch = stored.map_or(0, |cursor| cursor.epoch);
        let epoch = epoch.max(expected_epoch);
        let cursor = CursorOp::Put {
            group: projector.name.clone(),
            topic: projector.topic.clone(),
            cursor: Cursor { floor: self.next, epoch, data: Vec::new() },
            expected_epoch,
        };
        context.store.commit(served.replaced_by(&self.collections).with(row).with(cursor)).await?;
        Ok(epoch)
    }

    /// Drops the rebuilt collections, and keeps the report. Returns the rebuild's last status.
    pub(crate) async fn failed(
        &self,
        context: &ProjectionContext,
        projector: &Projector,
        reason: String,
    ) -> RebuildStatus {
        // If that fails, the next rebuild does it.
        let _ = context.store.commit(self.collections.drops()).await;
        let status = RebuildStatus { running: false, error: Some(reason), ..self.status() };
        let kept = async {
            let last = RebuildReport::read(&*context.store, &projector.name).await?;
            let letters = last.map_or(0, |last| last.letters);
            RebuildReport::new(letters, status.clone()).write(&*context.store, &projector.name).await
        };
        if let Err(error) = kept.await {
            // The status has it until the server stops.
            warn!(projector = %projector.name, %error, "the report of the rebuild is not kept");
        }
        status
    }
}
