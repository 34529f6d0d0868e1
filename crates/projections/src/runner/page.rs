//! The next events, whatever becomes of each.

use std::sync::Arc;

use promethean_bus::StoredEvent;
use promethean_bus::groups::GivenUp;
use promethean_model::Offset;
use promethean_store::port::{EventPage, PageLimit, ReadError};
use tokio::task::JoinSet;
use tracing::warn;

use super::{Interrupted, RETRY_AFTER, Runner};
use crate::commit::{Attempt, Outcome, Refused, project, until_failure};
use crate::definition::OnFailure;
use crate::fold::Kept;
use crate::logic::{Failed, Projected};
use crate::status::Activity;
use crate::stream::Streamed;

/// Bytes of events of one page, but for the last event.
const PAGE_BYTES: usize = 2 << 20;

/// Batches read at once.
const BATCHES_AHEAD: usize = 4;

/// Events that are being read and projected already. Dropped, it ends.
pub(crate) struct Ahead {
    from: Offset,
    read: JoinSet<Result<Read, ReadError>>,
}

/// Events, and their changes up to the first that failed.
struct Read {
    page: EventPage,
    projected: Vec<Projected>,
}

/// How often an event was tried.
#[derive(Debug, Default)]
pub(super) struct Tries {
    pub(super) failed: u32,
    pub(super) waits: u32,
    first_ms: Option<i64>,
}

impl Runner {
    /// Projects the next page; whether there was one.
    pub(super) async fn page(&mut self) -> Result<bool, Interrupted> {
        // Events may be read a moment before the watch hears of them.
        let end = match self.watch.end() {
            end if end < self.next => self.parts.store.durable_end(&self.projector.topic),
            end => end,
        };
        self.show_place(end);
        if end < self.next {
            let (topic, next) = (&self.projector.topic, self.next);
            let reason = format!(
                "topic `{topic}` ends at {end}, before this projector's position {next}: it was deleted, or lost its tail; rebuild the projector"
            );
            return Err(Interrupted::Rebuild(reason));
        }
        if end == self.next {
            return Ok(false);
        }
        let ahead = self.ahead.take().filter(|ahead| ahead.from == self.next);
        let mut ahead = ahead.unwrap_or_else(|| self.look_ahead(self.next));
        let read = match ahead.read.join_next().await {
            Some(Ok(read)) => read,
            Some(Err(error)) if error.is_panic() => {
                return Err(Interrupted::Halt(Activity::Halted, format!("reading on failed: {error}")));
            }
            // The runtime shuts down.
            Some(Err(_)) | None => return Err(Interrupted::Stop),
        };
        let Read { page, projected } = match read {
            Ok(read) => read,
            Err(error) => {
                if let Failed::Halt(reason) = Failed::of_read(&error) {
                    return Err(Interrupted::Halt(Activity::Halted, reason));
                }
                self.later(&error.to_string(), 1).await?;
                return Ok(true);
            }
        };
        if page.expired > 0 && !self.projector.accept_loss {
            return Err(Interrupted::Halt(Activity::Halted, self.loss(page.expired)));
        }
        if page.next <= self.next {
            return Ok(false);
        }
        if page.next < end {
            self.ahead = Some(self.look_ahead(page.next));
        }
        self.project(&page.events, projected, page.next).await?;
        self.show_place(end);
        Ok(true)
    }

    fn loss(&self, expired: u64) -> String {
        format!(
            "retention took {expired} events of topic `{}` from offset {} on before they were projected; set `accept_loss = true` to go on without them, or rebuild",
            self.projector.topic, self.next
        )
    }

    /// Reads and projects events from an offset on, while others are committed: what they change does not depend on
    /// documents.
    fn look_ahead(&self, from: Offset) -> Ahead {
        let (parts, projector) = (Arc::clone(&self.parts), self.projector.clone());
        let mut read = JoinSet::new();
        read.spawn(async move {
            let limit = PageLimit { events: projector.batch * BATCHES_AHEAD, bytes: PAGE_BYTES };
            let page = parts.store.read(&projector.topic, from, limit).await?;
            let projected = project(&parts.bus, &projector, &page.events).await;
            Ok(Read { page, projected })
        });
        Ahead { from, read }
    }

