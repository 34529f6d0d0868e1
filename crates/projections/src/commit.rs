//! The commit of a page of events: what the events publish, then their documents and the cursor in one
//! derived commit.
//!
//! ```text
//! events -> project: changes -> fold: documents and publishes -> publish -> commit: documents and cursor
//! ```
//!
//! A crash between the last two steps publishes the same events again under the same ids, so that they are
//! there once.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::sync::Arc;

use promethean_bus::groups::Follower;
use promethean_bus::publish::Publish;
use promethean_bus::schemas::ERROR_HEADER;
use promethean_bus::{Bus, BusError, StoredEvent};
use promethean_model::{Offset, TopicName};
use promethean_store::port::{Batch, CommitError, Cursor, CursorOp, StateOp, Store};
use tokio::task::JoinSet;

use crate::change::Change;
use crate::collections::WrittenCollections;
use crate::definition::Projector;
use crate::error::ProjectFailure;
use crate::fold::{DocCache, DocFold, FoldPublishing, FoldedPage};

/// Commits pages of events for a projector or for its rebuild.
pub(crate) struct PageCommitter<'a> {
    pub(crate) bus: &'a Bus,
    pub(crate) store: &'a Arc<dyn Store>,
    pub(crate) projector: &'a Projector,
    /// Topics that a program may not publish to.
    pub(crate) reserved: &'a BTreeSet<TopicName>,
    pub(crate) collections: &'a WrittenCollections,
    /// Publishes events and has the cursor; `None` in a rebuild, which does not publish and has no cursor.
    pub(crate) follower: Option<&'a Follower>,
    /// The epoch of the cursor.
    pub(crate) epoch: u64,
    /// Documents as they are in the store. Empty while a page is being committed, and after a failure.
    pub(crate) cache: &'a mut DocCache,
}

/// How many events of a page are committed.
#[derive(Debug, Default)]
pub(crate) struct CommitProgress {
    /// The number of events, from the first one on, that are committed.
    pub(crate) done: usize,
    /// Why the next event is not committed. `None` without a failure, or if the caller has to try that event
    /// again to learn about it.
    pub(crate) failed: Option<ProjectFailure>,
}

/// A batch that can be committed: what its events publish is durable.
struct PreparedCommit {
    /// The number of events in it.
    count: usize,
    batch: Batch,
    /// Documents as they are when the batch is committed.
    cache: DocCache,
}

/// Why a page was not committed.
struct CommitRefusal {
    /// The index of the event that is at fault; `None` if it is not known.
    at: Option<usize>,
    failure: ProjectFailure,
}

/// Returns the changes of the events before the first that fails, and its failure.
pub(crate) async fn project(
    bus: &Bus,
    projector: &Projector,
    events: &[StoredEvent],
) -> (Vec<Vec<Change>>, Option<ProjectFailure>) {
    let projected = if projector.normalize {
        // Lifted again in each attempt: an event that could not be lifted before may be liftable now.
        let lifted = bus.lift_all(events.to_vec()).await;
        let mut projected = projector.logic.project(bus.jq_pool(), &lifted).await;
        for (event, projected) in lifted.iter().zip(&mut projected) {
            if let Some(reason) = lift_error(event) {
                *projected = Err(ProjectFailure::Event(reason));
            }
        }
        projected
    } else {
        projector.logic.project(bus.jq_pool(), events).await
    };
    let mut changes = Vec::with_capacity(projected.len());
    for projected in projected {
        match projected {
            Ok(of_event) => changes.push(of_event),
            Err(failure) => return (changes, Some(failure)),
        }
    }
    (changes, None)
}

/// Why an event could not be lifted to the latest version of its schema, if that is so.
fn lift_error(event: &StoredEvent) -> Option<String> {
    let meta = promethean_model::EventMeta::decode(event.meta()).ok()?;
    let reason = meta.headers?.remove(ERROR_HEADER)?;
    Some(format!("it could not be lifted to the latest version of its schema: {reason}"))
}

