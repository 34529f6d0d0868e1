//! Joins the commits of many owners into one.
//!
//! Every commit costs a frame of the journal, a place in the order of all commits and a wake-up, however
//! small it is. So only one commit is in flight at a time. Batches that come meanwhile wait in a queue, and
//! go together in the next commit. If no commit is in flight, an owner commits its batch at once and alone.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use promethean_model::IgnorePoison;
use promethean_store::port::{Batch, CommitError, Store};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::tasks::Tasks;

/// The most changes in one joined commit. The store plans a commit of this size on the caller's thread.
const CHANGES_MAX: usize = 64;
/// The most bytes in one joined commit: it must fit into a file of the journal, and must not take long.
const BYTES_MAX: usize = 256 << 10;

/// Commits the progress of owners, and holds the queue of waiting batches. Clones share both.
#[derive(Debug, Clone)]
pub(crate) struct ProgressCommitter(Arc<Shared>);

/// The function that commits one batch.
type Commit = Box<dyn Fn(Batch) -> Committing + Send + Sync>;
type Committing = Pin<Box<dyn Future<Output = Result<(), CommitError>> + Send>>;

struct Shared {
    commit: Commit,
    queue: Mutex<CommitQueue>,
    /// The tasks that commit queued batches.
    tasks: Tasks,
}

#[derive(Debug, Default)]
struct CommitQueue {
    /// Whether a commit is in flight. Its caller or task commits the queued batches next, or starts a task
    /// that does.
    busy: bool,
    /// At most one batch for each owner, because an owner waits for its commit before it makes the next.
    waiting: VecDeque<QueuedBatch>,
}

#[derive(Debug)]
struct QueuedBatch {
    batch: Batch,
    answer: oneshot::Sender<Result<(), CommitError>>,
}

impl ProgressCommitter {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self::over(Box::new(move |batch| {
            let store = Arc::clone(&store);
            Box::pin(async move { store.commit(batch).await.map(drop) })
        }))
    }

    fn over(commit: Commit) -> Self {
        Self(Arc::new(Shared { commit, queue: Mutex::default(), tasks: Tasks::default() }))
    }

    /// Commits changes of state: all of them or none, as if they were committed alone. An owner calls it
    /// again only after its last commit is answered. A call that is dropped while its batch is queued commits
    /// nothing.
    pub(crate) async fn commit(&self, batch: Batch) -> Result<(), CommitError> {
        debug_assert!(batch.events.is_empty(), "batches with events are not joined");
        match self.enqueue(batch) {
            Ok(answered) => answered.await.unwrap_or_else(|_| Err(unknown_outcome())),
            Err(batch) => {
                let _direct = DirectCommit(self);
                (self.0.commit)(batch).await
            }
        }
    }

    /// Queues the batch and returns the receiver of its result. If no commit is in flight, gives the batch
    /// back as `Err`: then the caller commits it.
    fn enqueue(&self, batch: Batch) -> Result<oneshot::Receiver<Result<(), CommitError>>, Batch> {
        let mut queue = self.lock();
        if !queue.busy {
            queue.busy = true;
            return Err(batch);
        }
        let (answer, answered) = oneshot::channel();
        queue.waiting.push_back(QueuedBatch { batch, answer });
        Ok(answered)
    }

    /// Waits until no commit is in flight. Called when all owners have ended.
    pub(crate) async fn join(&self) {
        self.0.tasks.join().await;
    }

    /// Takes the batches that go together next. If none wait, returns `None` and marks the committer as free.
    fn next(&self) -> Option<Vec<QueuedBatch>> {
        let (mut taken, mut changes, mut bytes) = (Vec::new(), 0, 0);
        let mut queue = self.lock();
        while let Some(first) = queue.waiting.front() {
            changes += first.batch.state.len();
            bytes += first.batch.bytes();
            if !taken.is_empty() && (changes > CHANGES_MAX || bytes > BYTES_MAX) {
                break;
            }
            // A batch whose caller was dropped must not be committed.
            taken.extend(queue.waiting.pop_front().filter(|waiting| !waiting.answer.is_closed()));
        }
        queue.busy = !taken.is_empty();
        queue.busy.then_some(taken)
    }

    fn lock(&self) -> MutexGuard<'_, CommitQueue> {
        // Each change is one operation, so a panic elsewhere leaves it whole.
        self.0.queue.lock().ignore_poison()
    }
}

