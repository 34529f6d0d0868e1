//! What can be seen of an owner.

use std::collections::VecDeque;

use super::command::Seen;
use super::task::Task;

/// How often the gauges of a busy group are brought up to date.
const SHOW_EVERY_MS: u64 = 100;

impl Task {
    pub(super) fn seen(&self) -> Seen {
        Seen {
            status: self.machine.status(),
            reason: self.machine.reason(self.core.now()),
            members: self.members.len(),
            paused: self.paused,
            failure: self.failure.as_deref().cloned(),
        }
    }

    /// Brings the gauges up to date: now and then under load, at once when the group comes to rest.
    pub(super) fn show(&mut self) {
        let now_ms = self.now.monotonic_ms;
        let at_rest = self.read.is_none() && self.commit.is_none();
        if !at_rest && now_ms < self.shown_ms.saturating_add(SHOW_EVERY_MS) {
            return;
        }
        self.shown_ms = now_ms;
        let (metrics, status) = (&self.owner.metrics, self.machine.status());
        if at_rest && status.in_flight == 0 {
            // It may stay so for long.
            (self.effects, self.letters) = (Vec::new(), VecDeque::new());
        }
        metrics.set_members(self.members.len() as i64);
        metrics.set_inflight(status.in_flight as i64);
        metrics.set_lag(i64::try_from(status.lag).unwrap_or(i64::MAX));
        metrics.set_blocked_keys(status.blocked_keys.len() as i64);
        let (counts, before) = (status.counts, std::mem::replace(&mut self.counted, status.counts));
        metrics.redelivered.add(counts.redelivered - before.redelivered);
        metrics.acked.add(counts.acked - before.acked);
        metrics.nacked.add(counts.nacked - before.nacked);
        metrics.lease_expired.add(counts.lease_expired - before.lease_expired);
        metrics.expired.add(status.expired - self.expired);
        self.expired = status.expired;
    }
}
