//! Where a round begins.

use promethean_model::Offset;

use super::Compactor;
use crate::error::ProjectionError;
use crate::snapshot::{self, Snapshot, recreated};

impl Compactor {
    /// From where to where the next round goes. Deleting the snapshot topic makes it begin again.
    pub(super) async fn place(&mut self) -> Result<(Offset, Offset), ProjectionError> {
        let info = self.store.topic_info(&self.options.topic).await?;
        let (earliest, end) = info.map_or((Offset::ZERO, Offset::ZERO), |info| (info.earliest, info.end));
        let written = self.store.durable_end(&self.snapshots);
        let start = match snapshot::last(&*self.store, &self.snapshots, written).await? {
            Some(last) => self.go_on(last, end).await?,
            None => self.begin(end),
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
        Ok((start, end))
    }

    /// There is no snapshot: none was needed yet, or they were deleted.
    fn begin(&mut self, end: Offset) -> Offset {
        let kept = self.position.filter(|position| !self.had_snapshots && *position <= end);
        self.had_snapshots = false;
        if kept.is_none() {
            (self.since, self.since_told) = (Offset::ZERO, true);
        }
        kept.unwrap_or(Offset::ZERO)
    }

    fn pass_dropped(&mut self, start: Offset, earliest: Offset) -> Offset {
        if start >= earliest {
            return start;
        }
        (self.since, self.since_told) = (earliest, false);
        self.status.send_modify(|status| status.missed_total += earliest.since(start));
        earliest
    }

    async fn go_on(&mut self, last: Snapshot, end: Offset) -> Result<Offset, ProjectionError> {
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
