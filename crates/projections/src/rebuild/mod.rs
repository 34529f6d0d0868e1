//! A projector's state made anew beside the one that is served, and put in its place.
//!
//! It reads the same topic from its beginning, or snapshots of it, into collections of other names, publishes nothing and
//! runs no timer: what was published and what the timer said is in the log. Both are driven by the projector's own task, so when the rebuild
//! is where the projector is, neither moves while one takes the place of the other, in one commit.

pub(crate) mod seed;
mod swap;

use std::collections::BTreeSet;
use std::time::Duration;

use promethean_bus::StoredEvent;
use promethean_bus::groups::Follower;
use promethean_model::{Offset, TopicName};
use promethean_store::port::{Batch, PageLimit, StateOp};
use tokio::time::Instant;

use self::swap::Comparison;
use crate::commit::{Attempt, Outcome};
use crate::definition::Projector;
use crate::error::ProjectionError;
use crate::fold::Kept;
use crate::logic::Failed;
use crate::rebuild::seed::Seed;
use crate::runner::Parts;
use crate::status::RebuildStatus;
use crate::target::Target;

/// Events of one commit.
const BATCH: usize = 2_000;
const PAGE_BYTES: usize = 4 << 20;

/// A rebuild on its way.
pub(crate) struct Rebuild {
    target: Target,
    /// What stands for the beginning of the topic.
    seed: Option<Seed>,
    /// Whether it may end behind where the projector is, so that what events between would publish is not published.
    may_pass: bool,
    accept_loss: bool,
    start: Offset,
    next: Offset,
    /// Events that were read and are not projected yet.
    left: Vec<StoredEvent>,
    /// How often the first of them failed.
    tries: u32,
    /// Whether the projector begins with it: then no event was dealt with before, so that whoever runs it is to say
    /// what becomes of those that fail.
    begins: bool,
    skipped: u64,
    /// Why it waits, how often it did so in a row, and until when.
    rest: Option<Rest>,
    /// Why it waited last.
    rested: Option<String>,
    /// Whether the two are the same, as far as that is known.
    comparison: Option<Comparison>,
    /// Open dead letters: not projected before, so not now. Whoever redrives one publishes it again.
    buried: BTreeSet<Offset>,
    /// Documents at hand.
    kept: Kept,
}

/// A store that does not work is asked again later.
struct Rest {
    reason: String,
    waits: u32,
    until: Instant,
}

/// Where and how a rebuild begins.
pub(crate) struct Beginning<'a> {
    pub(crate) follower: &'a Follower,
    /// Where the state begins.
    pub(crate) start: Offset,
    /// Where the projector is; `None` if it has yet to begin.
    pub(crate) live: Option<Offset>,
    /// Whether it is to go on if the beginning of the topic is gone.
    pub(crate) accept_loss: bool,
    /// Whether it may end behind where the projector is, whatever events between would publish.
    pub(crate) may_pass: bool,
}

/// What a step came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is more to do.
    More,
    /// The projector has yet to come to where the snapshots were taken.
    Waiting,
    /// It is where the projector is.
    Abreast,
}

