//! The credit that all topics of a pattern share for one member. Owners that need credit and find none take
//! turns, so that a busy topic cannot keep the credit from the others.

use std::sync::Weak;
use std::sync::atomic::{Ordering, fence};

use promethean_delivery::{Credit, Input, Reason};

use super::membership::Membership;
use super::message::OwnerMessage;
use super::task::OwnerTask;

/// A member's credit that owners of several topics use.
pub(super) struct SharedCredit {
    pub(super) membership: Weak<Membership>,
    pub(super) credit: Credit,
}

impl SharedCredit {
    /// Stops waiting for credit, and wakes the owner whose turn is next.
    pub(super) fn leave(&self) {
        self.credit.stop_waiting();
        self.wake_next();
    }

    /// Tells the owner whose turn it is that there is credit.
    fn wake_next(&self) {
        // Pairs with the fence in `take_turn`: a waiting owner sees the credit that we gave back, or we see
        // that it waits.
        fence(Ordering::SeqCst);
        while let Some(next) = self.credit.next_user() {
            let Some(membership) = self.membership.upgrade() else { return };
            let owner = membership.joined().owners.values().find(|owner| owner.number == next).cloned();
            match owner {
                // This owner was told already and has not looked yet.
                Some(owner) if !owner.starved.swap(false, Ordering::SeqCst) => return,
                Some(owner) if owner.mailbox.send_now(OwnerMessage::Tell(Input::Credit)).is_ok() => return,
                // The owner has ended.
                _ => self.credit.forget(next),
            }
        }
    }
}

impl OwnerTask {
    /// Takes free credit if it is this owner's turn, waits for credit that other owners hold, and tells the
    /// next owner.
    pub(super) fn share_credit(&mut self) {
        if self.shares().next().is_none() {
            return;
        }
        // A read in flight is for credit that was free: this owner keeps its turn until the read is done.
        if self.read.is_none() {
            self.take_turn();
        }
        self.shares().for_each(SharedCredit::wake_next);
    }

    fn take_turn(&mut self) {
        while self.wants_credit() {
            self.owner.starved.store(true, Ordering::SeqCst);
            self.shares().for_each(|shared| shared.credit.wait());
            // Pairs with the fence in `wake_next`: an owner that gives credit back sees that we wait, or we see
            // the credit.
            fence(Ordering::SeqCst);
            if !self.shares().any(|shared| shared.credit.free() > 0) {
                return;
            }
            self.step(Input::Credit);
            if self.read.is_some() {
                return;
            }
            // The machine took credit. What is free now came back since, so we wait behind the others, and look again.
            if !self.shares().any(|shared| shared.credit.had_turn()) {
                return self.wait_for_usable_credit();
            }
        }
        self.shares().for_each(|shared| shared.credit.stop_waiting());
    }

    /// Waits for credit that is used up. Credit of which the machine took none although it is free is credit that it
    /// cannot use, so we do not wait for it.
    fn wait_for_usable_credit(&self) {
        let wants = self.wants_credit();
        for shared in self.shares() {
            if wants && shared.credit.free() == 0 {
                shared.credit.wait();
            } else {
                shared.credit.stop_waiting();
            }
        }
    }

    /// Whether this owner needs credit. `None` counts too: credit may have come back after the machine found
    /// none.
    fn wants_credit(&self) -> bool {
        matches!(self.machine.reason(self.now), Some(Reason::Credit) | None)
    }

    fn shares(&self) -> impl Iterator<Item = &SharedCredit> {
        self.members.values().filter_map(|member| member.shared.as_ref())
    }
}
