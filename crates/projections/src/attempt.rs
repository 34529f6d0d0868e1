//! One attempt at a page of events: what they publish, then their documents and the cursor in one commit.

use promethean_bus::follower::Follower;
use promethean_bus::publish::Publish;
use promethean_bus::{BusError, StoredEvent};
use promethean_model::Offset;
use promethean_store::port::{Batch, CommitError, Cursor, CursorOp, StateOp, Store};

use crate::change::Change;
use crate::definition::Projector;
use crate::drafts::{Drafts, FoldError};
use crate::logic::{Failed, Projected};
use crate::target::Target;

/// The header of an event that could not be lifted to the latest version of its schema.
const LIFT_ERROR_HEADER: &str = promethean_bus::schema::ERROR_HEADER;

/// What an attempt needs.
pub(crate) struct Attempt<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) projector: &'a Projector,
    pub(crate) target: &'a Target,
    /// Whose cursor is moved and who publishes; `None` in a rebuild, which does neither.
    pub(crate) follower: Option<&'a Follower>,
    pub(crate) epoch: u64,
}

/// How far an attempt came.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Events that are done, and committed.
    pub(crate) done: usize,
    /// Why the next one is not.
    pub(crate) failed: Option<Failed>,
}

impl Attempt<'_> {
    /// Projects events and commits as many of them as succeed in a row; `next` is where to go on after all of them.
    pub(crate) async fn run(&self, events: &[StoredEvent], next: Offset) -> Outcome {
        let mut projected = self.projector.logic.project(events).await;
        for (event, projected) in events.iter().zip(&mut projected) {
            if let Some(reason) = self.lift_error(event) {
                *projected = Err(Failed::Event(reason));
            }
        }
        let (changes, mut failed) = until_failure(projected);
        let mut sure = changes.as_slice();
        loop {
            if sure.is_empty() && failed.is_some() {
                return Outcome { done: 0, failed };
            }
            match self.apply(events, sure, next).await {
                Ok(()) => return Outcome { done: sure.len(), failed },
                // Those before it are right by themselves.
                Err(Refused::At(at, reason)) => {
                    sure = sure.get(..at).unwrap_or_default();
                    failed = Some(reason);
                }
                Err(Refused::Somewhere(Failed::Event(_))) if sure.len() > 1 => {
                    return self.one_by_one(events, sure, next, failed).await;
                }
                Err(Refused::Somewhere(reason)) => return Outcome { done: 0, failed: Some(reason) },
            }
        }
    }

    /// The store refused a page for one of its events, and does not say for which.
    async fn one_by_one(
        &self,
        events: &[StoredEvent],
        changes: &[Vec<Change>],
        next: Offset,
        failed: Option<Failed>,
    ) -> Outcome {
        for (done, changes) in changes.iter().enumerate() {
            let rest = events.get(done..).unwrap_or_default();
            match self.apply(rest, std::slice::from_ref(changes), next).await {
                Ok(()) => {}
                Err(Refused::At(_, failed) | Refused::Somewhere(failed)) => {
                    return Outcome { done, failed: Some(failed) };
                }
            }
        }
        Outcome { done: changes.len(), failed }
    }

    /// Publishes and commits the changes of the first events of a page.
    async fn apply(
        &self,
        events: &[StoredEvent],
        changes: &[Vec<Change>],
        next: Offset,
    ) -> Result<(), Refused> {
        let count = changes.len();
        let publishes = self.follower.is_some();
        let mut drafts = Drafts::new(self.store, self.target, &self.projector.name, publishes);
        let (mut published, mut owners) = (Vec::new(), Vec::new());
        for (at, (event, changes)) in events.iter().zip(changes).enumerate() {
            let folded = drafts.fold(event, changes).await.map_err(|error| Refused::At(at, error.into()))?;
            owners.extend(std::iter::repeat_n(at, folded.len()));
            published.extend(folded);
        }
        self.publish(published, &owners).await?;
        let next = events.get(count).map_or(next, |event| event.offset);
        let ops = drafts.into_ops().map_err(|reason| Refused::Somewhere(Failed::Event(reason)))?;
        self.commit(ops, next).await
    }

    async fn publish(&self, events: Vec<Publish<'static>>, owners: &[usize]) -> Result<(), Refused> {
        let Some(follower) = self.follower.filter(|_| !events.is_empty()) else { return Ok(()) };
        let results = follower.publish_each(events).await;
        for (result, at) in results.into_iter().zip(owners) {
            match result {
                // Published before, by a definition that made something else of the same event.
                Ok(_) | Err(BusError::IdConflict { .. }) => {}
                Err(error) => return Err(Refused::At(*at, publish_failed(&error))),
            }
        }
        Ok(())
    }

    /// Commits documents, and the cursor with them.
    pub(crate) async fn commit(&self, ops: Vec<StateOp>, next: Offset) -> Result<(), Refused> {
        let mut batch = Batch { state: ops, ..Batch::derived() };
        if let Some(follower) = self.follower {
            batch = batch.with(CursorOp::Put {
                group: follower.group().clone(),
                topic: follower.topic().clone(),
                cursor: Cursor { floor: next, epoch: self.epoch, data: Vec::new() },
                expected_epoch: self.epoch,
            });
        }
        if batch.state.is_empty() {
            return Ok(());
        }
        match self.store.commit(batch).await {
            Ok(_) => Ok(()),
            Err(error) => Err(Refused::Somewhere(commit_failed(&error))),
        }
    }

    fn lift_error(&self, event: &StoredEvent) -> Option<String> {
        if !self.projector.normalize {
            return None;
        }
        let meta = promethean_model::EventMeta::decode(event.meta()).ok()?;
        let reason = meta.headers?.remove(LIFT_ERROR_HEADER)?;
        Some(format!("it could not be lifted to the latest version of its schema: {reason}"))
    }
}

/// Why changes were not committed.
pub(crate) enum Refused {
    /// For this event.
    At(usize, Failed),
    /// For one of them, or all.
    Somewhere(Failed),
}

impl Refused {
    pub(crate) fn into_failed(self) -> Failed {
        match self {
            Self::At(_, failed) | Self::Somewhere(failed) => failed,
        }
    }
}

impl From<FoldError> for Failed {
    fn from(error: FoldError) -> Self {
        match error {
            FoldError::Event(reason) => Self::Event(reason),
            FoldError::Store(error) => Self::Later(error.to_string()),
        }
    }
}

/// The changes of the events before the first that failed, and its failure.
fn until_failure(projected: Vec<Projected>) -> (Vec<Vec<Change>>, Option<Failed>) {
    let mut changes = Vec::new();
    for projected in projected {
        match projected {
            Ok(of_event) => changes.push(of_event),
            Err(failed) => return (changes, Some(failed)),
        }
    }
    (changes, None)
}

fn publish_failed(error: &BusError) -> Failed {
    let reason = format!("what it publishes was refused: {error}");
    match error {
        error if error.is_retryable() => Failed::Later(reason),
        BusError::Busy { .. } | BusError::StorageFailed { .. } => Failed::Later(reason),
        _ => Failed::Event(reason),
    }
}

fn commit_failed(error: &CommitError) -> Failed {
    let reason = error.to_string();
    match error {
        CommitError::UniqueViolation { .. }
        | CommitError::BadDocument { .. }
        | CommitError::TooLarge { .. }
        | CommitError::DocConflict { .. } => Failed::Event(reason),
        CommitError::Fenced { .. }
        | CommitError::BeyondEnd { .. }
        | CommitError::UnknownCollection { .. } => Failed::Halt(reason),
        _ => Failed::Later(reason),
    }
}
