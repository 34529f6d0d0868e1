//! One attempt at a page of events: what they publish, then their documents and the cursor in one commit.

use std::sync::Arc;

use promethean_bus::groups::Follower;
use promethean_bus::publish::Publish;
use promethean_bus::{Bus, BusError, StoredEvent};
use promethean_model::Offset;
use promethean_store::port::{Batch, CommitError, Cursor, CursorOp, StateOp, Store};

use crate::change::Change;
use crate::definition::Projector;
use crate::fold::{Drafts, FoldError, Kept};
use crate::logic::{Failed, Projected};
use crate::target::Target;

/// The header of an event that could not be lifted to the latest version of its schema.
const LIFT_ERROR_HEADER: &str = promethean_bus::schemas::ERROR_HEADER;

/// What an attempt needs.
pub(crate) struct Attempt<'a> {
    pub(crate) bus: &'a Bus,
    pub(crate) store: &'a Arc<dyn Store>,
    pub(crate) projector: &'a Projector,
    pub(crate) target: &'a Target,
    /// Whose cursor is moved and who publishes; `None` in a rebuild, which does neither.
    pub(crate) follower: Option<&'a Follower>,
    pub(crate) epoch: u64,
    /// Documents at hand.
    pub(crate) kept: Kept,
}

/// How far an attempt came.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Events that are done, and committed.
    pub(crate) done: usize,
    /// Why the next one is not.
    pub(crate) failed: Option<Failed>,
}

/// What is to be committed, when all is published.
pub(crate) struct Ready {
    /// Of how many events.
    pub(crate) count: usize,
    pub(crate) batch: Batch,
    /// Documents as they are then.
    pub(crate) kept: Kept,
}

/// The changes of each event, up to the first that fails.
pub(crate) async fn project(bus: &Bus, projector: &Projector, events: &[StoredEvent]) -> Vec<Projected> {
    if !projector.normalize {
        return projector.logic.project(bus.jq_pool(), events).await;
    }
    // Anew in each attempt: what could not be lifted may be the next time.
    let lifted = bus.lift_all(events.to_vec()).await;
    let mut projected = projector.logic.project(bus.jq_pool(), &lifted).await;
    for (event, projected) in lifted.iter().zip(&mut projected) {
        if let Some(reason) = lift_error(event) {
            *projected = Err(Failed::Event(reason));
        }
    }
    projected
}

