//! The members that receive the events of a machine.

use crate::credit::Allowance;
use crate::effect::{Delivery, Effect};
use crate::input::{MemberLimits, MemberNo, Now};
use crate::small_map::SmallMap;

#[derive(Debug)]
pub(super) struct MachineMember {
    pub(super) limits: MemberLimits,
    pub(super) allowance: Allowance,
    pub(super) paused: bool,
    /// The deliveries of this step.
    out: Vec<Delivery>,
}

impl MachineMember {
    /// Whether the member can take an event now.
    pub(super) fn can_take(&self, now: Now) -> bool {
        !self.paused && self.allowance.credit.free() > 0 && self.allowance.in_rate(now)
    }
}

#[derive(Debug, Default)]
pub(super) struct MachineMembers {
    by_no: SmallMap<MemberNo, MachineMember>,
    /// The member whose turn it is, and how many more events it gets in this turn.
    turn: Option<(MemberNo, usize)>,
}

impl MachineMembers {
    pub(super) fn get(&self, member: MemberNo) -> Option<&MachineMember> {
        self.by_no.get(member)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &MachineMember> {
        self.by_no.values()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_no.is_empty()
    }

    pub(super) fn join(&mut self, member: MemberNo, limits: MemberLimits, allowance: Allowance) {
        let paused = limits.paused;
        self.by_no.insert(member, MachineMember { limits, allowance, paused, out: Vec::new() });
    }

    pub(super) fn leave(&mut self, member: MemberNo) {
        self.by_no.remove(member);
    }

    pub(super) fn pause(&mut self, member: MemberNo, paused: bool) {
        if let Some(member) = self.by_no.get_mut(member) {
            member.paused = paused;
        }
    }

    /// Takes the credit of a member for one event; returns `false` if it cannot take one.
    pub(super) fn take(&mut self, member: MemberNo, now: Now) -> bool {
        self.by_no.get(member).is_some_and(|member| !member.paused && member.allowance.take_one(now))
    }

    /// Takes the credit of any member for one event. Members take turns of one batch each.
    pub(super) fn take_any(&mut self, now: Now) -> Option<MemberNo> {
        let last = self.turn.map(|(member, _)| member);
        if let Some((member, left)) = self.turn
            && left > 0
            && self.take(member, now)
        {
            self.turn = Some((member, left - 1));
            return Some(member);
        }
        let mut round = self.by_no.round_after(last);
        let (no, member) = round.find(|(_, member)| !member.paused && member.allowance.take_one(now))?;
        self.turn = Some((no, member.limits.batch_size.max(1) - 1));
        Some(no)
    }

    /// Adds a delivery to the member's batch. The batch goes out when it is full, at the latest at the end of
    /// the step.
    pub(super) fn hand(&mut self, to: MemberNo, delivery: Delivery, effects: &mut Vec<Effect>) {
        let Some(member) = self.by_no.get_mut(to) else { return };
        member.out.push(delivery);
        if member.out.len() >= member.limits.batch_size {
            effects.push(Effect::Deliver(to, std::mem::take(&mut member.out)));
        }
    }

    /// Ends the step: all batches go out, and the next event goes to the next member.
    pub(super) fn flush(&mut self, effects: &mut Vec<Effect>) {
        for (no, member) in self.by_no.iter_mut() {
            if !member.out.is_empty() {
                effects.push(Effect::Deliver(no, std::mem::take(&mut member.out)));
            }
        }
        if let Some((_, left)) = &mut self.turn {
            *left = 0;
        }
    }
}
