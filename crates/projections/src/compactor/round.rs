//! A round of a compactor: where it begins, and the cursor after each span.

use promethean_bus::groups::FollowerFailure;
use promethean_delivery::Reason;
use promethean_model::{Offset, OffsetRange};
use promethean_store::port::{Batch, Cursor, CursorOp};

use super::Compactor;
use crate::error::ProjectionError;
use crate::snapshot::{self, Snapshot, recreated};

/// The shortest span: so few events can always be folded at once.
const SPAN_MIN: u64 = 64;

/// What a round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactorRound {
    /// The number of events read.
    pub events: u64,
    /// The number of new snapshots.
    pub published: u64,
}

impl Compactor {
    /// Publishes snapshots of what changed since the last round.
    pub async fn run_round(&mut self) -> Result<CompactorRound, ProjectionError> {
        let began = self.clock.monotonic_ms();
        let result = self.round().await;
        let failure = result.as_ref().err().map(ToString::to_string);
        if let Some(failure) = &failure {
            tracing::warn!(topic = %self.options.topic, %failure, "a round of the compactor failed");
        }
        let shown = failure.clone().map(|message| FollowerFailure { reason: Reason::Retrying, message });
        self.follower.set_failure(shown);
        let took = self.clock.monotonic_ms().saturating_sub(began);
        self.status.send_modify(|status| {
            status.last_error = failure;
            status.last_round_ms = Some(took);
            status.rounds += 1;
        });
        result
    }

    async fn round(&mut self) -> Result<CompactorRound, ProjectionError> {
        let OffsetRange { start: mut at, end } = self.range().await?;
        if !self.had_snapshots && at < end {
            // The snapshots may have been deleted. The old cursor must not claim that events are in the new
            // ones.
            self.move_to(at).await?;
        }
        let mut round = CompactorRound::default();
        while at < end {
            let stop = at.checked_add(self.span).unwrap_or(end).min(end);
            match self.compact_span(OffsetRange::new(at, stop), &mut round).await {
                Ok(()) => {}
                // Fewer events have fewer bytes.
                Err(ProjectionError::TooLarge { .. }) if self.span > SPAN_MIN => {
                    self.span = (self.span / 4).max(SPAN_MIN);
                    continue;
                }
                Err(error) => return Err(error),
            }
            self.move_to(stop).await?;
            at = stop;
        }
        self.span = self.options.span.max(1);
        Ok(round)
    }

    /// Moves the cursor. Every event below `floor` must be in durable snapshots.
    async fn move_to(&mut self, floor: Offset) -> Result<(), ProjectionError> {
        let (group, topic) = (self.follower.group().clone(), self.follower.topic().clone());
        if self.since_told {
            let epoch = self.store.cursor(&group, &topic).await?.map_or(0, |cursor| cursor.epoch);
            let cursor = Cursor { floor, epoch, data: Vec::new() };
            let put = CursorOp::Put { group, topic, cursor, expected_epoch: epoch };
            self.store.commit(Batch::derived().with(put)).await?;
            self.follower.hold_from(floor);
        }
        let passed = floor.since(self.position.unwrap_or(floor));
        self.follower.count(passed, floor);
        self.position = Some(floor);
        self.status.send_modify(|status| status.position = floor);
        Ok(())
    }

    /// The offsets of the next round. It begins at 0 again after the snapshot topic was deleted.
    async fn range(&mut self) -> Result<OffsetRange, ProjectionError> {
        let info = self.store.topic_info(&self.options.topic).await?;
        let (earliest, end) = info.map_or((Offset::ZERO, Offset::ZERO), |info| (info.earliest, info.end));
        let written = self.store.durable_end(&self.snapshots);
        let start = match snapshot::last(&*self.store, &self.snapshots, written).await? {
            Some(last) => self.start_after(last, end).await?,
            None => self.start_without_snapshots(end),
        };
        let start = self.pass_dropped(start, earliest);
        self.position = Some(start);
        if self.since_told {
            self.follower.hold_from(start);
        }
        self.status.send_modify(|status| {
            status.position = start;
            status.end = end;
        });
        Ok(OffsetRange::new(start, end))
    }

    /// The start of a round where there is no snapshot: none was needed yet, or they were deleted.
    fn start_without_snapshots(&mut self, end: Offset) -> Offset {
        let kept = self.position.filter(|position| !self.had_snapshots && *position <= end);
        self.had_snapshots = false;
        if kept.is_none() {
            (self.since, self.since_told) = (Offset::ZERO, true);
        }
        kept.unwrap_or(Offset::ZERO)
    }

    /// Moves the start behind events that are gone before the compactor read them.
    fn pass_dropped(&mut self, start: Offset, earliest: Offset) -> Offset {
        if start >= earliest {
            return start;
        }
        (self.since, self.since_told) = (earliest, false);
        self.status.send_modify(|status| status.missed_total += earliest.since(start));
        earliest
    }

    /// The start of a round after the last snapshot.
    async fn start_after(&mut self, last: Snapshot, end: Offset) -> Result<Offset, ProjectionError> {
        self.had_snapshots = true;
        if last.by != self.by {
            return Err(self.written_otherwise(&last));
        }
        if snapshot::is_of_another_topic(&*self.store, &self.options.topic, &last, end).await? {
            return Err(recreated(&self.options.topic));
        }
        let start = match self.position {
            Some(position) => position,
            None => {
                (self.since, self.since_told) = (last.since, true);
                let cursor = self.store.cursor(self.follower.group(), &self.options.topic).await?;
                cursor.map_or(Offset::ZERO, |cursor| cursor.floor)
            }
        };
        if start > end { Err(recreated(&self.options.topic)) } else { Ok(start) }
    }

    /// Refuses snapshots that a compactor with another reducer, key or choice of keys has written: every round would be
    /// refused. While the snapshots cannot be read, the rounds say so.
    pub(crate) async fn check_snapshots(&self) -> Result<(), ProjectionError> {
        let written = self.store.durable_end(&self.snapshots);
        match snapshot::last(&*self.store, &self.snapshots, written).await {
            Ok(Some(last)) if last.by != self.by => Err(ProjectionError::BadDeclaration {
                what: format!("the compactor of topic `{}`", self.options.topic),
                reason: format!(
                    "`{}` has snapshots by `{}`, and this compactor is `{}`; undo the change, or name another topic \
                     with `snapshot`. To use the same topic again, delete it while the compactor is not configured",
                    self.snapshots, last.by, self.by
                ),
            }),
            _ => Ok(()),
        }
    }

    fn written_otherwise(&self, last: &Snapshot) -> ProjectionError {
        ProjectionError::BadDeclaration {
            what: format!("the compactor of topic `{}`", self.options.topic),
            reason: format!(
                "`{}` was written by `{}`, this one is `{}`; give it another snapshot topic, or delete that one, \
                 and it is written again",
                self.snapshots, last.by, self.by
            ),
        }
    }
}
