//! The next page of events, until each of them is committed or given up.

use std::sync::Arc;

use promethean_bus::StoredEvent;
use promethean_bus::groups::GivenUp;
use promethean_model::Offset;
use promethean_store::port::{EventPage, PageLimit, ReadError};
use tokio::task::JoinSet;
use tracing::warn;

use super::{Interruption, ProjectorRunner, RETRY_AFTER};
use crate::change::Change;
use crate::commit::{CommitProgress, PageCommitter, project};
use crate::definition::OnFailure;
use crate::error::ProjectFailure;
use crate::status::Activity;

/// The bytes of events after which a page ends.
const PAGE_BYTES: usize = 2 << 20;
/// The batches in one page.
const PAGE_BATCHES: usize = 4;

/// The page after the one that is being committed. It is read and projected meanwhile; to drop it is to
/// cancel that.
pub(super) struct ReadAhead {
    from: Offset,
    read: JoinSet<Result<ProjectedPage, ReadError>>,
}

/// A page of events, and their changes up to the first event that failed.
struct ProjectedPage {
    page: EventPage,
    changes: Vec<Vec<Change>>,
}

/// How often an event was tried.
#[derive(Debug, Default)]
pub(super) struct EventTries {
    pub(super) failed: u32,
    /// Waits for a store or a bus that did not work.
    pub(super) waits: u32,
    first_ms: Option<i64>,
}

impl ProjectorRunner {
    /// Deals with the next page. Returns whether there was one.
    pub(super) async fn page(&mut self) -> Result<bool, Interruption> {
        // The watch may hear of events a moment after they can be read.
        let end = match self.watch.end() {
            end if end < self.next => self.context.store.durable_end(&self.projector.topic),
            end => end,
        };
        self.show_position(end);
        if end < self.next {
            let (topic, next) = (&self.projector.topic, self.next);
            let reason = format!(
                "topic `{topic}` ends at {end}, before this projector's position {next}: it was deleted, or lost its tail; rebuild the projector"
            );
            return Err(Interruption::Rebuild(reason));
        }
        if end == self.next {
            return Ok(false);
        }
        let ahead = self.read_ahead.take().filter(|ahead| ahead.from == self.next);
        let mut ahead = ahead.unwrap_or_else(|| self.start_reading(self.next));
        let read = match ahead.read.join_next().await {
            Some(Ok(read)) => read,
            Some(Err(error)) if error.is_panic() => {
                return Err(Interruption::Halt(Activity::Halted, format!("reading on failed: {error}")));
            }
            // The runtime shuts down.
            Some(Err(_)) | None => return Err(Interruption::Stop),
        };
        let ProjectedPage { page, changes } = match read {
            Ok(read) => read,
            Err(error) => {
                if let ProjectFailure::Halt(reason) = ProjectFailure::of_read(&error) {
                    return Err(Interruption::Halt(Activity::Halted, reason));
                }
                self.later(&error.to_string(), 1).await?;
                return Ok(true);
            }
        };
        if page.expired > 0 && !self.projector.accept_loss {
            return Err(Interruption::Halt(Activity::Halted, self.loss(page.expired)));
        }
        if page.next <= self.next {
            return Ok(false);
        }
        if page.next < end {
            self.read_ahead = Some(self.start_reading(page.next));
        }
        self.commit_page(&page.events, changes, page.next).await?;
        self.show_position(end);
        Ok(true)
    }

    fn loss(&self, expired: u64) -> String {
        format!(
            "retention took {expired} events of topic `{}` from offset {} on before they were projected; set `accept_loss = true` to go on without them, or rebuild",
            self.projector.topic, self.next
        )
    }

    /// Starts to read and project a page. Changes do not depend on documents, so this may run while an
    /// earlier page is committed.
    fn start_reading(&self, from: Offset) -> ReadAhead {
        let (context, projector) = (Arc::clone(&self.context), self.projector.clone());
        let mut read = JoinSet::new();
        read.spawn(async move {
            let limit = PageLimit { events: projector.batch * PAGE_BATCHES, bytes: PAGE_BYTES };
            let page = context.store.read(&projector.topic, from, limit).await?;
            // The failure is found again when the event is tried by itself.
            let (changes, _) = project(&context.bus, &projector, &page.events).await;
            Ok(ProjectedPage { page, changes })
        });
        ReadAhead { from, read }
    }

