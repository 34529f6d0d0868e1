//! The state that the threads of a pool and the watchdog share: the jobs that wait, and the jobs that run.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::answer::JobReply;
use super::clock::ThreadClock;
use super::{
    BULK_MAX, GRACE_TICKS, JobWatch, LOST_MAX, Lane, PUBLISH_MAX, PoolError, READ_MAX, STARVED_MAX, TICK,
    TICK_WORK_NANOS, WORKERS_MAX,
};

type JobWork = Box<dyn FnOnce(&JobWatch) + Send>;
type JobFailure = Box<dyn FnOnce(PoolError) + Send>;

/// A job that waits.
pub(super) struct PoolJob {
    pub(super) lane: Lane,
    pub(super) fail: JobFailure,
    work: JobWork,
    /// Whether the caller still waits for the answer.
    is_awaited: Box<dyn Fn() -> bool + Send>,
    ticks_max: u32,
}

/// A job that a thread does.
pub(super) struct RunningJob {
    pub(super) lane: Lane,
    pub(super) watch: Arc<JobWatch>,
    pub(super) fail: JobFailure,
    number: u64,
    /// The call that the ticks below are of.
    call: u32,
    /// Ticks in which it worked.
    ticks: u32,
    /// Ticks in which it waited for a processor.
    starved: u32,
    ticks_max: u32,
    clock: Option<Arc<ThreadClock>>,
    /// Nanoseconds that its thread had worked at the last tick.
    nanos: Option<u64>,
}

/// A job that is not done, and why.
pub(super) struct RefusedJob {
    pub(super) job: PoolJob,
    pub(super) why: PoolError,
}

impl RefusedJob {
    /// A job whose caller went away. It is dropped like a refused one: without the lock of the pool.
    const fn unawaited(job: PoolJob) -> Self {
        Self { job, why: PoolError::Busy }
    }
}

#[derive(Default)]
pub(super) struct PoolState {
    pub(super) queue: VecDeque<PoolJob>,
    pub(super) running: Vec<RunningJob>,
    pub(super) workers: usize,
    pub(super) idle: usize,
    pub(super) lost: usize,
    /// Whether the watchdog was started.
    pub(super) watched: bool,
    /// Whether the watchdog waits for the end of a tick. It is not woken then: a tick lasts as long however
    /// many jobs begin.
    pub(super) ticking: bool,
    /// Whether the last handle was dropped.
    pub(super) closed: bool,
    /// How many jobs in the queue are of the lane `Publish`.
    pub(super) publish: usize,
    read: Places,
    bulk: Places,
    next: u64,
}

/// The places of a lane whose callers wait for one.
#[derive(Default)]
struct Places {
    taken: usize,
    waiting: VecDeque<PoolJob>,
    /// The number of waiting jobs at which those of callers that went away are taken out.
    clean_at: usize,
}

/// Waiting jobs below which those of callers that went away may stay.
const CLEAN_AT_MIN: usize = 64;

impl Places {
    /// Lets a job wait for a place. Now and then it takes out the jobs of callers that went away, so that the number of
    /// waiting jobs stays within twice the number of callers.
    fn wait(&mut self, job: PoolJob) -> Vec<RefusedJob> {
        self.waiting.push_back(job);
        if self.waiting.len() < self.clean_at.max(CLEAN_AT_MIN) {
            return Vec::new();
        }
        let (awaited, gone): (VecDeque<_>, VecDeque<_>) =
            self.waiting.drain(..).partition(|job: &PoolJob| (job.is_awaited)());
        self.clean_at = awaited.len() * 2;
        self.waiting = awaited;
        gone.into_iter().map(RefusedJob::unawaited).collect()
    }
}

impl PoolJob {
    pub(super) fn new<T: Send + 'static>(
        lane: Lane,
        time: Duration,
        reply: JobReply<T>,
        work: impl FnOnce(&JobWatch) -> T + Send + 'static,
    ) -> Self {
        let ticks = u32::try_from(time.as_millis().div_ceil(TICK.as_millis())).unwrap_or(u32::MAX);
        let reply = Arc::new(reply);
        let (done, asked) = (Arc::clone(&reply), Arc::downgrade(&reply));
        Self {
            lane,
            work: Box::new(move |watch| done.send(Ok(work(watch)))),
            fail: Box::new(move |why| reply.send(Err(why))),
            is_awaited: Box::new(move || asked.upgrade().is_some_and(|reply| reply.is_awaited())),
            ticks_max: ticks.min(u32::MAX - GRACE_TICKS - 1),
        }
    }
}

impl PoolState {
    /// Takes a job in, or lets it wait for a place in its lane; the job itself if it is refused.
    pub(super) fn add(&mut self, job: PoolJob, start: impl Fn(&mut Self) -> bool) -> Vec<RefusedJob> {
        let lane = job.lane;
        if lane == Lane::Publish && self.publish >= PUBLISH_MAX {
            return vec![RefusedJob { job, why: PoolError::Busy }];
        }
        if let Some((places, max)) = self.places(lane) {
            if places.taken >= max {
                return places.wait(job);
            }
            places.taken += 1;
        }
        match self.enqueue(job, &start) {
            Ok(()) => Vec::new(),
            Err(refused) => {
                let mut all = self.release(lane, start);
                all.push(refused);
                all
            }
        }
    }

