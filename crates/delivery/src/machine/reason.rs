//! The reason why a machine delivers nothing.

use super::Machine;
use super::members::MachineMember;
use super::unfinished::{PARTITION_UNKNOWN, Stage};
use crate::input::Now;

/// Why a group delivers nothing at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// All events are finished.
    CaughtUp,
    /// No member has credit left.
    Credit,
    /// The group or all its members are paused.
    Paused,
    /// All remaining events wait for an earlier event of their key.
    BlockedKey,
    /// The delivery rate is reached.
    Rate,
    /// All remaining events failed and wait for their next attempt.
    Backoff,
    /// All remaining events are leased.
    Leased,
    /// Too many finished ranges or failed events above the floor.
    Window,
    /// The group has no members.
    NoMembers,
    /// The projector of the group halted at an event or at a gap, and waits for a person.
    Halted,
    /// The projector or compactor of the group tries an event, or the store, again.
    Retrying,
    /// The program of the group's projector keeps too many threads.
    Stuck,
}

impl Reason {
    /// The word users see.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CaughtUp => "caught_up",
            Self::Credit => "credit",
            Self::Paused => "paused",
            Self::BlockedKey => "blocked_key",
            Self::Rate => "rate",
            Self::Backoff => "backoff",
            Self::Leased => "leased",
            Self::Window => "window",
            Self::NoMembers => "no_members",
            Self::Halted => "halted",
            Self::Retrying => "retrying",
            Self::Stuck => "stuck",
        }
    }
}

impl Machine {
    /// Why the machine delivers nothing; `None` while it delivers, or while it only waits for a read or a
    /// commit.
    pub fn reason(&self, now: Now) -> Option<Reason> {
        if self.unfinished.is_empty() && !self.has_unscanned() {
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
        if self.may_scan() || self.unfinished.has_ready() {
            return self.no_taker(now);
        }
        if self.about_to_retry(now) {
            return None;
        }
        let reasons = [
            (self.has_unscanned() && self.window_full(), Reason::Window),
            (self.unfinished.blocked > 0, Reason::BlockedKey),
            (self.unfinished.failing > 0 || self.unfinished.has_backoff(), Reason::Backoff),
            (self.unfinished.leased > 0, Reason::Leased),
        ];
        reasons.into_iter().find(|(is_so, _)| *is_so).map(|(_, reason)| reason)
    }

    /// When the rate of a member allows the next delivery, if an event waits for it.
    pub(super) fn rate_ready(&self, now: Now) -> Option<u64> {
        if !self.may_deliver() || !(self.may_scan() || self.unfinished.has_ready()) {
            return None;
        }
        (self.members.all())
            .filter(|member| !member.paused && member.allowance.credit.free() > 0)
            .filter_map(|member| member.allowance.rate.as_ref())
            .map(|rate| rate.ready_at(now))
            .filter(|at| *at > now.monotonic_ms)
            .min()
    }

    /// Why no member takes the events that are ready.
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

    /// The members that could receive the events that are ready.
    fn takers(&self) -> Vec<&MachineMember> {
        if self.config.partitions.is_none() {
            return self.members.all().collect();
        }
        let any =
            self.may_scan() || self.unfinished.ready().any(|(partition, _)| partition == PARTITION_UNKNOWN);
        if any {
            return self.owning.iter().filter_map(|no| self.members.get(*no)).collect();
        }
        self.unfinished
            .ready()
            .filter_map(|(partition, _)| self.owner(partition))
            .filter_map(|no| self.members.get(no))
            .collect()
    }

    /// Whether an event is due and only a commit or a tick is missing.
    fn about_to_retry(&self, now: Now) -> bool {
        let due = |stage: Stage| matches!(stage, Stage::Failing { due } if due <= now.monotonic_ms);
        self.unfinished.first_due().is_some_and(|due| due <= now.monotonic_ms)
            || (self.unfinished.failing > 0 && self.unfinished.iter().any(|(_, entry)| due(entry.stage)))
    }
}
