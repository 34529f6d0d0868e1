//! Credit that a member has for all topics of its pattern together. ClaimOwners that want some and find none take turns, so
//! that a busy topic cannot keep it from the others.

use std::sync::Weak;
use std::sync::atomic::{Ordering, fence};

use promethean_delivery::{Credit, Input, Reason};

use super::membership::Membership;
use super::message::OwnerMessage;
use super::task::OwnerTask;

/// Credit that owners of other topics use too.
pub(super) struct SharedCredit {
    pub(super) link: Weak<Membership>,
    pub(super) credit: Credit,
}

impl SharedCredit {
    /// Wants none any more.
    pub(super) fn leave(&self) {
        self.credit.stop_waiting();
        self.wake_next();
    }

    /// Tells whose turn it is that there is credit.
    fn wake_next(&self) {
        // As below: whoever waits sees the credit we gave back, or we see that it waits.
        fence(Ordering::SeqCst);
        while let Some(next) = self.credit.next_user() {
            let Some(link) = self.link.upgrade() else { return };
            let owner = link.joined().owners.values().find(|owner| owner.number == next).cloned();
            match owner {
                // Told once, until it has looked.
                Some(owner) if !owner.starved.swap(false, Ordering::SeqCst) => return,
                Some(owner) if owner.mailbox.send_now(OwnerMessage::Tell(Input::Credit)).is_ok() => return,
                // It has ended.
                _ => self.credit.forget(next),
            }
        }
    }
}

impl OwnerTask {
    /// Waits for credit that owners of other topics hold, takes what is there when it is our turn, and tells who is
    /// next.
    pub(super) fn share_credit(&mut self) {
        if self.shares().next().is_none() {
            return;
        }
        // What is read is for credit that was there: until it has come, our turn lasts.
        if self.read.is_none() {
            self.take_turn();
        }
        self.shares().for_each(SharedCredit::wake_next);
    }

    fn take_turn(&mut self) {
        if !self.wants_credit() {
            self.shares().for_each(|shared| shared.credit.stop_waiting());
            return;
        }
        self.owner.starved.store(true, Ordering::SeqCst);
        self.shares().for_each(|shared| shared.credit.wait());
        // Pairs with the fence above: whoever gives credit back sees that we wait, or we see the credit.
        fence(Ordering::SeqCst);
        if !self.shares().any(|shared| shared.credit.free() > 0) {
            return;
        }
        self.step(Input::Credit);
        if self.read.is_some() {
            return;
        }
        let wants = self.wants_credit();
        for shared in self.shares() {
            // What is left though it was our turn is not what we want.
            if wants && shared.credit.free() == 0 {
                shared.credit.wait();
            } else {
                shared.credit.stop_waiting();
            }
        }
    }

    /// No reason at all may mean that credit came back after the machine found none.
    fn wants_credit(&self) -> bool {
        matches!(self.machine.reason(self.now), Some(Reason::Credit) | None)
    }

    fn shares(&self) -> impl Iterator<Item = &SharedCredit> {
        self.members.values().filter_map(|member| member.shared.as_ref())
    }
}