    /// Projects events to the end, whatever becomes of each.
    async fn project(
        &mut self,
        mut events: &[StoredEvent],
        projected: Vec<Projected>,
        next: Offset,
    ) -> Result<(), Interrupted> {
        if events.is_empty() {
            return self.pass(next).await;
        }
        let mut tries = Tries::default();
        if !events.iter().any(|event| self.buried.contains(&event.offset)) {
            let (changes, _) = until_failure(projected);
            let kept = std::mem::take(&mut self.kept);
            let mut attempt = Attempt { kept, ..self.attempt() };
            let Streamed { done, failed } = attempt.stream(events, changes, next).await;
            self.kept = attempt.kept;
            events = self.passed(events, done, next);
            if let (Some(failed), Some(event)) = (failed, events.first()) {
                // It is about several events, so that none of them is at fault yet.
                let failed = match failed {
                    Failed::Event(reason) => Failed::Later(reason),
                    failed => failed,
                };
                self.failed(event, failed, &mut tries).await?;
            }
        }
        while let Some(first) = events.first() {
            if self.buried.remove(&first.offset) {
                let after = events.get(1).map_or(next, |event| event.offset);
                self.pass(after).await?;
                events = events.get(1..).unwrap_or_default();
                continue;
            }
            // What was given up is passed over by itself.
            let buried = events.iter().position(|event| self.buried.contains(&event.offset));
            // An event that failed is tried alone, so that those behind it are not published before it.
            let count = buried.unwrap_or(events.len()).min(self.projector.batch);
            let count = if tries.failed > 0 { 1 } else { count };
            let part = events.get(..count).unwrap_or_default();
            let after = events.get(count).map_or(next, |event| event.offset);
            let kept = std::mem::take(&mut self.kept);
            let mut attempt = Attempt { kept, ..self.attempt() };
            let Outcome { done, failed } = attempt.run(part, after).await;
            self.kept = attempt.kept;
            if done > 0 {
                tries = Tries::default();
                events = self.passed(events, done, next);
            }
            let (Some(failed), Some(event)) = (failed, events.first()) else { continue };
            if self.failed(event, failed, &mut tries).await? {
                let after = events.get(1).map_or(next, |event| event.offset);
                self.pass(after).await?;
                events = events.get(1..).unwrap_or_default();
                tries = Tries::default();
            }
        }
        Ok(())
    }

    /// So many events are done; the rest.
    fn passed<'e>(&mut self, events: &'e [StoredEvent], done: usize, next: Offset) -> &'e [StoredEvent] {
        let rest = events.get(done..).unwrap_or_default();
        if done > 0 {
            self.shown.change(|shown| shown.projected += done as u64);
            self.next = rest.first().map_or(next, |event| event.offset);
            self.say(Activity::Running, None);
        }
        rest
    }

    /// What comes of a failure: waiting, or that the event is given up, which is answered with true.
    pub(super) async fn failed(
        &mut self,
        event: &StoredEvent,
        failed: Failed,
        tries: &mut Tries,
    ) -> Result<bool, Interrupted> {
        let reason = match failed {
            Failed::Event(reason) => reason,
            Failed::Stuck(reason) => return Err(Interrupted::Halt(Activity::Stuck, reason)),
            Failed::Halt(reason) => return Err(Interrupted::Halt(Activity::Halted, reason)),
            Failed::Later(reason) => {
                tries.waits += 1;
                self.later(&reason, tries.waits).await?;
                return Ok(false);
            }
        };
        let now = self.parts.clock.wall_ms();
        tries.failed += 1;
        let first_ms = *tries.first_ms.get_or_insert(now);
        let reason = format!("at offset {}: {reason}", event.offset);
        self.shown.change(|shown| shown.failures += 1);
        if tries.failed <= self.projector.retries {
            self.say(Activity::Retrying, Some(reason));
            self.wait(RETRY_AFTER * tries.failed).await?;
            return Ok(false);
        }
        if self.projector.on_failure == OnFailure::Halt {
            return Err(Interrupted::Halt(Activity::Halted, reason));
        }
        let given_up = GivenUp { reason: reason.clone(), attempts: tries.failed, first_ms };
        while let Err(error) = self.follower.bury(event, &given_up).await {
            tries.waits += 1;
            self.later(&error.to_string(), tries.waits).await?;
        }
        warn!(projector = %self.projector.name, %reason, "event became a dead letter");
        self.shown.change(|shown| shown.dead_letters += 1);
        self.say(Activity::Running, Some(reason));
        Ok(true)
    }

    /// Moves the cursor without projecting anything.
    async fn pass(&mut self, next: Offset) -> Result<(), Interrupted> {
        let mut waits = 0;
        loop {
            let refused = self.attempt().commit(Vec::new(), next).await;
            match refused.map_err(Refused::into_failed) {
                Ok(()) => {
                    self.next = next;
                    return Ok(());
                }
                Err(Failed::Later(reason) | Failed::Event(reason)) => {
                    waits += 1;
                    self.later(&reason, waits).await?;
                }
                Err(Failed::Halt(reason) | Failed::Stuck(reason)) => {
                    return Err(Interrupted::Halt(Activity::Halted, reason));
                }
            }
        }
    }

    fn attempt(&self) -> Attempt<'_> {
        Attempt {
            bus: &self.parts.bus,
            store: &self.parts.store,
            projector: &self.projector,
            target: &self.target,
            follower: Some(&self.follower),
            epoch: self.epoch,
            kept: Kept::default(),
        }
    }
}