    /// Frees a place in a lane, and gives it to the next job that waits for one; jobs that are refused then.
    pub(super) fn release(&mut self, lane: Lane, start: impl Fn(&mut Self) -> bool) -> Vec<RefusedJob> {
        let mut refused = Vec::new();
        if let Some((places, _)) = self.places(lane) {
            places.taken -= 1;
        }
        while let Some((places, max)) = self.places(lane)
            && places.taken < max
            && let Some(job) = places.waiting.pop_front()
        {
            // A caller that went away before its job had a place needs no thread.
            if !(job.is_awaited)() {
                refused.push(RefusedJob::unawaited(job));
                continue;
            }
            places.taken += 1;
            if let Err(job) = self.enqueue(job, &start) {
                refused.push(job);
                if let Some((places, _)) = self.places(lane) {
                    places.taken -= 1;
                }
            }
        }
        refused
    }

    /// Puts a job into the queue, and starts a thread for it if need be.
    fn enqueue(&mut self, job: PoolJob, start: impl Fn(&mut Self) -> bool) -> Result<(), RefusedJob> {
        // One thread for bulk, and one for everything else.
        let workers_min = if job.lane == Lane::Bulk { 2 } else { 1 };
        let before = self.workers;
        while self.workers < workers_min && self.may_start() && start(self) {}
        if self.workers < workers_min {
            return Err(RefusedJob { job, why: PoolError::NoThread });
        }
        if self.workers == before && self.idle == 0 && self.may_start() {
            start(self);
        }
        self.publish += usize::from(job.lane == Lane::Publish);
        self.queue.push_back(job);
        Ok(())
    }

    /// The next job of the queue.
    pub(super) fn take(&mut self) -> Option<PoolJob> {
        let job = self.queue.pop_front()?;
        self.publish -= usize::from(job.lane == Lane::Publish);
        Some(job)
    }

    /// Notes that a job runs from now on.
    pub(super) fn begin(
        &mut self,
        job: PoolJob,
        clock: Option<Arc<ThreadClock>>,
    ) -> (u64, Arc<JobWatch>, JobWork) {
        let PoolJob { lane, work, fail, ticks_max, .. } = job;
        let (number, watch) = (self.next, Arc::new(JobWatch::default()));
        self.next += 1;
        self.running.push(RunningJob {
            lane,
            watch: Arc::clone(&watch),
            fail,
            number,
            call: 0,
            ticks: 0,
            starved: 0,
            ticks_max,
            clock,
            nanos: None,
        });
        (number, watch, work)
    }

    /// Notes that a job has ended; `false` if it was given up before.
    pub(super) fn end(&mut self, number: u64) -> bool {
        let before = self.running.len();
        self.running.retain(|running| running.number != number);
        self.running.len() < before
    }

    pub(super) const fn may_start(&self) -> bool {
        self.workers < WORKERS_MAX && self.lost < LOST_MAX
    }

    /// Ends calls whose time is over, and takes out jobs whose call did not end.
    pub(super) fn tick(&mut self) -> Vec<RunningJob> {
        for running in &mut self.running {
            let call = running.watch.call();
            if call != running.call {
                (running.call, running.ticks, running.starved) = (call, 0, 0);
            }
            running.count_tick();
            if running.ticks > running.ticks_max {
                running.watch.end_call(call);
            }
        }
        let is_lost = |running: &mut RunningJob| running.ticks > running.ticks_max + GRACE_TICKS;
        self.running.extract_if(.., is_lost).collect()
    }

    /// The places of a lane and how many there are; publishers wait for none.
    fn places(&mut self, lane: Lane) -> Option<(&mut Places, usize)> {
        match lane {
            Lane::Publish => None,
            Lane::Read => Some((&mut self.read, READ_MAX)),
            Lane::Bulk => Some((&mut self.bulk, BULK_MAX)),
        }
    }
}

impl RunningJob {
    /// The call that the watchdog counts the ticks of.
    pub(super) const fn call(&self) -> u32 {
        self.call
    }

    /// Counts a tick, as worked or as starved.
    fn count_tick(&mut self) {
        let now = self.clock.as_ref().and_then(|clock| clock.nanos());
        let worked = now.zip(self.nanos).map(|(now, before)| now.saturating_sub(before));
        self.nanos = now;
        let starved = worked.is_some_and(|worked| worked < TICK_WORK_NANOS);
        if starved && self.starved < self.ticks_max.saturating_mul(STARVED_MAX) {
            self.starved += 1;
        } else {
            self.ticks += 1;
        }
    }
}

impl std::fmt::Debug for PoolState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("workers", &self.workers)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::answer::pair;
    use super::*;

    fn job() -> (PoolJob, super::super::JobAnswer<()>) {
        let (reply, answer) = pair();
        (PoolJob::new(Lane::Bulk, Duration::from_secs(1), reply, |_| ()), answer)
    }

    #[test]
    fn jobs_of_callers_that_went_away_take_bounded_room() {
        let mut places = Places::default();
        let mut kept = Vec::new();
        for n in 0..10_000 {
            let (job, answer) = job();
            if n % 100 == 0 {
                kept.push(answer);
            }
            drop(places.wait(job));
        }
        assert!(places.waiting.len() <= 2 * kept.len() + CLEAN_AT_MIN, "{}", places.waiting.len());
        let awaited = places.waiting.iter().filter(|job| (job.is_awaited)()).count();
        assert_eq!(awaited, kept.len(), "a caller that waits keeps its place in the line");
    }
}
