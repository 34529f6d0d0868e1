//! Commits: how the changes of a machine become durable.

use promethean_model::Offset;

use super::Machine;
use super::uncommitted::Uncommitted;
use super::unfinished::Stage;
use crate::effect::{Attempts, Effect, LetterRef, Progress};
use crate::input::Now;

/// The commit that is out, and the last one.
#[derive(Debug)]
pub(super) struct Commits {
    /// Boxed, since mostly no commit is out.
    pending: Option<Box<PendingCommit>>,
    next_token: u64,
    retry_at_ms: u64,
    /// When the last commit went out, monotonic.
    sent_at_ms: Option<u64>,
    committed_floor: Offset,
    /// The most dead letters of the next commit, if the last one had to be split.
    letters_max: Option<usize>,
}

#[derive(Debug)]
struct PendingCommit {
    token: u64,
    floor: Offset,
    changes: Uncommitted,
}

impl Commits {
    pub(super) const fn new(floor: Offset) -> Self {
        Self {
            pending: None,
            next_token: 1,
            retry_at_ms: 0,
            sent_at_ms: None,
            committed_floor: floor,
            letters_max: None,
        }
    }

    /// Whether the commit that is out has a seek.
    pub(super) fn has_seek(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.changes.seek.is_some())
    }

    /// Forgets that a refused commit was to wait for its retry.
    pub(super) const fn retry_now(&mut self) {
        self.retry_at_ms = 0;
    }

    /// Notes that an event is finished whose redrive the commit that is out may hold.
    pub(super) fn serve(&mut self, offset: Offset) {
        if let Some(pending) = &mut self.pending {
            pending.changes.serve(offset);
        }
    }
}

impl Machine {
    /// Commits the changes, unless a commit is out; then they go into the next one. Acks without a reply wait
    /// for `commit_every_ms`. Skipped events alone are committed once per page, since they can be skipped
    /// again after a crash.
    pub(super) fn commit(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.commits.pending.is_some() || self.commit_at().is_none_or(|at| now.monotonic_ms < at) {
            return;
        }
        self.commits.sent_at_ms = Some(now.monotonic_ms);
        let mut changes = std::mem::take(&mut self.uncommitted);
        let letters_max = self.commits.letters_max.unwrap_or(usize::MAX).min(self.config.bounds.letters);
        self.uncommitted = changes.defer_dead(letters_max.max(1));
        let (floor, finished) = self.finished.without(&self.uncommitted.unfinished());
        let token = self.commits.next_token;
        self.commits.next_token += 1;
        let failed: Vec<Attempts> =
            changes.failed.iter().filter_map(|offset| self.failures.get(offset)).copied().collect();
        effects.push(Effect::Commit(Progress {
            token,
            floor,
            finished,
            failed,
            forget: changes.forget.iter().copied().collect(),
            dead: changes.sent_dead(),
            redriven: changes.sent_closing(),
            reopened: changes.sent_reopened(),
            seek: changes.seek,
        }));
        self.commits.pending = Some(Box::new(PendingCommit { token, floor, changes }));
    }

    /// Handles a durable commit: sends the replies, and lets failed events wait for their next attempt.
    pub(super) fn committed(&mut self, token: u64, now: Now, effects: &mut Vec<Effect>) {
        let Some(pending) = self.commits.pending.take_if(|pending| pending.token == token) else { return };
        self.commits.committed_floor = pending.floor;
        self.commits.letters_max = None;
        for (reply, stale) in pending.changes.replies {
            effects.push(Effect::Reply { reply, stale });
        }
        for offset in pending.changes.failed {
            let Some(Stage::Failing { due }) = self.unfinished.get(offset).map(|entry| entry.stage) else {
                continue;
            };
            let stage = if due > now.monotonic_ms { Stage::Backoff { due } } else { Stage::Ready };
            self.unfinished.set(offset, stage);
        }
    }

    /// Handles a refused commit: its changes are uncommitted again.
    pub(super) fn commit_failed(&mut self, token: u64, retry_at_ms: u64, now: Now) {
        let Some(pending) = self.commits.pending.take_if(|pending| pending.token == token) else { return };
        let passed = self.uncommitted.take_back(pending.changes);
        self.redrive(&passed, now);
        self.commits.retry_at_ms = retry_at_ms;
    }

    /// Handles a commit with too many dead letters: its changes are uncommitted again, and the next commit has
    /// fewer of the letters. The others follow in later commits.
    pub(super) fn commit_split(&mut self, token: u64, letters: usize, now: Now) {
        let Some(pending) = self.commits.pending.take_if(|pending| pending.token == token) else { return };
        debug_assert!(letters < pending.changes.sent_dead().len(), "a split that makes nothing smaller");
        let passed = self.uncommitted.take_back(pending.changes);
        self.redrive(&passed, now);
        self.commits.letters_max = Some(letters);
    }

    /// Notes that dead letters are still to be closed. A letter that was redriven since stays open.
    pub(super) fn unclosed(&mut self, letters: &[LetterRef], retry_at_ms: u64) {
        for letter in letters {
            let redriven = self.unfinished.get(letter.offset).and_then(|entry| entry.redriven);
            if redriven.is_none_or(|redrives| redrives < letter.redrives) {
                self.uncommitted.note_closing(*letter);
            }
        }
        self.commits.retry_at_ms = retry_at_ms;
    }

    /// When the next commit is due; `None` while a commit is out.
    pub(super) fn commit_due(&self) -> Option<u64> {
        self.commit_at().filter(|_| self.commits.pending.is_none())
    }

    /// Whether everything is committed: a machine built from the saved progress would lack only the leases,
    /// and would skip some events again.
    pub fn is_settled(&self) -> bool {
        self.commits.pending.is_none() && !self.uncommitted.urgent && !self.uncommitted.acked
    }

    /// The time from which the changes are worth a commit.
    fn commit_at(&self) -> Option<u64> {
        let moved = self.finished.floor().since(self.commits.committed_floor);
        if self.uncommitted.urgent || moved >= self.config.bounds.page as u64 {
            return Some(self.commits.retry_at_ms);
        }
        if !self.uncommitted.acked {
            return None;
        }
        // Without members no further acks come that could share the commit.
        let last = self.commits.sent_at_ms.filter(|_| !self.members.is_empty());
        let next = last.map_or(0, |last| last.saturating_add(self.config.commit_every_ms));
        Some(next.max(self.commits.retry_at_ms))
    }
}
