//! Commits of many owners as one.
//!
//! A commit takes a frame of the journal, a place in the order of all commits and a wake-up, however little it says.
//! So only one is on its way at a time: those that come meanwhile wait, and go together when it is back. An owner that
//! is alone commits at once and by itself.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use promethean_store::port::{Batch, CommitError, Store};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::core::Tasks;

/// Changes that go together at most, so that the store plans them where they are asked for.
const CHANGES_MAX: usize = 64;
/// Bytes that go together at most: a commit must fit a file of the journal, and one that is waited for must not wait
/// for long.
const BYTES_MAX: usize = 256 << 10;

/// Who commits, and what waits. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Committer(Arc<Shared>);

/// How a batch is committed.
type Commit = Box<dyn Fn(Batch) -> Committing + Send + Sync>;
type Committing = Pin<Box<dyn Future<Output = Result<(), CommitError>> + Send>>;

struct Shared {
    commit: Commit,
    line: Mutex<Line>,
    /// What commits for those that wait.
    tasks: Tasks,
}

#[derive(Debug, Default)]
struct Line {
    /// Whether somebody commits; whoever it is goes on with what waits, or sees to it that somebody does.
    busy: bool,
    /// No more than there are owners: each waits for its commit before it makes the next.
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    batch: Batch,
    answer: oneshot::Sender<Result<(), CommitError>>,
}

impl Committer {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self::over(Box::new(move |batch| {
            let store = Arc::clone(&store);
            Box::pin(async move { store.commit(batch).await.map(drop) })
        }))
    }

    fn over(commit: Commit) -> Self {
        Self(Arc::new(Shared { commit, line: Mutex::default(), tasks: Tasks::default() }))
    }

    /// Commits changes of state: all of them, or nothing, as if they were committed alone. To be called for an owner
    /// when what it committed before is answered. A call that is dropped while it waits commits nothing.
    pub(crate) async fn commit(&self, batch: Batch) -> Result<(), CommitError> {
        debug_assert!(batch.events.is_empty(), "events are not combined");
        match self.wait_in_line(batch) {
            Ok(answered) => answered.await.unwrap_or_else(|_| Err(unheard())),
            Err(batch) => {
                let _turn = Turn(self);
                (self.0.commit)(batch).await
            }
        }
    }

    /// Gives the batch back if nobody commits: then it is the caller's turn.
    fn wait_in_line(&self, batch: Batch) -> Result<oneshot::Receiver<Result<(), CommitError>>, Batch> {
        let mut line = self.lock();
        if !line.busy {
            line.busy = true;
            return Err(batch);
        }
        let (answer, answered) = oneshot::channel();
        line.waiting.push_back(Waiting { batch, answer });
        Ok(answered)
    }

    /// Waits until nothing is on its way. For when there are no owners any more.
    pub(crate) async fn join(&self) {
        self.0.tasks.join().await;
    }

    /// What goes together next. `None`, and nobody is busy any more, if nothing waits.
    fn next(&self) -> Option<Vec<Waiting>> {
        let (mut taken, mut changes, mut bytes) = (Vec::new(), 0, 0);
        let mut line = self.lock();
        while let Some(first) = line.waiting.front() {
            changes += first.batch.state.len();
            bytes += first.batch.bytes();
            if !taken.is_empty() && (changes > CHANGES_MAX || bytes > BYTES_MAX) {
                break;
            }
            // Whoever went away is to have changed nothing.
            taken.extend(line.waiting.pop_front().filter(|waiting| !waiting.answer.is_closed()));
        }
        line.busy = !taken.is_empty();
        line.busy.then_some(taken)
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        // Each change is one operation, so a panic elsewhere leaves it whole.
        self.0.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Commits all of it in one batch. Where that is refused the halves are tried, down to the one that is to blame: the
/// others are not concerned.
async fn commit_together(commit: &Commit, all: Vec<Waiting>) {
    let mut parts = vec![all];
    while let Some(mut part) = parts.pop() {
        let changes = part.iter().flat_map(|waiting| &waiting.batch.state).cloned();
        let batch = Batch { state: changes.collect(), ..Batch::new() };
        match commit(batch).await {
            Err(error) if part.len() > 1 && may_be_of_one(&error) => {
                let rest = part.split_off(part.len() / 2);
                parts.extend([rest, part]);
            }
            result => {
                for waiting in part {
                    // Whoever asked may have gone away.
                    let _ = waiting.answer.send(result.clone());
                }
            }
        }
    }
}

/// Whether a refusal may concern one change, and the others not. Nothing must have been written.
fn may_be_of_one(error: &CommitError) -> bool {
    let of_all = matches!(error, CommitError::Closed | CommitError::Poisoned { .. });
    error.has_no_side_effects() && !of_all
}

fn unheard() -> CommitError {
    CommitError::UnknownOutcome { reason: "the runtime shuts down".to_owned() }
}

/// The turn of one who commits for itself; when it is over, or given up, a task goes on with those that wait.
struct Turn<'a>(&'a Committer);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Self(committer) = self;
        let mut line = committer.lock();
        if line.waiting.is_empty() {
            line.busy = false;
            return;
        }
        drop(line);
        match Handle::try_current() {
            Ok(_) => committer.0.tasks.spawn(Rounds::new(committer).work_off()),
            // There is no runtime any more that could.
            Err(_) => drop(Rounds::new(committer)),
        }
    }
}

/// The rounds of a task. If it ends before its time, even before it began, whoever waits hears of that.
struct Rounds {
    of: Committer,
    over: bool,
}

impl Rounds {
    fn new(of: &Committer) -> Self {
        Self { of: of.clone(), over: false }
    }

    /// Commits what waits until nothing does.
    async fn work_off(mut self) {
        while let Some(taken) = self.of.next() {
            commit_together(&self.of.0.commit, taken).await;
        }
        self.over = true;
    }
}

impl Drop for Rounds {
    fn drop(&mut self) {
        if !self.over {
            let mut line = self.of.lock();
            line.busy = false;
            let unanswered = std::mem::take(&mut line.waiting);
            drop(line);
            drop(unanswered);
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Committer").field("line", &self.line).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
