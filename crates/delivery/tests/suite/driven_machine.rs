//! A machine that a test drives by hand.

use promethean_delivery::{
    Allowance, Credit, Effect, Input, LeaseRef, Machine, MachineConfig, MemberNo, Now, Progress, Reason,
    ReplyNo, SavedProgress,
};
use promethean_model::Offset;

use super::support::{event, limits};

/// A machine whose reads are answered at once and whose commits are answered when the test says so.
pub(crate) struct DrivenMachine {
    pub(crate) machine: Machine,
    pub(crate) keys: Vec<Option<&'static str>>,
    pub(crate) now: Now,
    pub(crate) reads: Vec<(u64, usize)>,
    pub(crate) commits: Vec<Progress>,
    pub(crate) delivered: Vec<(MemberNo, LeaseRef, u32)>,
    pub(crate) revoked: Vec<LeaseRef>,
    pub(crate) replies: Vec<(u64, usize)>,
}

impl DrivenMachine {
    pub(crate) fn new(config: MachineConfig, keys: &[Option<&'static str>]) -> Self {
        Self::with_saved(config, keys, SavedProgress::default())
    }

    pub(crate) fn with_saved(
        config: MachineConfig,
        keys: &[Option<&'static str>],
        saved: SavedProgress,
    ) -> Self {
        let now = Now { monotonic_ms: 1_000, wall_ms: 50_000 };
        let mut driven = Self {
            machine: Machine::new(config, saved, now),
            keys: keys.to_vec(),
            now,
            reads: Vec::new(),
            commits: Vec::new(),
            delivered: Vec::new(),
            revoked: Vec::new(),
            replies: Vec::new(),
        };
        driven.step(Input::End(Offset(keys.len() as u64)));
        driven
    }

    pub(crate) fn step(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let mut effects = Vec::new();
            self.machine.step(input, self.now, &mut effects);
            for effect in effects {
                match effect {
                    Effect::Read { request, from, limit } => {
                        self.reads.push((from.0, limit));
                        let end = (from.0 + limit as u64).min(self.keys.len() as u64);
                        let events = (from.0..end).map(|o| event(o, self.keys[o as usize])).collect();
                        inputs.push(Input::Page { request, events, next: Offset(end), expired: 0 });
                    }
                    Effect::Commit(progress) => self.commits.push(progress),
                    Effect::Deliver(member, all) => {
                        self.delivered.extend(all.into_iter().map(|d| (member, d.lease, d.attempt)));
                    }
                    Effect::Revoke(_, leases) => self.revoked.extend(leases),
                    Effect::Reply { reply, stale } => self.replies.push((reply.0, stale)),
                }
            }
        }
    }

    pub(crate) fn join(&mut self, member: MemberNo, credit: usize) -> Credit {
        let allowance = Allowance::of(credit);
        let credit = allowance.credit.clone();
        self.step(Input::Join { member, limits: limits(), allowance });
        credit
    }

    /// The deliveries since the last call: offset and attempt.
    pub(crate) fn got(&mut self) -> Vec<(u64, u32)> {
        self.take().into_iter().map(|(_, lease, attempt)| (lease.offset.0, attempt)).collect()
    }

    pub(crate) fn take(&mut self) -> Vec<(MemberNo, LeaseRef, u32)> {
        std::mem::take(&mut self.delivered)
    }

    pub(crate) fn leases(&mut self) -> Vec<LeaseRef> {
        self.take().into_iter().map(|(_, lease, _)| lease).collect()
    }

    pub(crate) fn commit(&mut self) -> Progress {
        let progress = self.commits.remove(0);
        self.step(Input::Committed(progress.token));
        progress
    }

    pub(crate) fn ack(&mut self, member: MemberNo, leases: &[LeaseRef], reply: u64) {
        self.step(Input::Ack { member, leases: leases.to_vec(), reply: Some(ReplyNo(reply)) });
    }

    pub(crate) fn nack(&mut self, member: MemberNo, lease: LeaseRef, delay_ms: Option<u64>) {
        self.step(Input::Nack { member, leases: vec![lease], delay_ms, note: None, reply: None });
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.now.monotonic_ms += ms;
        self.now.wall_ms += ms as i64;
        self.step(Input::Tick);
    }

    pub(crate) fn reason(&self) -> Option<Reason> {
        self.machine.reason(self.now)
    }
}
