//! A rebuild: a projector's state made anew beside the served one, which it replaces.
//!
//! It reads the same topic from its beginning, or snapshots of it, into collections of other names. It
//! publishes nothing and runs no timer: what was published before is in the log. The projector's own task
//! drives both, so that neither moves while one commit replaces the served collections.
//!
//! - `failed_events`: events that fail in it, which become dead letters when it ends
//! - `report`: what is kept of the last rebuild
//! - `seed`: the snapshots that a rebuild begins with
//! - `swap`: the comparison with the served collections, and their replacement

mod failed_events;
pub(crate) mod report;
mod seed;
pub(crate) mod swap;

use std::time::Duration;

use promethean_bus::groups::{Follower, GivenUp};
use promethean_bus::{BusError, StoredEvent};
use promethean_model::{Offset, TopicName};
use promethean_store::port::{CollectionOp, PageLimit, StateOp};
use tokio::time::Instant;

use self::failed_events::FailedEvents;
use self::seed::SnapshotSeed;
use self::swap::Comparison;
use crate::collections::WrittenCollections;
use crate::commit::{CommitProgress, PageCommitter};
use crate::definition::{OnFailure, Projector};
use crate::error::{ProjectFailure, ProjectionError};
use crate::fold::DocCache;
use crate::projections::ProjectionContext;
use crate::status::RebuildStatus;

/// The page of events that is read at once.
const PAGE: PageLimit = PageLimit { events: 2_000, bytes: 4 << 20 };

/// A rebuild on its way.
pub(crate) struct Rebuild {
    collections: WrittenCollections,
    /// The snapshots that stand for the beginning of the topic.
    seed: Option<SnapshotSeed>,
    /// Whether it may end after the projector's position; what events between would publish is then not
    /// published.
    may_pass: bool,
    accept_loss: bool,
    /// The offset where the state begins.
    start: Offset,
    /// The offset of the next event.
    next: Offset,
    /// Events that are read and not projected yet.
    left: Vec<StoredEvent>,
    /// How often the first of them failed.
    tries: u32,
    /// When it failed first, epoch ms.
    first_ms: Option<i64>,
    /// Whether the projector begins with this rebuild. Then no event was dealt with before, so that the
    /// runner decides what happens to an event that fails.
    begins: bool,
    failed: FailedEvents,
    /// The wait for a store that does not work.
    rest: Option<RebuildRest>,
    /// The reason of the last wait.
    rested: Option<String>,
    /// The comparison with the served collections, once it is begun.
    comparison: Option<Comparison>,
    /// Events that are or were dead letters. They were not projected before, so not now: a redrive to the topic
    /// publishes them again.
    left_out: u64,
    cache: DocCache,
}

/// A wait for a store that does not work.
struct RebuildRest {
    reason: String,
    /// The number of waits in a row.
    waits: u32,
    until: Instant,
}

/// Where and how a rebuild begins.
pub(crate) struct RebuildStart {
    /// The offset where the state begins.
    pub(crate) start: Offset,
    /// The position of the projector; `None` if it has yet to begin.
    pub(crate) live: Option<Offset>,
    /// Whether to go on if the beginning of the topic is gone.
    pub(crate) accept_loss: bool,
    /// Whether the rebuild may end after the projector's position, whatever events between would publish.
    pub(crate) may_pass: bool,
}

/// What a step of a rebuild came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RebuildStep {
    /// There is more to do.
    More,
    /// The projector has yet to come to where the snapshots were taken.
    Waiting,
    /// It is at the projector's position, and compared.
    CaughtUp,
}

