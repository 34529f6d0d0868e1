//! Which job gets a thread when there are few.

use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};

use super::*;

/// So long that no job is given up.
const LONG: Duration = Duration::from_secs(3_600);

fn state(pool: &Pool) -> MutexGuard<'_, PoolState> {
    pool.owner.shared.lock()
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("stalled")
}

type BoxedAnswer = Pin<Box<dyn Future<Output = Result<(), PoolError>> + Send>>;

/// A job that keeps its thread until the sender is dropped.
fn holding(pool: &Pool, lane: Lane) -> (BoxedAnswer, mpsc::SyncSender<()>) {
    let (hold, held) = mpsc::sync_channel::<()>(0);
    let job = pool.work(lane, LONG, move |_| held.recv().unwrap_or_default());
    let mut answer: BoxedAnswer = Box::pin(job);
    assert!(poll(&mut answer).is_pending());
    (answer, hold)
}

fn poll(answer: &mut BoxedAnswer) -> Poll<Result<(), PoolError>> {
    answer.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn quick(pool: &Pool, lane: Lane) -> BoxedAnswer {
    Box::pin(pool.work(lane, LONG, |_| ()))
}

#[tokio::test]
async fn too_much_is_refused_and_readers_wait() {
    let pool = &Pool::new();
    let (mut answers, holds): (Vec<_>, Vec<_>) =
        (0..WORKERS_MAX).map(|_| holding(pool, Lane::Publish)).unzip();
    // The threads must have taken those jobs first.
    soon(async {
        while state(pool).running.len() < WORKERS_MAX {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut pending = |lane, count| {
        for _ in 0..count {
            let mut answer = quick(pool, lane);
            assert!(poll(&mut answer).is_pending(), "{lane:?}");
            answers.push(answer);
        }
    };
    // Readers take no places of publishers, and readers beyond their places wait.
    pending(Lane::Read, READ_MAX + 10);
    assert_eq!(state(pool).queue.len(), READ_MAX);
    pending(Lane::Publish, PUBLISH_MAX);
    assert_eq!(soon(quick(pool, Lane::Publish)).await, Err(PoolError::Busy));
    pending(Lane::Read, 1);
    pending(Lane::Bulk, 2);
    drop(holds);
    for answer in answers {
        assert_eq!(soon(answer).await, Ok(()));
    }
    assert_eq!(soon(quick(pool, Lane::Publish)).await, Ok(()));
    let state = state(pool);
    assert_eq!((state.publish, state.queue.len()), (0, 0));
}

#[tokio::test]
async fn bulk_leaves_threads_to_others() {
    let pool = &Pool::new();
    let bulk: Vec<_> = (0..WORKERS_MAX + 1).map(|_| holding(pool, Lane::Bulk)).collect();
    for _ in 0..10 {
        assert_eq!(soon(quick(pool, Lane::Publish)).await, Ok(()));
        assert_eq!(soon(quick(pool, Lane::Read)).await, Ok(()));
    }
    // One after the other, and all of them in the end.
    for (answer, hold) in bulk {
        drop(hold);
        assert_eq!(soon(answer).await, Ok(()));
    }
}

#[tokio::test]
async fn bulk_never_has_the_last_thread() {
    let pool = &Pool::new();
    // As if programs had kept the others.
    state(pool).lost = LOST_MAX - 1;
    assert_eq!(soon(quick(pool, Lane::Publish)).await, Ok(()));
    state(pool).lost = LOST_MAX;
    assert_eq!(soon(quick(pool, Lane::Bulk)).await, Err(PoolError::NoThread));
    assert_eq!(soon(quick(pool, Lane::Read)).await, Ok(()));
}

#[tokio::test]
async fn a_job_that_is_given_up_gives_its_place_back() {
    let pool = &Pool::new();
    let (hold, held) = mpsc::sync_channel::<()>(0);
    let stuck = pool.work(Lane::Bulk, Duration::ZERO, move |_| held.recv().unwrap_or_default());
    assert_eq!(soon(stuck).await, Err(PoolError::Time { call: 0 }));
    assert_eq!(soon(quick(pool, Lane::Bulk)).await, Ok(()));
    drop(hold);
}

#[tokio::test]
async fn a_reader_that_went_away_gets_no_thread() {
    let pool = &Pool::new();
    let (bulk, hold) = holding(pool, Lane::Bulk);
    let (ran, runs) = mpsc::sync_channel::<()>(1);
    drop(pool.work(Lane::Bulk, LONG, move |_| ran.send(()).unwrap_or_default()));
    let next = quick(pool, Lane::Bulk);
    drop(hold);
    assert_eq!(soon(bulk).await, Ok(()));
    // Bulk jobs run one after the other, so the job that was dropped would have run before this one.
    assert_eq!(soon(next).await, Ok(()));
    assert!(runs.try_recv().is_err());
}

#[tokio::test]
async fn threads_end_with_their_pool() {
    let pool = Pool::new();
    let shared = Arc::downgrade(&pool.owner.shared);
    let (answer, hold) = holding(&pool, Lane::Publish);
    let queued = quick(&pool, Lane::Read);
    drop(pool);
    drop(hold);
    assert_eq!((soon(answer).await, soon(queued).await), (Ok(()), Ok(())));
    // Each thread holds the state that it shares with the others.
    soon(async {
        while shared.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn without_threads_no_caller_waits() {
    let pool = &Pool::new();
    state(pool).lost = LOST_MAX;
    for lane in [Lane::Publish, Lane::Read, Lane::Bulk] {
        assert_eq!(soon(quick(pool, lane)).await, Err(PoolError::NoThread), "{lane:?}");
    }
}

#[tokio::test]
async fn a_program_is_stuck_only_while_it_keeps_threads() {
    let pool = &Pool::new();
    let record = Arc::new(crate::watch::ThreadRecord::default());
    let mut holds = Vec::new();
    for kept in 0..4 {
        assert!(!record.is_stuck(), "after {kept}");
        let ((hold, held), record) = (mpsc::sync_channel::<()>(0), Arc::clone(&record));
        let job = pool.work(Lane::Publish, Duration::ZERO, move |watch| {
            assert!(watch.begin_call(&record));
            held.recv().unwrap_or_default();
            // The watchdog looks at this job no more, so it may make no further call.
            assert!(!watch.begin_call(&record));
        });
        assert_eq!(soon(job).await, Err(PoolError::Time { call: 1 }));
        holds.push(hold);
    }
    assert!(record.is_stuck());
    holds.pop();
    soon(async {
        while state(pool).lost > 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(!record.is_stuck());
    drop(holds);
    soon(async {
        while state(pool).lost > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(soon(quick(pool, Lane::Publish)).await, Ok(()));
}