/// Commits all batches as one. If that is refused, tries each half, and so on down to the single batch that
/// is the cause, so that only its caller gets the error.
async fn commit_together(commit: &Commit, all: Vec<QueuedBatch>) {
    let mut parts = vec![all];
    while let Some(mut part) = parts.pop() {
        let changes = part.iter().flat_map(|waiting| &waiting.batch.state).cloned();
        let batch = Batch { state: changes.collect(), ..Batch::new() };
        match commit(batch).await {
            Err(error) if part.len() > 1 && may_concern_one_batch(&error) => {
                let rest = part.split_off(part.len() / 2);
                parts.extend([rest, part]);
            }
            result => {
                for waiting in part {
                    // A failed send means that the caller no longer waits.
                    let _ = waiting.answer.send(result.clone());
                }
            }
        }
    }
}

/// Whether a refusal may have its cause in one batch only. False if anything may have been written.
fn may_concern_one_batch(error: &CommitError) -> bool {
    let concerns_all = matches!(
        error,
        CommitError::Closed
            | CommitError::Poisoned { .. }
            | CommitError::StorageFull { .. }
            | CommitError::Busy { .. }
    );
    error.has_no_side_effects() && !concerns_all
}

fn unknown_outcome() -> CommitError {
    CommitError::UnknownOutcome { reason: "the runtime shuts down".to_owned() }
}

/// Guard of a caller that commits its own batch. When it is dropped, after the commit or because the call was
/// cancelled, a task commits the queued batches.
struct DirectCommit<'a>(&'a ProgressCommitter);

impl Drop for DirectCommit<'_> {
    fn drop(&mut self) {
        let Self(committer) = self;
        let mut queue = committer.lock();
        if queue.waiting.is_empty() {
            queue.busy = false;
            return;
        }
        drop(queue);
        match Handle::try_current() {
            Ok(_) => committer.0.tasks.spawn(QueueDrain::new(committer).run()),
            // No runtime is left to run a task: dropping the drain answers the waiting callers.
            Err(_) => drop(QueueDrain::new(committer)),
        }
    }
}

/// The task that commits queued batches until none is left. If it is dropped before that, even before its
/// first poll, all waiting callers get an error.
struct QueueDrain {
    committer: ProgressCommitter,
    finished: bool,
}

impl QueueDrain {
    fn new(committer: &ProgressCommitter) -> Self {
        Self { committer: committer.clone(), finished: false }
    }

    /// Commits the queued batches until the queue is empty.
    async fn run(mut self) {
        while let Some(taken) = self.committer.next() {
            commit_together(&self.committer.0.commit, taken).await;
        }
        self.finished = true;
    }
}

