//! Who gets events.

use crate::credit::Allowance;
use crate::small_map::SmallMap;
use crate::types::{Delivery, Effect, MemberLimits, MemberNo, Now};

#[derive(Debug)]
pub(super) struct Member {
    pub(super) limits: MemberLimits,
    pub(super) allowance: Allowance,
    pub(super) paused: bool,
    /// Deliveries of this step.
    out: Vec<Delivery>,
}

impl Member {
    /// Whether it would take an event now.
    pub(super) fn can_take(&self, now: Now) -> bool {
        !self.paused && self.allowance.credit.free() > 0 && self.allowance.in_rate(now)
    }
}

#[derive(Debug, Default)]
pub(super) struct Members {
    by_no: SmallMap<MemberNo, Member>,
    /// Whose turn it is, and for how many more events.
    turn: Option<(MemberNo, usize)>,
}

impl Members {
    pub(super) fn get(&self, member: MemberNo) -> Option<&Member> {
        self.by_no.get(member)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Member> {
        self.by_no.values()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_no.is_empty()
    }

    pub(super) fn join(&mut self, member: MemberNo, limits: MemberLimits, allowance: Allowance) {
        let paused = limits.paused;
        self.by_no.insert(member, Member { limits, allowance, paused, out: Vec::new() });
    }

    pub(super) fn leave(&mut self, member: MemberNo) {
        self.by_no.remove(member);
    }

    pub(super) fn pause(&mut self, member: MemberNo, paused: bool) {
        if let Some(member) = self.by_no.get_mut(member) {
            member.paused = paused;
        }
    }

    /// Gives one event's credit to a member if it can take it.
    pub(super) fn take(&mut self, member: MemberNo, now: Now) -> bool {
        self.by_no.get(member).is_some_and(|member| !member.paused && member.allowance.take_one(now))
    }

    /// Finds a member for one event and takes its credit. Members take turns, a batch each.
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

    /// Hands a delivery over at the end of the step, or now if the batch is full.
    pub(super) fn hand(&mut self, to: MemberNo, delivery: Delivery, effects: &mut Vec<Effect>) {
        let Some(member) = self.by_no.get_mut(to) else { return };
        member.out.push(delivery);
        if member.out.len() >= member.limits.batch_size {
            effects.push(Effect::Deliver(to, std::mem::take(&mut member.out)));
        }
    }

    /// Ends the step: batches go out as they are, and the next event is the next member's.
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
