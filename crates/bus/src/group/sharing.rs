//! Credit that a member has for all topics of its pattern together.

use std::sync::Weak;
use std::sync::atomic::{Ordering, fence};

use super::command::Command;
use super::task::Task;
use crate::delivery::Credit;
use crate::delivery::types::{Input, Reason};
use crate::subscription::Link;

/// Credit that owners of other topics use too.
pub(super) struct Shared {
    pub(super) link: Weak<Link>,
    pub(super) credit: Credit,
}

impl Shared {
    /// Tells owners that starve that there may be credit.
    pub(super) fn tell_starved(&self) {
        // As below: whoever starves sees the credit we gave back, or we see that it starves.
        fence(Ordering::SeqCst);
        if let Some(link) = self.link.upgrade()
            && link.starving.swap(false, Ordering::SeqCst)
        {
            wake_starved(&link);
        }
    }
}

impl Task {
    /// Tells owners that starve for the credit of a member they share that there is some, and starves if there is none.
    pub(super) fn share_credit(&mut self) {
        // Most groups share nothing, and a fence waits for every write before it.
        if !self.members.values().any(|seat| seat.shared.is_some()) {
            return;
        }
        // Pairs with the fence below: whoever starves sees the credit we gave back, or we see that it starves.
        fence(Ordering::SeqCst);
        for shared in self.members.values().filter_map(|seat| seat.shared.as_ref()) {
            if shared.credit.free() == 0 {
                continue;
            }
            let Some(link) = shared.link.upgrade() else { continue };
            if link.starving.swap(false, Ordering::SeqCst) {
                wake_starved(&link);
            }
        }
        // No reason at all may mean that credit came back after the machine found none: nobody told us of that either.
        let wants = matches!(self.machine.reason(self.now), Some(Reason::Credit) | None);
        if !wants || self.read.is_some() {
            return;
        }
        let links = self.members.values().filter_map(|seat| seat.shared.as_ref());
        self.owner.starved.store(true, Ordering::SeqCst);
        links
            .filter_map(|shared| shared.link.upgrade())
            .for_each(|l| l.starving.store(true, Ordering::SeqCst));
        fence(Ordering::SeqCst);
        // Given back between the look and the flag: nobody would tell us.
        if self.members.values().filter_map(|seat| seat.shared.as_ref()).any(|s| s.credit.free() > 0) {
            self.step(Input::Credit);
        }
    }
}

fn wake_starved(link: &Link) {
    for owner in link.owners() {
        if owner.starved.swap(false, Ordering::SeqCst) {
            // One that has ended needs nothing.
            let _ = owner.mailbox.send_now(Command::Tell(Input::Credit));
        }
    }
}
