//! Reads: which events to ask for, and when.

use promethean_model::{Offset, StoredEvent};

use super::Machine;
use super::page_size::PageSize;
use super::unfinished::{PARTITION_UNKNOWN, Stage};
use crate::effect::Effect;
use crate::input::Now;

/// The largest gap between two wanted events that one read bridges.
const GAP_MAX: u64 = 64;
/// How long to wait after a read that returned nothing.
const EMPTY_RETRY_MS: u64 = 100;

/// The read that is out, and the last one.
#[derive(Debug, Default)]
pub(super) struct Reads {
    pending: Option<PendingRead>,
    last_request: u64,
    retry_at_ms: u64,
    /// Whether the last read was for known events. If both kinds are wanted they alternate, so that neither
    /// starves.
    last_reread: bool,
    /// The size of the next page of new events.
    pub(super) size: PageSize,
}

#[derive(Debug, Clone, Copy)]
struct PendingRead {
    request: u64,
    from: Offset,
    /// Whether it reads known events, not new ones.
    is_reread: bool,
    /// A seek came after it: its answer is ignored, but no other read goes out before the answer.
    abandoned: bool,
}

impl Reads {
    pub(super) fn fail(&mut self, request: u64, retry_at_ms: u64) {
        if self.answer(request).is_some() {
            self.retry_at_ms = retry_at_ms;
        }
    }

    pub(super) fn abandon(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.abandoned = true;
        }
    }

    fn answer(&mut self, request: u64) -> Option<PendingRead> {
        self.pending.take_if(|pending| pending.request == request)
    }
}

impl Machine {
    /// Asks for events if a member could take them.
    pub(super) fn read(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.reads.pending.is_some() || now.monotonic_ms < self.reads.retry_at_ms {
            return;
        }
        let (reread, scan) = (self.wanted_reread(now), self.wanted_scan(now));
        let is_reread = reread.is_some() && (scan.is_none() || !self.reads.last_reread);
        let Some((from, limit)) = (if is_reread { reread } else { scan }) else { return };
        self.reads.last_request += 1;
        let request = self.reads.last_request;
        self.reads.last_reread = is_reread;
        self.reads.pending = Some(PendingRead { request, from, is_reread, abandoned: false });
        effects.push(Effect::Read { request, from, limit });
    }

    /// Handles the answer to a read.
    pub(super) fn page(
        &mut self,
        request: u64,
        events: Vec<StoredEvent>,
        next: Offset,
        expired: u64,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let Some(pending) = self.reads.answer(request) else { return };
        if pending.abandoned {
            return;
        }
        let next = next.min(self.config.scope.range.end);
        if next <= pending.from {
            self.reads.retry_at_ms = now.monotonic_ms.saturating_add(EMPTY_RETRY_MS);
        } else if pending.is_reread {
            self.reread_page(pending.from, events, next, expired, now, effects);
        } else {
            self.scan_page(events, next, expired, now, effects);
        }
    }

    /// When to repeat a read that failed.
    pub(super) fn read_retry(&self, now: Now) -> Option<u64> {
        let waits =
            self.reads.pending.is_none() && now.monotonic_ms < self.reads.retry_at_ms && self.may_deliver();
        (waits && (self.wanted_reread(now).is_some() || self.wanted_scan(now).is_some()))
            .then_some(self.reads.retry_at_ms)
    }

    /// The range of a read for known events that a member could take: the first of them and the ones close
    /// behind it.
    fn wanted_reread(&self, now: Now) -> Option<(Offset, usize)> {
        if !self.unfinished.has_ready() {
            return None;
        }
        let page = self.config.bounds.page;
        let mut wanted: Vec<u64> = Vec::new();
        for (partition, offsets) in self.unfinished.ready() {
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

    /// The range of a read for new events, if a member could take them and no bound stops the scan.
    fn wanted_scan(&self, now: Now) -> Option<(Offset, usize)> {
        let room = if self.may_scan() { self.room(PARTITION_UNKNOWN, now) } else { 0 };
        (room > 0).then(|| (self.scan, self.reads.size.events(room, self.config.bounds.page)))
    }

    /// Handles the answer to a read for known events. A known event that is not in it is gone.
    fn reread_page(
        &mut self,
        from: Offset,
        events: Vec<StoredEvent>,
        next: Offset,
        expired: u64,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let mut gone: Vec<u64> = Vec::new();
        for (_, offsets) in self.unfinished.ready() {
            gone.extend(offsets.range(from.0..next.0));
        }
        gone.sort_unstable();
        // Both lists ascend; the offsets without an event remain in `gone`.
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
        let Some(entry) = self.unfinished.get(offset) else { return };
        if !matches!(entry.stage, Stage::Ready) {
            return;
        }
        let (failed, mut partition) = (entry.failed, entry.partition);
        if partition == PARTITION_UNKNOWN {
            partition = self.config.partition(&event);
            if !self.place_redriven(offset, partition, self.config.in_scope(&event)) {
                return;
            }
        }
        if let Some(member) = self.take(partition, now) {
            let stage = self.lease(member, event, failed, effects);
            self.unfinished.set(offset, stage);
        }
    }
}
