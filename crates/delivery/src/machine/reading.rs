//! What is read, and when.

use promethean_model::{Offset, StoredEvent};

use super::Machine;
use super::table::{State, UNREAD};
use crate::types::{Effect, Now};

/// Two wanted events further apart than this are not worth one read.
const GAP_MAX: u64 = 64;
/// How long to wait after an answer that brought nothing.
const EMPTY_RETRY_MS: u64 = 100;

/// The read that is out.
#[derive(Debug, Default)]
pub(super) struct Reads {
    out: Option<Reading>,
    last_request: u64,
    retry_at_ms: u64,
    /// What the last read was for; the next is for the other if both are wanted, so that neither starves.
    last_again: bool,
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    request: u64,
    from: Offset,
    /// Events that are known already.
    again: bool,
    /// A seek came between: the answer means nothing, but until it is there no other read goes out.
    abandoned: bool,
}

impl Reads {
    pub(super) fn fail(&mut self, request: u64, retry_at_ms: u64) {
        if self.answer(request).is_some() {
            self.retry_at_ms = retry_at_ms;
        }
    }

    pub(super) fn abandon(&mut self) {
        if let Some(reading) = &mut self.out {
            reading.abandoned = true;
        }
    }

    fn answer(&mut self, request: u64) -> Option<Reading> {
        self.out.take_if(|reading| reading.request == request)
    }
}

impl Machine {
    /// Asks for events if somebody could take them.
    pub(super) fn read(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.reads.out.is_some() || now.monotonic_ms < self.reads.retry_at_ms {
            return;
        }
        let (again, scan) = (self.wanted_again(now), self.wanted_scan(now));
        let is_again = again.is_some() && (scan.is_none() || !self.reads.last_again);
        let Some((from, limit)) = (if is_again { again } else { scan }) else { return };
        self.reads.last_request += 1;
        let request = self.reads.last_request;
        self.reads.last_again = is_again;
        self.reads.out = Some(Reading { request, from, again: is_again, abandoned: false });
        effects.push(Effect::Read { request, from, limit });
    }

    /// The answer to a read.
    pub(super) fn page(
        &mut self,
        request: u64,
        events: Vec<StoredEvent>,
        next: Offset,
        expired: u64,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let Some(reading) = self.reads.answer(request) else { return };
        if reading.abandoned {
            return;
        }
        let next = next.min(self.config.scope.range.end);
        if next <= reading.from {
            self.reads.retry_at_ms = now.monotonic_ms.saturating_add(EMPTY_RETRY_MS);
        } else if reading.again {
            self.again_page(reading.from, events, next, expired, now, effects);
        } else {
            self.scan_page(events, next, expired);
        }
    }

    /// When a read that failed is to be tried again.
    pub(super) fn read_retry(&self, now: Now) -> Option<u64> {
        let waits =
            self.reads.out.is_none() && now.monotonic_ms < self.reads.retry_at_ms && self.may_deliver();
        (waits && (self.wanted_again(now).is_some() || self.wanted_scan(now).is_some()))
            .then_some(self.reads.retry_at_ms)
    }

    /// Known events that somebody could take: the first of them and those close behind.
    fn wanted_again(&self, now: Now) -> Option<(Offset, usize)> {
        if !self.table.has_ready() {
            return None;
        }
        let page = self.config.bounds.page;
        let mut wanted: Vec<u64> = Vec::new();
        for (partition, offsets) in self.table.ready() {
            wanted.extend(offsets.iter().take(self.room(partition, now).min(page)));
        }
        wanted.sort_unstable();
        let first = *wanted.first()?;
        let mut last = first;
        for offset in wanted {
            if offset - last > GAP_MAX || offset - first >= page as u64 {
                break;
            }
            last = offset;
        }
        Some((Offset(first), (last - first) as usize + 1))
    }

    /// The next unknown events, if somebody could take them and they may be looked at.
    fn wanted_scan(&self, now: Now) -> Option<(Offset, usize)> {
        let wanted = self.buffer.is_empty() && self.may_scan() && self.room(UNREAD, now) > 0;
        wanted.then_some((self.scan, self.config.bounds.page))
    }

    /// Events of a read for known ones. What is not in it is gone.
    fn again_page(
        &mut self,
        from: Offset,
        events: Vec<StoredEvent>,
        next: Offset,
        expired: u64,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let mut gone: Vec<u64> = Vec::new();
        for (_, offsets) in self.table.ready() {
            gone.extend(offsets.range(from.0..next.0));
        }
        gone.sort_unstable();
        // Both ascend: what no event stands beside is left over.
        let mut seen = events.iter().map(|event| event.offset.0).peekable();
        gone.retain(|offset| {
            while seen.next_if(|seen| seen < offset).is_some() {}
            seen.next_if_eq(offset).is_none()
        });
        for offset in gone {
            self.expired += u64::from(offset - from.0 < expired);
            self.lose(Offset(offset));
        }
        if self.may_deliver() {
            for event in events {
                self.deliver_again(event, now, effects);
            }
        }
    }

    fn deliver_again(&mut self, event: StoredEvent, now: Now, effects: &mut Vec<Effect>) {
        let offset = event.offset;
        let Some(entry) = self.table.get(offset) else { return };
        if !matches!(entry.state, State::Ready) {
            return;
        }
        let (failed, mut partition) = (entry.failed, entry.partition);
        if partition == UNREAD {
            partition = self.config.partition(&event);
            if !self.place_extra(offset, partition, self.config.in_scope(&event)) {
                return;
            }
        }
        if let Some(member) = self.take(partition, now) {
            let state = self.lease(member, event, failed, effects);
            self.table.set(offset, state);
        }
    }
}
