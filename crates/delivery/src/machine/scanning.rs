//! New events are looked at in order.

use std::collections::VecDeque;

use promethean_model::{Offset, OffsetRange, StoredEvent};

use super::Machine;
use super::keys::Keys;
use super::table::{Entry, State, UNREAD};
use crate::types::{Effect, MemberNo, Now};

impl Machine {
    /// Takes in a page of new events.
    pub(super) fn scan_page(&mut self, events: Vec<StoredEvent>, next: Offset, expired: u64) {
        if expired > 0 {
            let kept = Offset(self.scan.0.saturating_add(expired)).min(next);
            self.expired += self.pass_over(OffsetRange::new(self.scan, kept));
            self.scan = self.scan.max(kept);
            // Or they would be counted again after a restart.
            self.facts.urgent = true;
        }
        self.end = self.end.max(next);
        self.buffer = VecDeque::from(events);
        self.buffer_end = next;
    }

    /// Looks at what was read until it is all known, or until something must happen first.
    pub(super) fn scan_buffer(&mut self, now: Now, effects: &mut Vec<Effect>) {
        while let Some(event) = self.buffer.pop_front() {
            if let Some(event) = self.look_at(event, now, effects) {
                self.buffer.push_front(event);
                return;
            }
        }
        if self.scan < self.buffer_end {
            self.pass_over(OffsetRange::new(self.scan, self.buffer_end));
            self.scan = self.buffer_end;
        }
        self.scan = self.finished.skip(self.scan);
        if self.buffer.capacity() > 0 {
            self.buffer = VecDeque::new();
        }
    }

    /// Whether there are new events and none of the bounds forbids to look at them.
    pub(super) fn may_scan(&self) -> bool {
        self.has_unseen() && !self.window_full() && !self.look_ahead_full()
    }

    /// Whether there are events nothing is known about.
    pub(super) fn has_unseen(&self) -> bool {
        self.finished.skip(self.scan) < self.end
    }

    /// Whether new events would make too much to remember. Below something that is remembered no event is new: it was
    /// known before a restart, and the window would never drain without it.
    pub(super) fn window_full(&self) -> bool {
        let top = || self.failures.last_key_value().map_or(Offset::ZERO, |(offset, _)| offset.next());
        self.finished.ranges() + self.failures.len() >= self.config.bounds.window
            && self.scan >= self.finished.top().max(top())
    }

    pub(super) fn look_ahead_full(&self) -> bool {
        self.table.waiting >= self.config.bounds.look_ahead
    }

    /// How many events of a partition could be taken now. `UNREAD` asks for any partition.
    pub(super) fn room(&self, partition: u32, now: Now) -> usize {
        let room = |no: MemberNo| {
            let member = self.members.get(no).filter(|member| member.can_take(now));
            member.map_or(0, |member| member.allowance.credit.free())
        };
        if self.config.partitions.is_none() {
            let takers = self.members.all().filter(|member| member.can_take(now));
            return takers.map(|member| member.allowance.credit.free()).fold(0, usize::saturating_add);
        }
        if partition == UNREAD {
            return self.owning.iter().copied().map(room).fold(0, usize::saturating_add);
        }
        self.owner(partition).map_or(0, room)
    }

    /// Takes a member's credit for one event.
    pub(super) fn take(&mut self, partition: u32, now: Now) -> Option<MemberNo> {
        if self.config.partitions.is_none() {
            return self.members.take_any(now);
        }
        let owner = self.owner(partition)?;
        self.members.take(owner, now).then_some(owner)
    }

    /// Looks at the next new event; gives it back if it cannot be known yet.
    fn look_at(&mut self, event: StoredEvent, now: Now, effects: &mut Vec<Effect>) -> Option<StoredEvent> {
        let offset = event.offset;
        if self.scan < offset {
            self.pass_over(OffsetRange::new(self.scan, offset));
            self.scan = offset;
        }
        if offset >= self.config.scope.range.end || self.finished.contains(offset) {
            self.scan = self.scan.max(offset.next().min(self.config.scope.range.end));
            return None;
        }
        if !self.config.in_scope(&event) || !self.config.wants(&event) {
            self.pass_over(OffsetRange::single(offset));
            self.scan = offset.next();
            return None;
        }
        if self.window_full() {
            return Some(event);
        }
        let key = Keys::hash(self.config.order, event.key_bytes());
        let partition = self.config.partition(&event);
        let (failed, state) =
            if self.failures.is_empty() { (0, State::Ready) } else { self.noted(offset, now) };
        let state = if self.keys.is_free(key) { state } else { State::Blocked };
        if let State::Ready = state {
            if let Some(member) = self.take(partition, now) {
                let state = self.lease(member, event, failed, effects);
                self.meet(offset, Entry { key, partition, failed, extra: false, state });
                return None;
            }
            // Without a taker for anything it stays as it is, and need not be read again.
            if self.room(UNREAD, now) == 0 {
                return Some(event);
            }
        }
        if self.look_ahead_full() {
            return Some(event);
        }
        self.meet(offset, Entry { key, partition, failed, extra: false, state });
        None
    }

    fn meet(&mut self, offset: Offset, entry: Entry) {
        self.keys.enter(entry.key, offset.0);
        self.table.insert(offset, entry);
        self.scan = offset.next();
    }
}