impl PageCommitter<'_> {
    /// Commits events that are projected already, in batches, up to the first difficulty. While one batch is
    /// being committed, the next is prepared. `next` is the cursor after all events.
    ///
    /// A failure in the progress is one of a commit. An event that cannot be folded or published ends the
    /// progress without a failure.
    pub(crate) async fn commit_projected(
        &mut self,
        events: &[StoredEvent],
        changes: Vec<Vec<Change>>,
        next: Offset,
    ) -> CommitProgress {
        let mut done = 0;
        let failed = self.commit_batches(events, changes, next, &mut done).await.err();
        CommitProgress { done, failed }
    }

    async fn commit_batches(
        &mut self,
        events: &[StoredEvent],
        changes: Vec<Vec<Change>>,
        next: Offset,
        done: &mut usize,
    ) -> Result<(), ProjectFailure> {
        let mut at = 0;
        // At most one commit.
        let mut underway = JoinSet::new();
        let mut changes = changes.into_iter().peekable();
        let mut cache = std::mem::take(self.cache);
        while changes.len() > 0 {
            // The check of a unique index sees only committed documents.
            if self.collections.has_unique_index() {
                settle(&mut underway, done).await?;
            }
            let rest = events.get(at..).unwrap_or_default();
            let of_batch = rest.get(..self.projector.batch).unwrap_or(rest);
            let next = events.get(at + of_batch.len()).map_or(next, |event| event.offset);
            let prepared = self.prepare(of_batch, &mut changes, next, cache).await;
            settle(&mut underway, done).await?;
            let Ok(PreparedCommit { count, batch, cache: after }) = prepared else { return Ok(()) };
            at += count;
            let store = Arc::clone(self.store);
            underway.spawn(async move { store.commit(batch).await.map(|_| at) });
            cache = after;
            // Documents that are not cached are read from the store again, so they must be committed first.
            if cache.is_empty() {
                settle(&mut underway, done).await?;
            }
        }
        settle(&mut underway, done).await?;
        *self.cache = cache;
        Ok(())
    }

    /// Projects events and commits as many of them as succeed in a row, or as fit one batch. `next` is the
    /// cursor after all events.
    pub(crate) async fn commit_page(&mut self, events: &[StoredEvent], next: Offset) -> CommitProgress {
        let (mut sure, mut failed) = (events.len(), None);
        loop {
            let part = events.get(..sure).unwrap_or_default();
            let (changes, failure) = project(self.bus, self.projector, part).await;
            failed = failure.or(failed);
            sure = changes.len();
            if sure == 0 && failed.is_some() {
                return CommitProgress { done: 0, failed };
            }
            match self.commit_changes(events, changes, next).await {
                Ok(done) if done < sure => return CommitProgress { done, failed: None },
                Ok(done) => return CommitProgress { done, failed },
                // The events before it can be committed without it.
                Err(CommitRefusal { at: Some(at), failure }) => (sure, failed) = (at, Some(failure)),
                Err(CommitRefusal { at: None, failure: ProjectFailure::Event(_) }) if sure > 1 => {
                    return self.commit_one_by_one(events, sure, next, failed).await;
                }
                Err(CommitRefusal { at: None, failure }) => {
                    return CommitProgress { done: 0, failed: Some(failure) };
                }
            }
        }
    }

    /// Commits each of the first `sure` events alone, after the store refused them together and did not say
    /// which of them is at fault.
    async fn commit_one_by_one(
        &mut self,
        events: &[StoredEvent],
        sure: usize,
        next: Offset,
        failed: Option<ProjectFailure>,
    ) -> CommitProgress {
        for done in 0..sure {
            let rest = events.get(done..).unwrap_or_default();
            let one = rest.get(..1).unwrap_or_default();
            let (changes, failure) = project(self.bus, self.projector, one).await;
            let committed = match failure {
                Some(failure) => Err(failure),
                None => self.commit_changes(rest, changes, next).await.map_err(|refusal| refusal.failure),
            };
            if let Err(failure) = committed {
                return CommitProgress { done, failed: Some(failure) };
            }
        }
        CommitProgress { done: sure, failed }
    }

    /// Publishes and commits the changes of the first events of a page; returns of how many.
    async fn commit_changes(
        &mut self,
        events: &[StoredEvent],
        changes: Vec<Vec<Change>>,
        next: Offset,
    ) -> Result<usize, CommitRefusal> {
        // Taken, not borrowed: after a failure the cache may hold half of a change.
        let cache = std::mem::take(self.cache);
        let prepared = self.prepare(events, &mut changes.into_iter().peekable(), next, cache).await?;
        self.commit(prepared.batch).await.map_err(|failure| CommitRefusal { at: None, failure })?;
        *self.cache = prepared.cache;
        Ok(prepared.count)
    }

    /// Folds and publishes the changes of the first events of a page. Stops when the documents are large enough for a
    /// batch, and before an event that frees a value of a unique index: the store sees only what a batch comes to, so
    /// that an earlier event of the batch could take a value that was not free then.
    async fn prepare(
        &self,
        events: &[StoredEvent],
        changes: &mut Peekable<std::vec::IntoIter<Vec<Change>>>,
        next: Offset,
        cache: DocCache,
    ) -> Result<PreparedCommit, CommitRefusal> {
        let publishes = self.follower.is_some();
        let publishing = FoldPublishing { publishes, reserved: self.reserved };
        let mut fold = DocFold::new(&**self.store, self.collections, &self.projector.name, publishing, cache);
        let mut count = 0;
        for (at, event) in events.iter().enumerate() {
            let Some(coming) = changes.peek() else { break };
            let refused = |failure| CommitRefusal { at: Some(at), failure };
            if count > 0 && fold.may_free(coming).await.map_err(refused)? {
                break;
            }
            let Some(changes) = changes.next() else { break };
            fold.add(event, changes).await.map_err(refused)?;
            count += 1;
            if fold.is_full() {
                break;
            }
        }
        let somewhere = |failure| CommitRefusal { at: None, failure };
        fold.forget_deleted().await.map_err(somewhere)?;
        let FoldedPage { ops, emitted, sources, announced, cache } =
            fold.finish().map_err(|reason| somewhere(ProjectFailure::Event(reason)))?;
        let batch = self.batch(ops, events.get(count).map_or(next, |event| event.offset));
        if publishes && self.collections.has_unique_index() {
            // A publish cannot be taken back, so the store must accept the documents before it.
            let checked = self.store.check_derived(&batch).await;
            checked.map_err(|error| somewhere(ProjectFailure::of_commit(&error)))?;
        }
        self.publish(emitted, &sources).await?;
        // Afterwards: a feed tells only of events whose own publishes were accepted.
        self.publish(announced, &[]).await?;
        Ok(PreparedCommit { count, batch, cache })
    }

    /// Publishes events. `sources` has, for each of them, the index of the event that it is made from.
    async fn publish(&self, events: Vec<Publish<'static>>, sources: &[usize]) -> Result<(), CommitRefusal> {
        let Some(follower) = self.follower.filter(|_| !events.is_empty()) else { return Ok(()) };
        for (n, result) in follower.publish_each(events).await.into_iter().enumerate() {
            match result {
                // An id conflict: an earlier definition of the projector published something else for this
                // event.
                Ok(_) | Err(BusError::IdConflict { .. }) => {}
                Err(error) => {
                    let failure = ProjectFailure::of_publish(&error);
                    return Err(CommitRefusal { at: sources.get(n).copied(), failure });
                }
            }
        }
        Ok(())
    }

    /// Moves the cursor without any document.
    pub(crate) async fn move_cursor(&self, next: Offset) -> Result<(), ProjectFailure> {
        self.commit(self.batch(Vec::new(), next)).await
    }

    /// Documents, and the cursor with them.
    fn batch(&self, ops: Vec<StateOp>, next: Offset) -> Batch {
        let batch = Batch { state: ops, ..Batch::derived() };
        let Some(follower) = self.follower else { return batch };
        batch.with(CursorOp::Put {
            group: follower.group().clone(),
            topic: follower.topic().clone(),
            cursor: Cursor { floor: next, epoch: self.epoch, data: Vec::new() },
            expected_epoch: self.epoch,
        })
    }

    async fn commit(&self, batch: Batch) -> Result<(), ProjectFailure> {
        if batch.state.is_empty() {
            return Ok(());
        }
        self.store.commit(batch).await.map(drop).map_err(|error| ProjectFailure::of_commit(&error))
    }
}

/// Waits for the commit that is under way, if there is one, and notes how many events are done with it.
async fn settle(
    underway: &mut JoinSet<Result<usize, CommitError>>,
    done: &mut usize,
) -> Result<(), ProjectFailure> {
    match underway.join_next().await {
        None => {}
        Some(Ok(Ok(through))) => *done = through,
        Some(Ok(Err(error))) => return Err(ProjectFailure::of_commit(&error)),
        Some(Err(error)) => return Err(ProjectFailure::Later(error.to_string())),
    }
    Ok(())
}