impl Drop for QueueDrain {
    fn drop(&mut self) {
        if !self.finished {
            let mut queue = self.committer.lock();
            queue.busy = false;
            let unanswered = std::mem::take(&mut queue.waiting);
            drop(queue);
            drop(unanswered);
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProgressCommitter").field("queue", &self.queue).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use promethean_model::{Offset, TopicName};
    use promethean_store::port::{Cursor, CursorOp, StateOp};
    use tokio::sync::Semaphore;
    use tokio::task::JoinSet;

    use super::*;

    type Floors = [(String, u64)];
    type Answers = dyn Fn(&Floors) -> Result<(), CommitError> + Send + Sync;

    /// A store that commits when it has a permit, and remembers each batch.
    struct FakeStore {
        /// For each batch, the topic and floor of every cursor in it.
        batches: Mutex<Vec<Vec<(String, u64)>>>,
        permits: Semaphore,
        answer: Box<Answers>,
    }

    impl FakeStore {
        fn new(
            answer: impl Fn(&Floors) -> Result<(), CommitError> + Send + Sync + 'static,
        ) -> (Arc<Self>, ProgressCommitter) {
            let (batches, permits) = (Mutex::default(), Semaphore::new(0));
            let fake = Arc::new(Self { batches, permits, answer: Box::new(answer) });
            let store = Arc::clone(&fake);
            let committer = ProgressCommitter::over(Box::new(move |batch| {
                let store = Arc::clone(&store);
                Box::pin(async move {
                    let floors = floors(&batch);
                    store.batches.lock().unwrap().push(floors.clone());
                    store.permits.acquire().await.unwrap().forget();
                    (store.answer)(&floors)
                })
            }));
            (fake, committer)
        }

        fn batches(&self) -> Vec<Vec<(String, u64)>> {
            self.batches.lock().unwrap().clone()
        }
    }

    fn floors(batch: &Batch) -> Vec<(String, u64)> {
        let cursor = |op: &StateOp| match op {
            StateOp::Cursor(CursorOp::Put { topic, cursor, .. }) => (topic.to_string(), cursor.floor.get()),
            other => panic!("{other:?}"),
        };
        batch.state.iter().map(cursor).collect()
    }

    fn batch(topic: &str, floor: u64) -> Batch {
        let cursor = Cursor { floor: Offset(floor), epoch: 1, data: Vec::new() };
        let (group, topic) = ("g".parse().unwrap(), topic.parse().unwrap());
        Batch::new().with(CursorOp::Put { group, topic, cursor, expected_epoch: 1 })
    }

    fn fenced(topic: &str) -> CommitError {
        let topic: TopicName = topic.parse().unwrap();
        CommitError::Fenced { group: "g".parse().unwrap(), topic, expected: 1, actual: 2 }
    }

    /// Begins a commit for each topic. When it returns, the first commit is in flight and the others are
    /// queued.
    async fn begin(
        committer: &ProgressCommitter,
        topics: &[String],
    ) -> JoinSet<(String, Result<(), CommitError>)> {
        let mut asked = JoinSet::new();
        for topic in topics {
            let (committer, topic) = (committer.clone(), topic.clone());
            asked.spawn(async move { (topic.clone(), committer.commit(batch(&topic, 7)).await) });
            // The runtime has one thread, so the task runs until it waits.
            tokio::task::yield_now().await;
        }
        assert_eq!(committer.lock().waiting.len(), topics.len() - 1);
        asked
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("t{number}")).collect()
    }

    async fn answers(
        asked: JoinSet<(String, Result<(), CommitError>)>,
    ) -> BTreeMap<String, Result<(), CommitError>> {
        asked.join_all().await.into_iter().collect()
    }

    #[tokio::test]
    async fn batches_queued_during_a_commit_go_together_and_are_answered_once_durable() {
        let (fake, committer) = FakeStore::new(|_| Ok(()));
        let mut asked = begin(&committer, &names(4)).await;
        assert_eq!(fake.batches().len(), 1, "one at a time");
        fake.permits.add_permits(1);
        assert_eq!(asked.join_next().await.unwrap().unwrap(), ("t0".to_owned(), Ok(())));
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert_eq!(fake.batches().get(1).map(Vec::len), Some(3));
        assert!(asked.try_join_next().is_none(), "answered before it is durable");
        fake.permits.add_permits(1);
        assert!(answers(asked).await.values().all(Result::is_ok));
        committer.join().await;
        assert!(!committer.lock().busy);
        fake.permits.add_permits(1);
        assert_eq!(committer.commit(batch("alone", 1)).await, Ok(()));
        assert_eq!(fake.batches().last().unwrap(), &[("alone".to_owned(), 1)]);
    }

    #[tokio::test]
    async fn a_refusal_reaches_only_its_owner() {
        for culprit in ["t1", "t5", "t9"] {
            let refuse = move |floors: &Floors| match floors.iter().any(|(topic, _)| topic == culprit) {
                true => Err(fenced(culprit)),
                false => Ok(()),
            };
            let (fake, committer) = FakeStore::new(refuse);
            let asked = begin(&committer, &names(10)).await;
            fake.permits.add_permits(100);
            let answers = answers(asked).await;
            for (topic, answer) in &answers {
                let expected = if topic == culprit { Err(fenced(culprit)) } else { Ok(()) };
                assert_eq!(*answer, expected, "{topic}");
            }
            let accepted = fake.batches().into_iter().filter(|floors| refuse(floors).is_ok()).flatten();
            let mut accepted: Vec<_> = accepted.map(|(topic, _)| topic).collect();
            accepted.sort();
            let expected: Vec<_> = names(10).into_iter().filter(|topic| topic != culprit).collect();
            assert_eq!(accepted, expected, "each once");
        }
    }

    #[tokio::test]
    async fn a_failure_of_the_store_reaches_all_and_is_not_tried_again() {
        for error in [
            CommitError::UnknownOutcome { reason: "power".to_owned() },
            CommitError::Poisoned { reason: "disk".to_owned() },
            CommitError::Closed,
        ] {
            let failing = error.clone();
            let (fake, committer) = FakeStore::new(move |_| Err(failing.clone()));
            let asked = begin(&committer, &names(5)).await;
            fake.permits.add_permits(100);
            let answers = answers(asked).await;
            assert!(answers.values().all(|answer| *answer == Err(error.clone())), "{answers:?}");
            assert_eq!(fake.batches().len(), 2);
        }
    }

    #[tokio::test]
    async fn joined_commits_are_bounded() {
        let (fake, committer) = FakeStore::new(|_| Ok(()));
        let asked = begin(&committer, &names(1 + CHANGES_MAX + 1)).await;
        fake.permits.add_permits(100);
        assert!(answers(asked).await.values().all(Result::is_ok));
        let sizes: Vec<_> = fake.batches().iter().map(Vec::len).collect();
        assert_eq!(sizes, [1, CHANGES_MAX, 1]);

        let (fake, committer) = FakeStore::new(|_| Ok(()));
        let large = |topic: &str| {
            let mut batch = batch(topic, 1);
            let Some(StateOp::Cursor(CursorOp::Put { cursor, .. })) = batch.state.first_mut() else {
                panic!()
            };
            cursor.data = vec![0; BYTES_MAX / 2];
            batch
        };
        let mut asked = JoinSet::new();
        for topic in names(3) {
            let committer = committer.clone();
            asked.spawn(async move { committer.commit(large(&topic)).await });
        }
        tokio::task::yield_now().await;
        assert_eq!(committer.lock().waiting.len(), 2);
        fake.permits.add_permits(100);
        assert!(asked.join_all().await.iter().all(Result::is_ok));
        assert!(fake.batches().iter().all(|floors| floors.len() == 1));
    }

    #[tokio::test]
    async fn a_dropped_call_commits_nothing_and_delays_no_other() {
        let (fake, committer) = FakeStore::new(|_| Ok(()));
        let mut asked = begin(&committer, &names(3)).await;
        // `asked` holds the call in flight and the first two in the queue; all three are dropped.
        let mut others = begin_one(&committer, "t3");
        tokio::task::yield_now().await;
        asked.abort_all();
        while asked.join_next().await.is_some() {}
        fake.permits.add_permits(100);
        assert_eq!(others.join_next().await.unwrap().unwrap(), Ok(()));
        committer.join().await;
        let committed: Vec<_> = fake.batches().into_iter().flatten().map(|(topic, _)| topic).collect();
        assert_eq!(committed, ["t0", "t3"]);
        assert!(!committer.lock().busy);
    }

    fn begin_one(committer: &ProgressCommitter, topic: &'static str) -> JoinSet<Result<(), CommitError>> {
        let committer = committer.clone();
        JoinSet::from_iter([async move { committer.commit(batch(topic, 7)).await }])
    }

    #[test]
    fn a_runtime_that_ends_leaves_no_caller_waiting() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (fake, committer) = FakeStore::new(|_| Ok(()));
        let first = runtime();
        let asked = first.block_on(begin(&committer, &names(3)));
        drop(first);
        drop(asked);
        let queue = format!("{:?}", committer.lock());
        assert!(!committer.lock().busy && committer.lock().waiting.is_empty(), "{queue}");
        fake.permits.add_permits(1);
        let second = runtime();
        let again = second.block_on(async {
            let within = Duration::from_secs(120);
            tokio::time::timeout(within, committer.commit(batch("later", 1))).await
        });
        assert_eq!(again, Ok(Ok(())));
    }

