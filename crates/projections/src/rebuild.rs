//! A projector's state made anew beside the one that is served, and put in its place.
//!
//! It reads the same topic from its beginning, or snapshots of it, into collections of other names, publishes nothing and
//! runs no timer: what was published and what the timer said is in the log. Both are driven by the projector's own task, so when the rebuild
//! is where the projector is, neither moves while one takes the place of the other, in one commit.

use std::collections::BTreeSet;

use promethean_bus::StoredEvent;
use promethean_bus::follower::Follower;
use promethean_model::{CollectionName, Offset, TopicName};
use promethean_store::port::{Batch, Cursor, CursorOp, PageLimit, StateOp};

use crate::attempt::{Attempt, Outcome};
use crate::definition::Projector;
use crate::drafts::Kept;
use crate::error::ProjectionError;
use crate::hash::state_hash;
use crate::logic::Failed;
use crate::row::ProjectorRow;
use crate::runner::Parts;
use crate::seed::Seed;
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
    skipped: u64,
    /// Open dead letters: not projected before, so not now. Whoever redrives one publishes it again.
    buried: BTreeSet<Offset>,
    /// Documents at hand.
    kept: Kept,
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
            skipped: 0,
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
            error: None,
        }
    }

    /// The offset of its next event.
    pub(crate) const fn position(&self) -> Offset {
        self.next
    }

    /// Projects some more events, up to where the projector is.
    pub(crate) async fn step(
        &mut self,
        parts: &Parts,
        projector: &Projector,
        live: Offset,
    ) -> Result<Step, String> {
        if let Some(events) = self.seed_page(parts).await? {
            self.project(parts, projector, &events).await?;
            return Ok(Step::More);
        }
        let taken_at = self.seed.as_ref().map_or(Offset::ZERO, Seed::through);
        let to = if self.may_pass { live.max(taken_at) } else { live };
        if self.next >= to {
            return Ok(if to < taken_at { Step::Waiting } else { Step::Abreast });
        }
        let limit = PageLimit { events: BATCH, bytes: PAGE_BYTES };
        let page =
            parts.store.read(&projector.topic, self.next, limit).await.map_err(|error| error.to_string())?;
        if page.expired > 0 && !self.accept_loss {
            return Err(format!("retention took {} events before they were read", page.expired));
        }
        let next = page.next.min(to);
        if next <= self.next {
            return Err(format!("topic `{}` has nothing at {}", projector.topic, self.next));
        }
        let mut events = page.events;
        events.retain(|event| event.offset < to && !self.buried.contains(&event.offset));
        if let Some(seed) = &self.seed {
            events = seed.without_known(&*parts.store, events).await.map_err(|error| error.to_string())?;
        }
        self.project(parts, projector, &events).await?;
        self.next = next;
        Ok(Step::More)
    }

    /// Some more of the snapshots, until there are none left.
    async fn seed_page(&mut self, parts: &Parts) -> Result<Option<Vec<StoredEvent>>, String> {
        let Some(seed) = &mut self.seed else { return Ok(None) };
        let page = seed.next_page(&*parts.store).await?;
        if page.is_some() {
            self.next = seed.from();
        }
        Ok(page)
    }

    async fn project(
        &mut self,
        parts: &Parts,
        projector: &Projector,
        events: &[StoredEvent],
    ) -> Result<(), String> {
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
        let (mut left, mut tries) = (events, 0);
        while !left.is_empty() {
            let part = if tries > 0 { left.get(..1).unwrap_or_default() } else { left };
            // It has no cursor, so that it does not matter where to go on.
            let Outcome { done, failed } = attempt.run(part, Offset::ZERO).await;
            if done > 0 {
                left = left.get(done..).unwrap_or_default();
                tries = 0;
            }
            match failed {
                None => {}
                // It may have had bad luck, on a machine that is busy. Not waited for: the projector's task is this one.
                Some(Failed::Event(_)) if tries < projector.retries => tries += 1,
                Some(Failed::Event(_)) => {
                    self.skipped += 1;
                    tries = 0;
                    left = left.get(1..).unwrap_or_default();
                }
                Some(Failed::Stuck(reason) | Failed::Halt(reason) | Failed::Later(reason)) => {
                    return Err(reason);
                }
            }
        }
        self.kept = attempt.kept;
        Ok(())
    }

    /// Takes the place of what is served.
    pub(crate) async fn finish(
        &self,
        parts: &Parts,
        projector: &Projector,
        live: &Target,
        epoch: u64,
    ) -> RebuildStatus {
        let mut status = RebuildStatus { running: false, ..self.status() };
        match self.replace(parts, projector, live, epoch).await {
            Ok((before, after)) => {
                status.equal = Some(before == Some(after));
                status.hash = Some(format!("{after:032x}"));
            }
            Err(error) => status = self.failed(parts, error.to_string()).await,
        }
        status
    }

    async fn replace(
        &self,
        parts: &Parts,
        projector: &Projector,
        live: &Target,
        epoch: u64,
    ) -> Result<(Option<u128>, u128), ProjectionError> {
        let stored = |target: &Target| -> Vec<CollectionName> {
            target.names().into_iter().map(|(_, stored_as)| stored_as.clone()).collect()
        };
        // One whose declaration was refused may not be there.
        let before = state_hash(&*parts.store, &stored(live)).await.ok();
        let after = state_hash(&*parts.store, &stored(&self.target)).await?;
        let mut batch = Batch::derived();
        batch.state.extend(live.replacements(&self.target).into_iter().map(StateOp::from));
        let row = ProjectorRow::new(projector.topic.clone(), projector.fingerprint(), self.start.get());
        let row =
            row.put(&projector.name).map_err(|reason| crate::definition::bad("row".to_owned(), reason))?;
        // The topic's deletion took the cursor with it, and its epoch.
        let stored = parts.store.cursor(&projector.name, &projector.topic).await?;
        let expected_epoch = stored.map_or(0, |cursor| cursor.epoch);
        let cursor = CursorOp::Put {
            group: projector.name.clone(),
            topic: projector.topic.clone(),
            cursor: Cursor { floor: self.next, epoch: epoch.max(expected_epoch), data: Vec::new() },
            expected_epoch,
        };
        parts.store.commit(batch.with(row).with(cursor)).await?;
        Ok((before, after))
    }

    /// Drops what was made.
    pub(crate) async fn failed(&self, parts: &Parts, reason: String) -> RebuildStatus {
        let mut batch = Batch::derived();
        batch.state.extend(self.target.drops().map(StateOp::from));
        // If not now, then when the next one begins.
        let _ = parts.store.commit(batch).await;
        RebuildStatus { running: false, error: Some(reason), ..self.status() }
    }
}