    /// Commits or gives up every event of a page. `next` is the cursor after the page.
    async fn commit_page(
        &mut self,
        mut events: &[StoredEvent],
        changes: Vec<Vec<Change>>,
        next: Offset,
    ) -> Result<(), Interruption> {
        if events.is_empty() {
            return self.move_cursor(next).await;
        }
        let mut tries = EventTries::default();
        if !events.iter().any(|event| self.buried.contains(&event.offset)) {
            let progress = self.committer().commit_projected(events, changes, next).await;
            events = self.committed(events, progress.done, next);
            if let (Some(failure), Some(event)) = (progress.failed, events.first()) {
                // The commit was of several events, so that none of them is known to be at fault.
                let failure = match failure {
                    ProjectFailure::Event(reason) => ProjectFailure::Later(reason),
                    failure => failure,
                };
                self.failed(event, failure, &mut tries).await?;
            }
        }
        while let Some(first) = events.first() {
            if self.buried.remove(&first.offset) {
                events = self.pass_over_first(events, next).await?;
                continue;
            }
            let buried = events.iter().position(|event| self.buried.contains(&event.offset));
            let count = buried.unwrap_or(events.len()).min(self.projector.batch);
            // An event that failed is tried alone, so that events behind it are not published before it.
            let count = if tries.failed > 0 { 1 } else { count };
            let part = events.get(..count).unwrap_or_default();
            let after = events.get(count).map_or(next, |event| event.offset);
            let CommitProgress { done, failed } = self.committer().commit_page(part, after).await;
            if done > 0 {
                tries = EventTries::default();
                events = self.committed(events, done, next);
            }
            let (Some(failure), Some(event)) = (failed, events.first()) else { continue };
            if self.failed(event, failure, &mut tries).await? {
                events = self.pass_over_first(events, next).await?;
                tries = EventTries::default();
            }
        }
        Ok(())
    }

    /// Notes that the first `done` events are committed; returns the others.
    fn committed<'e>(&mut self, events: &'e [StoredEvent], done: usize, next: Offset) -> &'e [StoredEvent] {
        let rest = events.get(done..).unwrap_or_default();
        if done > 0 {
            self.status.change(|status| status.projected += done as u64);
            self.next = rest.first().map_or(next, |event| event.offset);
            self.show_activity(Activity::Running, None);
        }
        rest
    }

    /// Waits before an event is tried again, or gives it up. Returns whether it is given up.
    pub(super) async fn failed(
        &mut self,
        event: &StoredEvent,
        failure: ProjectFailure,
        tries: &mut EventTries,
    ) -> Result<bool, Interruption> {
        let (reason, retries) = match failure {
            ProjectFailure::Event(reason) => (reason, self.projector.retries),
            ProjectFailure::TooSlow(reason) => (reason, 0),
            ProjectFailure::Stuck(reason) => {
                tries.waits += 1;
                self.stuck(&reason, tries.waits).await?;
                return Ok(false);
            }
            ProjectFailure::Halt(reason) => return Err(Interruption::Halt(Activity::Halted, reason)),
            ProjectFailure::Later(reason) => {
                tries.waits += 1;
                self.later(&reason, tries.waits).await?;
                return Ok(false);
            }
        };
        let now = self.context.clock.wall_ms();
        tries.failed += 1;
        let first_ms = *tries.first_ms.get_or_insert(now);
        let reason = format!("at offset {}: {reason}", event.offset);
        self.status.change(|status| status.failures += 1);
        if tries.failed <= retries {
            self.show_activity(Activity::Retrying, Some(reason));
            self.wait(RETRY_AFTER * tries.failed).await?;
            return Ok(false);
        }
        if self.projector.on_failure == OnFailure::Halt {
            return Err(Interruption::Halt(Activity::Halted, reason));
        }
        let given_up = GivenUp { reason: reason.clone(), attempts: tries.failed, first_ms };
        while let Err(error) = self.follower.bury(event, &given_up).await {
            tries.waits += 1;
            self.later(&error.to_string(), tries.waits).await?;
        }
        warn!(projector = %self.projector.name, %reason, "event became a dead letter");
        self.status.change(|status| status.dead_letters += 1);
        self.show_activity(Activity::Running, Some(reason));
        Ok(true)
    }

    /// Moves the cursor behind the first event, which is a dead letter; returns the others.
    async fn pass_over_first<'e>(
        &mut self,
        events: &'e [StoredEvent],
        next: Offset,
    ) -> Result<&'e [StoredEvent], Interruption> {
        let rest = events.get(1..).unwrap_or_default();
        self.move_cursor(rest.first().map_or(next, |event| event.offset)).await?;
        Ok(rest)
    }

    /// Moves the cursor without projecting anything.
    async fn move_cursor(&mut self, next: Offset) -> Result<(), Interruption> {
        let mut waits = 0;
        loop {
            match self.committer().move_cursor(next).await {
                Ok(()) => {
                    self.next = next;
                    return Ok(());
                }
                Err(ProjectFailure::Later(reason) | ProjectFailure::Event(reason)) => {
                    waits += 1;
                    self.later(&reason, waits).await?;
                }
                Err(
                    ProjectFailure::Halt(reason)
                    | ProjectFailure::Stuck(reason)
                    | ProjectFailure::TooSlow(reason),
                ) => {
                    return Err(Interruption::Halt(Activity::Halted, reason));
                }
            }
        }
    }

    fn committer(&mut self) -> PageCommitter<'_> {
        PageCommitter {
            bus: &self.context.bus,
            store: &self.context.store,
            projector: &self.projector,
            reserved: &self.context.reserved,
            collections: &self.collections,
            follower: Some(&self.follower),
            epoch: self.epoch,
            cache: &mut self.cache,
        }
    }
}
