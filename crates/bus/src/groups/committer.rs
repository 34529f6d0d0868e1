//! Commits of many owners as one.
//!
//! A commit takes a frame of the journal, a place in the order of all commits and a wake-up, however little it says.
//! So only one is on its way at a time: those that come meanwhile wait, and go together when it is back. An owner that
//! is alone commits at once and by itself.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use promethean_model::IgnorePoison;
use promethean_store::port::{Batch, CommitError, Store};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::tasks::Tasks;

/// Changes that go together at most, so that the store plans them where they are asked for.
const CHANGES_MAX: usize = 64;
/// Bytes that go together at most: a commit must fit a file of the journal, and one that is waited for must not wait
/// for long.
const BYTES_MAX: usize = 256 << 10;

/// Who commits, and what waits. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct ProgressCommitter(Arc<Shared>);

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

impl ProgressCommitter {
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
        self.0.line.lock().ignore_poison()
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
struct Turn<'a>(&'a ProgressCommitter);

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
    of: ProgressCommitter,
    over: bool,
}

impl Rounds {
    fn new(of: &ProgressCommitter) -> Self {
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
        f.debug_struct("ProgressCommitter").field("line", &self.line).finish_non_exhaustive()
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

    type Said = [(String, u64)];
    type Answers = dyn Fn(&Said) -> Result<(), CommitError> + Send + Sync;

    /// A store that commits when it is let to, and remembers what.
    struct Fake {
        /// What each batch said: topic and floor of every cursor.
        batches: Mutex<Vec<Vec<(String, u64)>>>,
        let_go: Semaphore,
        answer: Box<Answers>,
    }

    impl Fake {
        fn new(
            answer: impl Fn(&Said) -> Result<(), CommitError> + Send + Sync + 'static,
        ) -> (Arc<Self>, ProgressCommitter) {
            let (batches, let_go) = (Mutex::default(), Semaphore::new(0));
            let fake = Arc::new(Self { batches, let_go, answer: Box::new(answer) });
            let store = Arc::clone(&fake);
            let committer = ProgressCommitter::over(Box::new(move |batch| {
                let store = Arc::clone(&store);
                Box::pin(async move {
                    let said = said(&batch);
                    store.batches.lock().unwrap().push(said.clone());
                    store.let_go.acquire().await.unwrap().forget();
                    (store.answer)(&said)
                })
            }));
            (fake, committer)
        }

        fn batches(&self) -> Vec<Vec<(String, u64)>> {
            self.batches.lock().unwrap().clone()
        }
    }

    fn said(batch: &Batch) -> Vec<(String, u64)> {
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

    /// Begins a commit for each topic; returns when all of them have asked. The first is on its way, the others wait.
    async fn begin(
        committer: &ProgressCommitter,
        topics: &[String],
    ) -> JoinSet<(String, Result<(), CommitError>)> {
        let mut asked = JoinSet::new();
        for topic in topics {
            let (committer, topic) = (committer.clone(), topic.clone());
            asked.spawn(async move { (topic.clone(), committer.commit(batch(&topic, 7)).await) });
            // On one thread: it runs until it waits.
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
    async fn those_that_come_during_a_commit_go_together_and_hear_only_then() {
        let (fake, committer) = Fake::new(|_| Ok(()));
        let mut asked = begin(&committer, &names(4)).await;
        assert_eq!(fake.batches().len(), 1, "one at a time");
        fake.let_go.add_permits(1);
        assert_eq!(asked.join_next().await.unwrap().unwrap(), ("t0".to_owned(), Ok(())));
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert_eq!(fake.batches().get(1).map(Vec::len), Some(3));
        assert!(asked.try_join_next().is_none(), "answered before it is durable");
        fake.let_go.add_permits(1);
        assert!(answers(asked).await.values().all(Result::is_ok));
        committer.join().await;
        assert!(!committer.lock().busy);
        fake.let_go.add_permits(1);
        assert_eq!(committer.commit(batch("alone", 1)).await, Ok(()));
        assert_eq!(fake.batches().last().unwrap(), &[("alone".to_owned(), 1)]);
    }

    #[tokio::test]
    async fn a_refusal_reaches_only_its_owner() {
        for culprit in ["t1", "t5", "t9"] {
            let refuse = move |said: &Said| match said.iter().any(|(topic, _)| topic == culprit) {
                true => Err(fenced(culprit)),
                false => Ok(()),
            };
            let (fake, committer) = Fake::new(refuse);
            let asked = begin(&committer, &names(10)).await;
            fake.let_go.add_permits(100);
            let answers = answers(asked).await;
            for (topic, answer) in &answers {
                let expected = if topic == culprit { Err(fenced(culprit)) } else { Ok(()) };
                assert_eq!(*answer, expected, "{topic}");
            }
            let accepted = fake.batches().into_iter().filter(|said| refuse(said).is_ok()).flatten();
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
            let (fake, committer) = Fake::new(move |_| Err(failing.clone()));
            let asked = begin(&committer, &names(5)).await;
            fake.let_go.add_permits(100);
            let answers = answers(asked).await;
            assert!(answers.values().all(|answer| *answer == Err(error.clone())), "{answers:?}");
            assert_eq!(fake.batches().len(), 2);
        }
    }

    #[tokio::test]
    async fn what_goes_together_is_bounded() {
        let (fake, committer) = Fake::new(|_| Ok(()));
        let asked = begin(&committer, &names(1 + CHANGES_MAX + 1)).await;
        fake.let_go.add_permits(100);
        assert!(answers(asked).await.values().all(Result::is_ok));
        let sizes: Vec<_> = fake.batches().iter().map(Vec::len).collect();
        assert_eq!(sizes, [1, CHANGES_MAX, 1]);

        let (fake, committer) = Fake::new(|_| Ok(()));
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
        fake.let_go.add_permits(100);
        assert!(asked.join_all().await.iter().all(Result::is_ok));
        assert!(fake.batches().iter().all(|said| said.len() == 1));
    }

    #[tokio::test]
    async fn whoever_gives_up_waiting_commits_nothing_and_holds_up_nobody() {
        let (fake, committer) = Fake::new(|_| Ok(()));
        let mut asked = begin(&committer, &names(3)).await;
        // The one whose turn it is, and the first of those that wait.
        let mut others = begin_one(&committer, "t3");
        tokio::task::yield_now().await;
        asked.abort_all();
        while asked.join_next().await.is_some() {}
        fake.let_go.add_permits(100);
        assert_eq!(others.join_next().await.unwrap().unwrap(), Ok(()));
        committer.join().await;
        let said: Vec<_> = fake.batches().into_iter().flatten().map(|(topic, _)| topic).collect();
        assert_eq!(said, ["t0", "t3"]);
        assert!(!committer.lock().busy);
    }

    fn begin_one(committer: &ProgressCommitter, topic: &'static str) -> JoinSet<Result<(), CommitError>> {
        let committer = committer.clone();
        JoinSet::from_iter([async move { committer.commit(batch(topic, 7)).await }])
    }

    #[test]
    fn a_runtime_that_ends_leaves_nobody_waiting() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (fake, committer) = Fake::new(|_| Ok(()));
        let first = runtime();
        let asked = first.block_on(begin(&committer, &names(3)));
        drop(first);
        drop(asked);
        let line = format!("{:?}", committer.lock());
        assert!(!committer.lock().busy && committer.lock().waiting.is_empty(), "{line}");
        fake.let_go.add_permits(1);
        let second = runtime();
        let again = second.block_on(async {
            let within = Duration::from_secs(120);
            tokio::time::timeout(within, committer.commit(batch("later", 1))).await
        });
        assert_eq!(again, Ok(Ok(())));
    }

    /// ClaimOwners that commit one floor after the other, against a store that refuses some for a while: what the store has is
    /// what each was told, in its order.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn commits_of_an_owner_keep_their_order_and_none_is_lost() {
        const OWNERS: usize = 100;
        const FLOORS: u64 = 30;
        let refuse = |said: &Said| {
            let of = |(topic, floor): &(String, u64)| floor % 7 == 3 && topic.ends_with('4');
            said.iter().find(|one| of(one)).map_or(Ok(()), |(topic, _)| Err(fenced(topic)))
        };
        let (fake, committer) = Fake::new(refuse);
        fake.let_go.add_permits(Semaphore::MAX_PERMITS / 2);
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
        for (topic, floor) in batches.iter().filter(|said| refuse(said).is_ok()).flatten() {
            there.entry(topic.clone()).or_default().push(*floor);
        }
        assert_eq!(there, told);
        assert!(told.iter().all(|(topic, floors)| (floors.len() < FLOORS as usize) == topic.ends_with('4')));
    }
}
