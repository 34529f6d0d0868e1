//! Who gets a thread when there are few.

use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};

use tokio::task::unconstrained;

use super::*;

/// So long that no job is given up.
const LONG: Duration = Duration::from_secs(3_600);

fn pool() -> &'static Pool {
    Box::leak(Box::new(Pool::new()))
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("stalled")
}

type Answer = Pin<Box<dyn Future<Output = Result<(), Lost>> + Send>>;

/// A job that keeps its thread until the other end is dropped, and has come as far as it does without help.
fn holding(pool: &'static Pool, lane: Lane) -> (Answer, mpsc::SyncSender<()>) {
    let (hold, held) = mpsc::sync_channel::<()>(0);
    let job = pool.work(lane, LONG, move |_| held.recv().unwrap_or_default());
    let mut answer: Answer = Box::pin(unconstrained(job));
    assert!(poll(&mut answer).is_pending());
    (answer, hold)
}

fn poll(answer: &mut Answer) -> Poll<Result<(), Lost>> {
    answer.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn quick(pool: &'static Pool, lane: Lane) -> Answer {
    Box::pin(unconstrained(pool.work(lane, LONG, |_| ())))
}

#[tokio::test]
async fn too_much_is_refused_and_readers_wait() {
    let pool = pool();
    let (mut answers, holds): (Vec<_>, Vec<_>) = (0..WORKERS_MAX).map(|_| holding(pool, Lane::Asked)).unzip();
    // Not before the threads have taken those.
    soon(async {
        while pool.lock().running.len() < WORKERS_MAX {
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
    // Readers take no place of those who ask, and more of them than there are places wait.
    pending(Lane::Reading, READING_MAX + 10);
    assert_eq!(pool.lock().queue.len(), READING_MAX);
    pending(Lane::Asked, ASKED_MAX);
    assert_eq!(soon(quick(pool, Lane::Asked)).await, Err(Lost::Busy));
    pending(Lane::Reading, 1);
    pending(Lane::Bulk, 2);
    drop(holds);
    for answer in answers {
        assert_eq!(soon(answer).await, Ok(()));
    }
    assert_eq!(soon(quick(pool, Lane::Asked)).await, Ok(()));
    let state = pool.lock();
    assert_eq!((state.asked, state.queue.len()), (0, 0));
}

#[tokio::test]
async fn bulk_leaves_threads_to_others() {
    let pool = pool();
    let bulk: Vec<_> = (0..WORKERS_MAX + 1).map(|_| holding(pool, Lane::Bulk)).collect();
    for _ in 0..10 {
        assert_eq!(soon(quick(pool, Lane::Asked)).await, Ok(()));
        assert_eq!(soon(quick(pool, Lane::Reading)).await, Ok(()));
    }
    // One after the other, and all of them in the end.
    for (answer, hold) in bulk {
        drop(hold);
        assert_eq!(soon(answer).await, Ok(()));
    }
}

#[tokio::test]
async fn bulk_never_has_the_last_thread() {
    let pool = pool();
    // As if programs had kept the others.
    pool.lock().lost = LOST_MAX - 1;
    assert_eq!(soon(quick(pool, Lane::Asked)).await, Ok(()));
    pool.lock().lost = LOST_MAX;
    assert_eq!(soon(quick(pool, Lane::Bulk)).await, Err(Lost::NoThread));
    assert_eq!(soon(quick(pool, Lane::Reading)).await, Ok(()));
}

#[tokio::test]
async fn a_job_that_is_given_up_gives_its_place_back() {
    let pool = pool();
    let (hold, held) = mpsc::sync_channel::<()>(0);
    let stuck = pool.work(Lane::Bulk, Duration::ZERO, move |_| held.recv().unwrap_or_default());
    assert_eq!(soon(stuck).await, Err(Lost::Stuck));
    assert_eq!(soon(quick(pool, Lane::Bulk)).await, Ok(()));
    drop(hold);
}

#[tokio::test]
async fn without_threads_nobody_waits() {
    let pool = pool();
    pool.lock().lost = LOST_MAX;
    for lane in [Lane::Asked, Lane::Reading, Lane::Bulk] {
        assert_eq!(soon(quick(pool, lane)).await, Err(Lost::NoThread), "{lane:?}");
    }
}