impl Rebuild {
    /// Begins with empty collections.
    ///
    /// One that begins with snapshots may take the place of a projector that is not yet where they were taken only if
    /// that one can never come there.
    pub(crate) async fn begin(
        parts: &Parts,
        projector: &Projector,
        live: &Target,
        from: Beginning<'_>,
    ) -> Result<Self, ProjectionError> {
        let Beginning { follower, start, live: position, accept_loss, may_pass } = from;
        let info = parts.store.topic_info(&projector.topic).await?;
        let (earliest, end) = info.map_or((Offset::ZERO, Offset::ZERO), |info| (info.earliest, info.end));
        // A topic that ends before was born again, and has nothing to do with that place.
        let start = if start > end { Offset::ZERO } else { start };
        let seed = match &projector.snapshots {
            Some(snapshots) => {
                // Until the rebuild is over.
                parts.store.hold(snapshots, &projector.name, Some(Offset::ZERO));
                Seed::open(&*parts.store, &projector.topic, snapshots, accept_loss).await?
            }
            None => None,
        };
        if seed.is_none() && earliest > start && !accept_loss {
            let limit = PageLimit { events: 1, ..PageLimit::default() };
            let first = parts.store.read(&projector.topic, earliest, limit).await?;
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
        let target = live.shadow()?;
        let mut batch = Batch::derived();
        // What an earlier one left behind.
        batch.state.extend(target.drops().map(StateOp::from));
        batch.state.extend(target.declarations().map(StateOp::from));
        parts.store.commit(batch).await?;
        let mut buried = BTreeSet::new();
        let mut from = start;
        loop {
            let more = follower.buried_from(from).await?;
            let Some(last) = more.last() else { break };
            from = last.next();
            buried.extend(more);
        }
        let next = seed.as_ref().map_or_else(|| earliest.max(start), Seed::from);
        let may_pass = may_pass || position.is_none_or(|position| position < earliest);
        Ok(Self {
            target,
            seed,
            may_pass,
            accept_loss,
            start,
            next,
            left: Vec::new(),
            tries: 0,
            begins: position.is_none(),
            skipped: 0,
            rest: None,
            rested: None,
            comparison: None,
            buried,
            kept: Kept::default(),
        })
    }

    /// The topic of the snapshots it begins with.
    pub(crate) fn snapshots(&self) -> Option<&TopicName> {
        self.seed.as_ref().map(Seed::snapshots)
    }

    pub(crate) fn status(&self) -> RebuildStatus {
        RebuildStatus {
            running: true,
            position: self.next.get(),
            skipped: self.skipped,
            equal: None,
            hash: None,
            error: self.rest.as_ref().map(|rest| rest.reason.clone()),
        }
    }

    /// The offset of its next event.
    pub(crate) const fn position(&self) -> Offset {
        self.next
    }

    /// Whether the projector must stay where it is.
    pub(crate) const fn is_comparing(&self) -> bool {
        self.comparison.is_some()
    }

    /// Until when it waits for a store that does not work.
    pub(crate) fn rests_until(&self) -> Option<Instant> {
        self.rest.as_ref().map(|rest| rest.until)
    }

    /// Waits for longer each time in a row; whether the reason is another one than the last time.
    pub(crate) fn rest(&mut self, reason: String, after: Duration, max: Duration) -> bool {
        let waits = self.rest.as_ref().map_or(1, |rest| rest.waits.saturating_add(1));
        let is_new = self.rested.as_ref() != Some(&reason);
        self.rested = Some(reason.clone());
        self.rest = Some(Rest { reason, waits, until: Instant::now() + (after * waits).min(max) });
        is_new
    }

    /// The event that a step failed at.
    pub(crate) fn at_fault(&self) -> Option<&StoredEvent> {
        self.left.first()
    }

    /// Goes on without that event.
    pub(crate) fn leave_out(&mut self) {
        self.left.drain(..self.left.len().min(1));
        self.tries = 0;
    }

    /// Projects some more events, up to where the projector is, then compares what it made with what is served. After a
    /// failure it goes on where it was; that is [`Failed::Event`] only if the projector begins with it.
    pub(crate) async fn step(
        &mut self,
        parts: &Parts,
        projector: &Projector,
        served: &Target,
        live: Offset,
    ) -> Result<Step, Failed> {
        if self.left.is_empty() && !self.read_on(parts, projector, live).await? {
            let taken_at = self.taken_at();
            if self.to(live) < taken_at {
                return Ok(Step::Waiting);
            }
            let compared = self.compare(parts, served).await?;
            self.rest = None;
            return Ok(if compared { Step::Abreast } else { Step::More });
        }
        self.project(parts, projector).await?;
        self.rest = None;
        Ok(Step::More)
    }

    fn taken_at(&self) -> Offset {
        self.seed.as_ref().map_or(Offset::ZERO, Seed::through)
    }

    /// Where to stop, if the projector is there.
    fn to(&self, live: Offset) -> Offset {
        if self.may_pass { live.max(self.taken_at()) } else { live }
    }

    /// Reads some more, if there is more.
    async fn read_on(&mut self, parts: &Parts, projector: &Projector, live: Offset) -> Result<bool, Failed> {
        if let Some(events) = self.seed_page(parts).await? {
            self.left = events;
            return Ok(true);
        }
        let to = self.to(live);
        if self.next >= to {
            return Ok(false);
        }
        self.comparison = None;
        let limit = PageLimit { events: BATCH, bytes: PAGE_BYTES };
        let page = parts.store.read(&projector.topic, self.next, limit).await;
        let page = page.map_err(|error| Failed::of_read(&error))?;
        if page.expired > 0 && !self.accept_loss {
            let expired = page.expired;
            return Err(Failed::Halt(format!("retention took {expired} events before they were read")));
        }
        let next = page.next.min(to);
        if next <= self.next {
            return Err(Failed::Halt(format!("topic `{}` has nothing at {}", projector.topic, self.next)));
        }
        let mut events = page.events;
        events.retain(|event| event.offset < to && !self.buried.contains(&event.offset));
        if let Some(seed) = &self.seed {
            let unknown = seed.without_known(&*parts.store, events).await;
            events = unknown.map_err(|error| Failed::of_read(&error))?;
        }
        self.left = events;
        self.next = next;
        Ok(true)
    }

    /// Some more of the snapshots, until there are none left.
    async fn seed_page(&mut self, parts: &Parts) -> Result<Option<Vec<StoredEvent>>, Failed> {
        let Some(seed) = &mut self.seed else { return Ok(None) };
        let mut page = seed.next_page(&*parts.store).await?;
        if let Some(page) = &mut page {
            self.next = seed.from();
            if self.begins {
                // Given up by a beginning that did not come to its end.
                page.retain(|event| !self.buried.contains(&event.offset));
            }
        }
        Ok(page)
    }

    /// Projects what was read.
    async fn project(&mut self, parts: &Parts, projector: &Projector) -> Result<(), Failed> {
        let kept = std::mem::take(&mut self.kept);
        let mut attempt = Attempt {
            bus: &parts.bus,
            store: &parts.store,
            projector,
            target: &self.target,
            follower: None,
            epoch: 0,
            kept,
        };
        let mut result = Ok(());
        while !self.left.is_empty() && result.is_ok() {
            let count = if self.tries > 0 { 1 } else { self.left.len() };
            let part = self.left.get(..count).unwrap_or_default();
            // It has no cursor, so that it does not matter where to go on.
            let Outcome { done, failed } = attempt.run(part, Offset::ZERO).await;
            if done > 0 {
                self.left.drain(..done);
                self.tries = 0;
            }
            match failed {
                None => {}
                Some(Failed::Event(reason)) if self.begins => {
                    self.tries += 1;
                    result = Err(Failed::Event(reason));
                }
                // It may have had bad luck, on a machine that is busy. Not waited for: the projector's task is this one,
                // and has its turn after each failure.
                Some(Failed::Event(_)) if self.tries < projector.retries => {
                    self.tries += 1;
                    break;
                }
                Some(Failed::Event(_)) => {
                    self.skipped += 1;
                    self.tries = 0;
                    self.left.drain(..1);
                    break;
                }
                Some(failed) => result = Err(failed),
            }
        }
        self.kept = attempt.kept;
        result
    }
}
