//! The scan: deciding on each new event, in offset order.

use promethean_model::{Offset, OffsetRange, StoredEvent};

use super::Machine;
use super::key_queues::KeyQueues;
use super::unfinished::{PARTITION_UNKNOWN, Stage, UnfinishedEvent};
use crate::effect::Effect;
use crate::input::{MemberNo, Now};

impl Machine {
    /// Scans a page of new events until one of them must wait for credit or for a bound. That event and the ones
    /// after it are read again later, so that a group that waits keeps no events in memory.
    pub(super) fn scan_page(
        &mut self,
        events: Vec<StoredEvent>,
        next: Offset,
        expired: u64,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        if expired > 0 {
            let kept = Offset(self.scan.0.saturating_add(expired)).min(next);
            self.expired += self.skip(OffsetRange::new(self.scan, kept));
            self.scan = self.scan.max(kept);
            // Without a commit they would be counted again after a restart.
            self.uncommitted.urgent = true;
        }
        self.end = self.end.max(next);
        if !self.may_deliver() {
            return;
        }
        let (count, leased_before) = (events.len(), self.unfinished.leased);
        let scanned = events.into_iter().take_while(|event| self.scan_event(event, now, effects)).count();
        let is_whole = scanned == count;
        let leased = self.unfinished.leased - leased_before;
        self.reads.size.learn(scanned, leased, is_whole, self.config.bounds.page);
        if is_whole && self.scan < next {
            self.skip(OffsetRange::new(self.scan, next));
            self.scan = next;
        }
    }

    /// Whether there are new events and no bound stops the scan.
    pub(super) fn may_scan(&self) -> bool {
        self.has_unscanned() && !self.window_full() && !self.look_ahead_full()
    }

    /// Whether there are offsets below the end that are not scanned yet.
    pub(super) fn has_unscanned(&self) -> bool {
        self.finished.first_unfinished_from(self.scan) < self.end
    }

    /// Whether the window bound stops the scan. It never does below a finished range or a failed event: the
    /// events there were known before a restart, and the window cannot drain without them.
    pub(super) fn window_full(&self) -> bool {
        let top = || self.failures.last_key_value().map_or(Offset::ZERO, |(offset, _)| offset.next());
        self.finished.ranges() + self.failures.len() >= self.config.bounds.window
            && self.scan >= self.finished.top().max(top())
    }

    pub(super) fn look_ahead_full(&self) -> bool {
        self.unfinished.waiting >= self.config.bounds.look_ahead
    }

    /// How many events of a partition members can take now. `PARTITION_UNKNOWN` asks for any partition.
    pub(super) fn room(&self, partition: u32, now: Now) -> usize {
        let room = |no: MemberNo| {
            let member = self.members.get(no).filter(|member| member.can_take(now));
            member.map_or(0, |member| member.allowance.credit.free())
        };
        if self.config.partitions.is_none() {
            let takers = self.members.all().filter(|member| member.can_take(now));
            return takers.map(|member| member.allowance.credit.free()).fold(0, usize::saturating_add);
        }
        if partition == PARTITION_UNKNOWN {
            return self.owning.iter().copied().map(room).fold(0, usize::saturating_add);
        }
        self.owner(partition).map_or(0, room)
    }

    /// Takes the credit for one event; returns the member that receives it, `None` if no member can take it.
    pub(super) fn take(&mut self, partition: u32, now: Now) -> Option<MemberNo> {
        if self.config.partitions.is_none() {
            return self.members.take_any(now);
        }
        let owner = self.owner(partition)?;
        self.members.take(owner, now).then_some(owner)
    }

    /// Decides on the next new event; returns `false` if it must wait.
    fn scan_event(&mut self, event: &StoredEvent, now: Now, effects: &mut Vec<Effect>) -> bool {
        let offset = event.offset;
        if self.scan < offset {
            self.skip(OffsetRange::new(self.scan, offset));
            self.scan = offset;
        }
        if offset >= self.config.scope.range.end || self.finished.contains(offset) {
            self.scan = self.scan.max(offset.next().min(self.config.scope.range.end));
            return true;
        }
        if !self.config.in_scope(event) || !self.config.wants(event) {
            self.skip(OffsetRange::single(offset));
            self.scan = offset.next();
            return true;
        }
        if self.window_full() {
            return false;
        }
        let key = KeyQueues::hash(self.config.order, event.key_bytes());
        let partition = self.config.partition(event);
        let (failed, stage) =
            if self.failures.is_empty() { (0, Stage::Ready) } else { self.recorded_attempts(offset, now) };
        let mut stage = if self.key_queues.is_free(key) { stage } else { Stage::Blocked };
        let mut must_wait = self.look_ahead_full();
        if let Stage::Ready = stage {
            if let Some(member) = self.take(partition, now) {
                // Events share their bytes with their clones.
                stage = self.lease(member, event.clone(), failed, effects);
                must_wait = false;
            } else {
                // If no member can take any event, it stays in the log.
                must_wait |= self.room(PARTITION_UNKNOWN, now) == 0;
            }
        }
        if !must_wait {
            self.add_unfinished(offset, UnfinishedEvent { key, partition, failed, redriven: None, stage });
        }
        !must_wait
    }

    fn add_unfinished(&mut self, offset: Offset, entry: UnfinishedEvent) {
        self.key_queues.enter(entry.key, offset.0);
        self.unfinished.insert(offset, entry);
        self.scan = offset.next();
    }
}