impl Attempt<'_> {
    /// Projects events and commits as many of them as succeed in a row, or as fit one commit; `next` is where to go on
    /// after all of them.
    pub(crate) async fn run(&mut self, events: &[StoredEvent], next: Offset) -> Outcome {
        let (mut sure, mut failed) = (events.len(), None);
        loop {
            let part = events.get(..sure).unwrap_or_default();
            let (changes, at_fault) = until_failure(project(self.bus, self.projector, part).await);
            failed = at_fault.or(failed);
            sure = changes.len();
            if sure == 0 && failed.is_some() {
                return Outcome { done: 0, failed };
            }
            match self.apply(events, changes, next).await {
                Ok(done) if done < sure => return Outcome { done, failed: None },
                Ok(done) => return Outcome { done, failed },
                // Those before it are right by themselves.
                Err(Refused::At(at, reason)) => (sure, failed) = (at, Some(reason)),
                Err(Refused::Somewhere(Failed::Event(_))) if sure > 1 => {
                    return self.one_by_one(events, sure, next, failed).await;
                }
                Err(Refused::Somewhere(reason)) => return Outcome { done: 0, failed: Some(reason) },
            }
        }
    }

    /// The store refused a page for one of its first events, and does not say for which.
    async fn one_by_one(
        &mut self,
        events: &[StoredEvent],
        sure: usize,
        next: Offset,
        failed: Option<Failed>,
    ) -> Outcome {
        for done in 0..sure {
            let rest = events.get(done..).unwrap_or_default();
            let one = rest.get(..1).unwrap_or_default();
            let (changes, at_fault) = until_failure(project(self.bus, self.projector, one).await);
            let applied = match at_fault {
                Some(failed) => Err(failed),
                None => self.apply(rest, changes, next).await.map_err(Refused::into_failed),
            };
            if let Err(failed) = applied {
                return Outcome { done, failed: Some(failed) };
            }
        }
        Outcome { done: sure, failed }
    }

    /// Publishes and commits the changes of the first events of a page; of how many.
    async fn apply(
        &mut self,
        events: &[StoredEvent],
        changes: Vec<Vec<Change>>,
        next: Offset,
    ) -> Result<usize, Refused> {
        let Ready { count, batch, kept } = self.prepare(events, &mut changes.into_iter(), next).await?;
        self.commit_batch(batch).await?;
        self.kept = kept;
        Ok(count)
    }

    /// Publishes the changes of the first events of a page, and says what is to be committed then. Takes as many as it
    /// has use for.
    pub(crate) async fn prepare(
        &mut self,
        events: &[StoredEvent],
        changes: &mut impl Iterator<Item = Vec<Change>>,
        next: Offset,
    ) -> Result<Ready, Refused> {
        let publishes = self.follower.is_some();
        // Whatever goes wrong, what is half changed is not kept.
        let kept = std::mem::take(&mut self.kept);
        let mut drafts = Drafts::new(&**self.store, self.target, &self.projector.name, publishes, kept);
        let (mut emitted, mut owners, mut announced, mut count) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for (at, event) in events.iter().enumerate() {
            let Some(changes) = changes.next() else { break };
            let folded = drafts.fold(event, changes).await.map_err(|error| Refused::At(at, error.into()))?;
            owners.extend(std::iter::repeat_n(at, folded.events.len()));
            emitted.extend(folded.events);
            announced.extend(folded.changes);
            count += 1;
            if drafts.is_full() {
                break;
            }
        }
        let next = events.get(count).map_or(next, |event| event.offset);
        let ops = drafts.ops().map_err(|reason| Refused::Somewhere(Failed::Event(reason)))?;
        let batch = self.batch(ops, next);
        if publishes && self.target.has_unique_index() {
            // What is published cannot be taken back, so it must be known before.
            let checked = self.store.check_derived(&batch).await;
            checked.map_err(|error| Refused::Somewhere(commit_failed(&error)))?;
        }
        self.publish(emitted, |n| owners.get(n).copied()).await?;
        // After that: a feed tells of events only whose publishes were accepted.
        self.publish(announced, |_| None).await?;
        Ok(Ready { count, batch, kept: drafts.into_kept() })
    }

    /// Publishes; `owner` says for which event the n-th is.
    async fn publish(
        &self,
        events: Vec<Publish<'static>>,
        owner: impl Fn(usize) -> Option<usize>,
    ) -> Result<(), Refused> {
        let Some(follower) = self.follower.filter(|_| !events.is_empty()) else { return Ok(()) };
        for (n, result) in follower.publish_each(events).await.into_iter().enumerate() {
            match result {
                // Published before, by a definition that made something else of the same event.
                Ok(_) | Err(BusError::IdConflict { .. }) => {}
                Err(error) => {
                    let failed = publish_failed(&error);
                    return Err(
                        owner(n).map_or(Refused::Somewhere(failed.clone()), |at| Refused::At(at, failed))
                    );
                }
            }
        }
        Ok(())
    }

    /// Moves the cursor, with documents.
    pub(crate) async fn commit(&self, ops: Vec<StateOp>, next: Offset) -> Result<(), Refused> {
        self.commit_batch(self.batch(ops, next)).await
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

    async fn commit_batch(&self, batch: Batch) -> Result<(), Refused> {
        if batch.state.is_empty() {
            return Ok(());
        }
        let committed = self.store.commit(batch).await;
        committed.map(drop).map_err(|error| Refused::Somewhere(commit_failed(&error)))
    }
}

fn lift_error(event: &StoredEvent) -> Option<String> {
    let meta = promethean_model::EventMeta::decode(event.meta()).ok()?;
    let reason = meta.headers?.remove(LIFT_ERROR_HEADER)?;
    Some(format!("it could not be lifted to the latest version of its schema: {reason}"))
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
pub(crate) fn until_failure(projected: Vec<Projected>) -> (Vec<Vec<Change>>, Option<Failed>) {
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

pub(crate) fn commit_failed(error: &CommitError) -> Failed {
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
