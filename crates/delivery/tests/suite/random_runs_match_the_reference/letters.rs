//! The actions that change dead letters: commits, seeks, redrives and drops.

use super::store::Letter;
use super::*;

impl Sim {
    pub(super) fn answer_commit(&mut self) {
        let Some(sent) = &self.reference.sent else { return };
        let (token, dead) = (sent.progress.token, sent.progress.dead.len());
        if sent.applied.is_some() {
            return self.tell_commit(token);
        }
        if self.rng.chance(15) {
            let retry_at_ms = self.now.monotonic_ms + self.rng.range(0..50);
            self.retry_until = self.retry_until.max(retry_at_ms);
            self.reference.commit_failed();
            return self.step(Input::CommitFailed { token, retry_at_ms }, Vec::new(), Vec::new());
        }
        if dead > 1 && self.rng.chance(30) {
            // Together the letters are too large.
            self.letters = self.rng.range(1..dead as u64) as usize;
            self.reference.commit_failed();
            let input = Input::CommitSplit { token, letters: self.letters };
            return self.step(input, Vec::new(), Vec::new());
        }
        self.letters = self.options.bounds.letters;
        let before: Vec<u64> =
            (0..self.reference.log.len() as u64).filter(|o| self.reference.store.has(*o)).collect();
        let closed = self.reference.apply();
        let seek = self.reference.sent.as_ref().unwrap().seek;
        assert!(
            seek.is_some() || before.iter().all(|o| self.reference.store.has(*o)),
            "a commit undid another"
        );
        let by_seek = closed.into_iter().filter(|(offset, _)| seek.is_some_and(|to| *offset >= to)).collect();
        let unclosed = self.leave_unclosed(by_seek);
        self.reference.sent.as_mut().unwrap().applied = Some(unclosed);
        // The answer may be on its way for a while.
        if !self.rng.chance(30) {
            self.tell_commit(token);
        }
    }

    /// Tells the machine that its commit is durable.
    fn tell_commit(&mut self, token: u64) {
        let sent = self.reference.committed();
        self.reference.judge_rows(&sent);
        let letters = sent.applied.unwrap();
        if !letters.is_empty() {
            let retry_at_ms = self.now.monotonic_ms + self.rng.range(1..50);
            self.retry_until = self.retry_until.max(retry_at_ms);
            self.reference.sought = true;
            self.reference.unclosed(&letters);
            self.step(Input::Unclosed { letters, retry_at_ms }, Vec::new(), Vec::new());
            self.reference.sought = false;
        }
        let answers = sent.replies.iter().map(|waiting| (waiting.reply, waiting.stale)).collect();
        self.step(Input::Committed(token), Vec::new(), answers);
    }

    /// Leaves some dead letters of a seek open: the owner closes them in several steps, and the store may
    /// fail in between.
    fn leave_unclosed(&mut self, mut closed: Vec<(u64, Letter)>) -> Vec<LetterRef> {
        if closed.is_empty() || !self.rng.chance(30) {
            return Vec::new();
        }
        let left = closed.split_off(self.rng.range(0..closed.len() as u64) as usize);
        self.reference.leave_open(&left);
        let letter =
            |(offset, letter): (u64, Letter)| LetterRef { offset: Offset(offset), redrives: letter.redrives };
        left.into_iter().map(letter).collect()
    }

    pub(super) fn redrive(&mut self) {
        let open = self.reference.store.open_letters();
        let some: Vec<u64> = open.into_iter().filter(|_| self.rng.chance(50)).collect();
        if self.rng.chance(15) {
            some.into_iter().for_each(|offset| self.reference.store.drop_letter(offset));
            return;
        }
        // A redrive leaves out letters whose event is gone.
        let there = some.into_iter().filter(|offset| self.reference.exists(*offset)).collect::<Vec<_>>();
        self.reference.owed.extend(there.iter().map(|offset| (*offset, false)));
        let letters = there.into_iter().map(|offset| self.reference.store.redrive(offset)).collect();
        self.reference.mail.push_back(letters);
        if self.rng.chance(60) {
            self.deliver_mail();
        }
    }

    /// Hands the machine the messages about redrives.
    pub(super) fn deliver_mail(&mut self) {
        while let Some(letters) = self.reference.mail.pop_front() {
            for letter in &letters {
                self.reference.redriven(letter.offset.0);
            }
            self.step(Input::Redrive(letters), Vec::new(), Vec::new());
        }
    }

    pub(super) fn seek(&mut self) {
        let len = self.reference.log.len() as u64;
        let to = self.rng.range(0..len + 3);
        self.next_reply += 1;
        let reply = ReplyNo(self.next_reply);
        let leases = self.reference.leases.iter();
        let revoked = leases
            .map(|(o, lease)| (lease.member, LeaseRef { offset: Offset(*o), serial: lease.serial }))
            .collect();
        self.reference.seek(to);
        self.reference.pend_replies.push(Waiting { reply, stale: 0, acked: Vec::new() });
        self.restored.clear();
        self.abandoned = true;
        self.step(Input::Seek { to: Offset(to), reply }, revoked, Vec::new());
    }
}