impl Rebuild {
    /// Begins a rebuild with empty collections.
    ///
    /// With snapshots of a later offset than the projector's position it waits for the projector, unless the
    /// events up to there are gone, so that the projector can never come there.
    pub(crate) async fn begin(
        context: &ProjectionContext,
        projector: &Projector,
        served: &WrittenCollections,
        from: RebuildStart,
    ) -> Result<Self, ProjectionError> {
        let RebuildStart { start, live: position, accept_loss, may_pass } = from;
        let info = context.store.topic_info(&projector.topic).await?;
        let (earliest, end) = info.map_or((Offset::ZERO, Offset::ZERO), |info| (info.earliest, info.end));
        // A topic that ends before that offset was deleted and created again.
        let start = if start > end { Offset::ZERO } else { start };
        let seed = match &projector.snapshots {
            Some(snapshots) => {
                // Snapshots stay until the rebuild is over.
                context.store.hold(snapshots, &projector.name, Some(Offset::ZERO));
                SnapshotSeed::open(&*context.store, &projector.topic, snapshots, accept_loss).await?
            }
            None => None,
        };
        if seed.is_none() && earliest > start && !accept_loss {
            let limit = PageLimit { events: 1, ..PageLimit::default() };
            let first = context.store.read(&projector.topic, earliest, limit).await?;
            return Err(ProjectionError::HistoryGone {
                topic: projector.topic.clone(),
                earliest: first.events.first().map(|event| event.ts),
                fix: match projector.snapshots {
                    Some(_) => {
                        "there are no snapshots of it either; rebuild with `accept_loss` to do without it"
                    }
                    None => {
                        "rebuild with `accept_loss` to do without it, or let it begin with snapshots: `start = \"snapshot\"`"
                    }
                },
            });
        }
        let collections = served.shadow()?;
        // Drops what an earlier rebuild left behind.
        let mut batch = collections.drops();
        batch.state.extend(collections.declarations().map(CollectionOp::Declare).map(StateOp::from));
        context.store.commit(batch).await?;
        let next = seed.as_ref().map_or_else(|| earliest.max(start), SnapshotSeed::from);
        let may_pass = may_pass || position.is_none_or(|position| position < earliest);
        Ok(Self {
            collections,
            seed,
            may_pass,
            accept_loss,
            start,
            next,
            left: Vec::new(),
            tries: 0,
            first_ms: None,
            begins: position.is_none(),
            failed: FailedEvents::default(),
            rest: None,
            rested: None,
            comparison: None,
            left_out: 0,
            cache: DocCache::default(),
        })
    }

    /// The topic of the snapshots it begins with.
    pub(crate) fn snapshots(&self) -> Option<&TopicName> {
        self.seed.as_ref().map(SnapshotSeed::snapshots)
    }

    pub(crate) fn status(&self) -> RebuildStatus {
        RebuildStatus {
            running: true,
            position: self.next.get(),
            skipped: self.failed.count(),
            left_out: self.left_out,
            first_skipped: self.failed.first_reason().map(str::to_owned),
            equal: None,
            hash: None,
            error: self.rest.as_ref().map(|rest| rest.reason.clone()),
        }
    }

    /// The offset of its next event.
    pub(crate) const fn position(&self) -> Offset {
        self.next
    }

    /// Whether collections are being compared, so that the projector must not change them.
    pub(crate) const fn is_comparing(&self) -> bool {
        self.comparison.is_some()
    }

    /// The end of the wait for a store that does not work.
    pub(crate) fn rests_until(&self) -> Option<Instant> {
        self.rest.as_ref().map(|rest| rest.until)
    }

    /// Waits, longer each time in a row. Returns whether the reason is another one than the last time.
    pub(crate) fn rest(&mut self, reason: String, after: Duration, max: Duration) -> bool {
        let waits = self.rest.as_ref().map_or(1, |rest| rest.waits.saturating_add(1));
        let is_new = self.rested.as_ref() != Some(&reason);
        self.rested = Some(reason.clone());
        self.rest = Some(RebuildRest { reason, waits, until: Instant::now() + (after * waits).min(max) });
        is_new
    }

    /// The event that a step failed at.
    pub(crate) fn at_fault(&self) -> Option<&StoredEvent> {
        self.left.first()
    }

    /// Leaves out that event.
    pub(crate) fn leave_out(&mut self) {
        self.left.drain(..self.left.len().min(1));
        (self.tries, self.first_ms) = (0, None);
    }

    /// Projects some more events, up to the projector's position, then compares the collections with the
    /// served ones. After a failure the next step goes on at the same event; the failure is
    /// [`ProjectFailure::Event`] and [`ProjectFailure::TooSlow`] only if the projector begins with the rebuild.
    pub(crate) async fn step(
        &mut self,
        context: &ProjectionContext,
        projector: &Projector,
        served: &WrittenCollections,
        follower: &Follower,
        live: Offset,
    ) -> Result<RebuildStep, ProjectFailure> {
        if self.left.is_empty() && !self.read_on(context, projector, follower, live).await? {
            let taken_at = self.taken_at();
            if self.to(live) < taken_at {
                return Ok(RebuildStep::Waiting);
            }
            let compared = self.compare(context, served).await?;
            self.rest = None;
            return Ok(if compared { RebuildStep::CaughtUp } else { RebuildStep::More });
        }
        self.project(context, projector).await?;
        self.rest = None;
        Ok(RebuildStep::More)
    }

    /// No event at or after this offset is in a snapshot.
    fn taken_at(&self) -> Offset {
        self.seed.as_ref().map_or(Offset::ZERO, SnapshotSeed::through)
    }

    /// The offset to stop at, for a projector at `live`.
    fn to(&self, live: Offset) -> Offset {
        if self.may_pass { live.max(self.taken_at()) } else { live }
    }

