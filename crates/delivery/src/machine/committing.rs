//! What has happened becomes durable.

use promethean_model::Offset;

use super::Machine;
use super::facts::Facts;
use super::table::State;
use crate::types::{Attempts, Effect, Now, Progress};

/// The commit that is out, and what was last committed.
#[derive(Debug)]
pub(super) struct Commits {
    /// On the heap, since there mostly is none.
    sent: Option<Box<Sent>>,
    next_token: u64,
    retry_at_ms: u64,
    /// When the last one went out.
    sent_at_ms: Option<u64>,
    committed_floor: Offset,
}

#[derive(Debug)]
struct Sent {
    token: u64,
    floor: Offset,
    facts: Facts,
}

impl Commits {
    pub(super) const fn new(floor: Offset) -> Self {
        Self { sent: None, next_token: 1, retry_at_ms: 0, sent_at_ms: None, committed_floor: floor }
    }

    /// Whether a seek is on its way.
    pub(super) fn seeking(&self) -> bool {
        self.sent.as_ref().is_some_and(|sent| sent.facts.seek.is_some())
    }
}

impl Machine {
    /// Commits what has happened unless a commit is out: then it rides the next. Acks that nobody waits for are worth
    /// a commit now and then; events passed over alone can be passed over again, so they are only a page at a time.
    pub(super) fn commit(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.commits.sent.is_some() || self.commit_at().is_none_or(|at| now.monotonic_ms < at) {
            return;
        }
        self.commits.sent_at_ms = Some(now.monotonic_ms);
        let mut facts = std::mem::take(&mut self.facts);
        self.facts = facts.defer_dead(self.config.bounds.letters.max(1));
        let (floor, finished) = self.finished.without(&self.facts.unfinished());
        let token = self.commits.next_token;
        self.commits.next_token += 1;
        let failed: Vec<Attempts> =
            facts.failed.iter().filter_map(|offset| self.failures.get(offset)).copied().collect();
        effects.push(Effect::Commit(Progress {
            token,
            floor,
            finished,
            failed,
            forget: facts.forget.iter().copied().collect(),
            dead: facts.dead.values().map(|dead| dead.attempts).collect(),
            redriven: facts.redriven.iter().copied().collect(),
            reopened: facts.reopened.iter().copied().collect(),
            seek: facts.seek,
        }));
        self.commits.sent = Some(Box::new(Sent { token, floor, facts }));
    }

    /// A commit is durable: answers go out, and what failed waits for its time.
    pub(super) fn committed(&mut self, token: u64, now: Now, effects: &mut Vec<Effect>) {
        let Some(sent) = self.commits.sent.take_if(|sent| sent.token == token) else { return };
        self.commits.committed_floor = sent.floor;
        for (reply, stale) in sent.facts.replies {
            effects.push(Effect::Reply { reply, stale });
        }
        for offset in sent.facts.failed {
            let Some(State::Failing { due }) = self.table.get(offset).map(|entry| entry.state) else {
                continue;
            };
            let state = if due > now.monotonic_ms { State::Backoff { due } } else { State::Ready };
            self.table.set(offset, state);
        }
    }

    /// A commit was refused: its facts are facts still.
    pub(super) fn commit_failed(&mut self, token: u64, retry_at_ms: u64) {
        let Some(sent) = self.commits.sent.take_if(|sent| sent.token == token) else { return };
        self.facts.take_back(sent.facts);
        self.commits.retry_at_ms = retry_at_ms;
    }

    /// Letters are to be closed still. One whose event died again is open.
    pub(super) fn unclosed(&mut self, letters: &[Offset], retry_at_ms: u64) {
        for offset in letters {
            if !self.facts.dead.contains_key(offset) {
                self.facts.note_redriven(*offset);
            }
        }
        self.commits.retry_at_ms = retry_at_ms;
    }

    /// When the next commit is to go out, if nothing is in its way.
    pub(super) fn commit_due(&self) -> Option<u64> {
        self.commit_at().filter(|_| self.commits.sent.is_none())
    }

    /// Whether a machine built from what is committed would know all that this one does, but for leases and for events
    /// that are passed over again.
    pub fn is_settled(&self) -> bool {
        self.commits.sent.is_none() && !self.facts.urgent && !self.facts.acked
    }

    /// The time from which what has happened is worth a commit.
    fn commit_at(&self) -> Option<u64> {
        let moved = self.finished.floor().since(self.commits.committed_floor);
        if self.facts.urgent || moved >= self.config.bounds.page as u64 {
            return Some(self.commits.retry_at_ms);
        }
        if !self.facts.acked {
            return None;
        }
        // Without members nothing more comes that could ride along.
        let last = self.commits.sent_at_ms.filter(|_| !self.members.is_empty());
        let next = last.map_or(0, |last| last.saturating_add(self.config.commit_every_ms));
        Some(next.max(self.commits.retry_at_ms))
    }
}