    /// Owners commit one floor after the other to a store that refuses some of them. The store must hold
    /// exactly the floors that each owner was told are committed, in order.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn commits_of_an_owner_keep_their_order_and_none_is_lost() {
        const OWNERS: usize = 100;
        const FLOORS: u64 = 30;
        let refuse = |floors: &Floors| {
            let of = |(topic, floor): &(String, u64)| floor % 7 == 3 && topic.ends_with('4');
            floors.iter().find(|one| of(one)).map_or(Ok(()), |(topic, _)| Err(fenced(topic)))
        };
        let (fake, committer) = FakeStore::new(refuse);
        fake.permits.add_permits(Semaphore::MAX_PERMITS / 2);
        let mut owners = JoinSet::new();
        for topic in names(OWNERS) {
            let committer = committer.clone();
            owners.spawn(async move {
                let mut accepted = Vec::new();
                for floor in 0..FLOORS {
                    match committer.commit(batch(&topic, floor)).await {
                        Ok(()) => accepted.push(floor),
                        Err(error) => assert_eq!(error, fenced(&topic)),
                    }
                }
                (topic, accepted)
            });
        }
        let told: BTreeMap<_, _> = owners.join_all().await.into_iter().collect();
        committer.join().await;
        let batches = fake.batches();
        let mut there: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (topic, floor) in batches.iter().filter(|floors| refuse(floors).is_ok()).flatten() {
            there.entry(topic.clone()).or_default().push(*floor);
        }
        assert_eq!(there, told);
        assert!(told.iter().all(|(topic, floors)| (floors.len() < FLOORS as usize) == topic.ends_with('4')));
    }
}
