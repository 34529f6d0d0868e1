//! Why nothing is delivered.

use super::Machine;
use super::members::Member;
use super::table::{State, UNREAD};
use crate::types::{Now, Reason};

impl Machine {
    /// Why nothing is delivered; `None` while something is, or while a read or a commit is about to let it go on.
    pub fn reason(&self, now: Now) -> Option<Reason> {
        if self.table.is_empty() && !self.has_unseen() {
            return Some(Reason::CaughtUp);
        }
        if self.members.is_empty() {
            return Some(Reason::NoMembers);
        }
        if self.paused || self.members.all().all(|member| member.paused) {
            return Some(Reason::Paused);
        }
        if !self.may_deliver() {
            return None;
        }
        if self.may_scan() || self.table.has_ready() {
            return self.no_taker(now);
        }
        if self.about_to_retry(now) {
            return None;
        }
        let reasons = [
            (self.has_unseen() && self.window_full(), Reason::Window),
            (self.table.blocked > 0, Reason::BlockedKey),
            (self.table.failing > 0 || self.table.has_backoff(), Reason::Backoff),
            (self.table.leased > 0, Reason::Leased),
        ];
        reasons.into_iter().find(|(is_so, _)| *is_so).map(|(_, reason)| reason)
    }

    /// When the rate of a member lets it take more, if that would make a difference.
    pub(super) fn rate_ready(&self, now: Now) -> Option<u64> {
        if !self.may_deliver() || !(self.may_scan() || self.table.has_ready()) {
            return None;
        }
        (self.members.all())
            .filter(|member| !member.paused && member.allowance.credit.free() > 0)
            .filter_map(|member| member.allowance.rate.as_ref())
            .map(|rate| rate.ready_at(now))
            .filter(|at| *at > now.monotonic_ms)
            .min()
    }

    /// Why those who should take the events at hand do not.
    fn no_taker(&self, now: Now) -> Option<Reason> {
        let takers = self.takers();
        if takers.iter().any(|member| member.can_take(now)) {
            return None;
        }
        let mut active = takers.iter().filter(|member| !member.paused).peekable();
        Some(if takers.is_empty() {
            Reason::NoMembers
        } else if active.peek().is_none() {
            Reason::Paused
        } else if active.any(|member| member.allowance.credit.free() > 0) {
            Reason::Rate
        } else {
            Reason::Credit
        })
    }

    /// The members for whom there are events at hand.
    fn takers(&self) -> Vec<&Member> {
        if self.config.partitions.is_none() {
            return self.members.all().collect();
        }
        let any = self.may_scan() || self.table.ready().any(|(partition, _)| partition == UNREAD);
        if any {
            return self.owning.iter().filter_map(|no| self.members.get(*no)).collect();
        }
        self.table
            .ready()
            .filter_map(|(partition, _)| self.owner(partition))
            .filter_map(|no| self.members.get(no))
            .collect()
    }

    /// Whether an event's time has come and only a commit or a tick is missing.
    fn about_to_retry(&self, now: Now) -> bool {
        let due = |state: State| matches!(state, State::Failing { due } if due <= now.monotonic_ms);
        self.table.first_due().is_some_and(|due| due <= now.monotonic_ms)
            || (self.table.failing > 0 && self.table.iter().any(|(_, entry)| due(entry.state)))
    }
}