    /// Reads some more snapshots or events. Returns whether there were more.
    async fn read_on(
        &mut self,
        context: &ProjectionContext,
        projector: &Projector,
        follower: &Follower,
        live: Offset,
    ) -> Result<bool, ProjectFailure> {
        if let Some(events) = self.seed_page(context, follower).await? {
            self.left = events;
            return Ok(true);
        }
        let to = self.to(live);
        if self.next >= to {
            return Ok(false);
        }
        self.comparison = None;
        let page = context.store.read(&projector.topic, self.next, PAGE).await;
        let page = page.map_err(|error| ProjectFailure::of_read(&error))?;
        if page.expired > 0 && !self.accept_loss {
            let expired = page.expired;
            return Err(ProjectFailure::Halt(format!(
                "retention took {expired} events before they were read"
            )));
        }
        let next = page.next.min(to);
        if next <= self.next {
            return Err(ProjectFailure::Halt(format!(
                "topic `{}` has nothing at {}",
                projector.topic, self.next
            )));
        }
        let mut events = page.events;
        let given_up = follower.given_up(self.next, next).await.map_err(later)?;
        events.retain(|event| event.offset < to);
        let read = events.len();
        events.retain(|event| !given_up.contains(&event.offset));
        let left_out = (read - events.len()) as u64;
        if let Some(seed) = &self.seed {
            let unknown = seed.without_known(&*context.store, events).await;
            events = unknown.map_err(|error| ProjectFailure::of_read(&error))?;
        }
        self.left = events;
        self.left_out += left_out;
        self.next = next;
        Ok(true)
    }

    /// The next page of snapshots; `None` when there are none left.
    async fn seed_page(
        &mut self,
        context: &ProjectionContext,
        follower: &Follower,
    ) -> Result<Option<Vec<StoredEvent>>, ProjectFailure> {
        let Some(seed) = &mut self.seed else { return Ok(None) };
        let Some(page) = seed.next_page(&*context.store).await? else { return Ok(None) };
        self.next = seed.from();
        if !self.begins {
            return Ok(Some(page));
        }
        let offsets = || page.iter().map(|event| event.offset);
        let (Some(first), Some(last)) = (offsets().min(), offsets().max()) else { return Ok(Some(page)) };
        // Given up by an earlier start that did not come to its end.
        let given_up = follower.given_up(first, last.next()).await.map_err(later)?;
        Ok(Some(page.into_iter().filter(|event| !given_up.contains(&event.offset)).collect()))
    }

    /// Projects and commits the events that are read.
    async fn project(
        &mut self,
        context: &ProjectionContext,
        projector: &Projector,
    ) -> Result<(), ProjectFailure> {
        let mut committer = PageCommitter {
            bus: &context.bus,
            store: &context.store,
            projector,
            reserved: &context.reserved,
            collections: &self.collections,
            follower: None,
            epoch: 0,
            cache: &mut self.cache,
        };
        while !self.left.is_empty() {
            let count = if self.tries > 0 { 1 } else { self.left.len() };
            let part = self.left.get(..count).unwrap_or_default();
            // The next cursor is not needed: a rebuild has none before the swap.
            let CommitProgress { done, failed } = committer.commit_page(part, Offset::ZERO).await;
            if done > 0 {
                self.left.drain(..done);
                (self.tries, self.first_ms) = (0, None);
            }
            match failed {
                None => {}
                Some(failure @ (ProjectFailure::Event(_) | ProjectFailure::TooSlow(_))) if self.begins => {
                    self.tries += 1;
                    return Err(failure);
                }
                // The program may have run into a limit on a busy machine. There is no wait before the next
                // try: the projector's own task runs this, and does its other work after each failure.
                Some(ProjectFailure::Event(_)) if self.tries < projector.retries => {
                    self.first_ms.get_or_insert(context.clock.wall_ms());
                    self.tries += 1;
                    break;
                }
                Some(ProjectFailure::Event(reason) | ProjectFailure::TooSlow(reason)) => {
                    self.give_up(context, projector, &reason)?;
                    break;
                }
                Some(failed) => return Err(failed),
            }
        }
        Ok(())
    }

    /// Gives up the first event, as the projector would: leaves it out, or ends the rebuild.
    fn give_up(
        &mut self,
        context: &ProjectionContext,
        projector: &Projector,
        reason: &str,
    ) -> Result<(), ProjectFailure> {
        let Some(event) = self.left.first().cloned() else { return Ok(()) };
        let reason = format!("at offset {}: {reason}", event.offset);
        if projector.on_failure == OnFailure::Halt {
            return Err(ProjectFailure::Halt(reason));
        }
        let first_ms = self.first_ms.unwrap_or_else(|| context.clock.wall_ms());
        let given_up = GivenUp { reason, attempts: self.tries + 1, first_ms };
        self.failed.add(event, given_up).map_err(ProjectFailure::Halt)?;
        self.leave_out();
        Ok(())
    }
}

/// The failure of a read of letters, which is tried again.
fn later(error: BusError) -> ProjectFailure {
    ProjectFailure::Later(error.to_string())
}
