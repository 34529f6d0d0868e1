//! The bound on the bytes that wait in the inboxes of members.

use std::sync::{Arc, Mutex, Weak};

use super::message::OwnerMessage;
use crate::groups::Membership;
use promethean_delivery::{Fill, Input};
use promethean_model::IgnorePoison;

/// A bound on the bytes of events that wait in the inboxes of several members together, such as the members
/// of one connection. While the bound is reached, further events for them stay in the log.
#[derive(Debug, Clone)]
pub struct Backlog {
    pub(crate) fill: Arc<Fill>,
    /// The members whose owners are told when there is room again.
    memberships: Arc<Mutex<Vec<Weak<Membership>>>>,
}

impl Backlog {
    /// A bound of `bytes_max` bytes. It may be exceeded by one read from the log for each topic.
    pub fn new(bytes_max: usize) -> Self {
        Self { fill: Arc::new(Fill::new(bytes_max)), memberships: Arc::default() }
    }

    /// Adds a member: its owners are told when there is room again.
    pub(crate) fn attach(&self, membership: &Arc<Membership>) {
        let mut memberships = self.memberships.lock().ignore_poison();
        memberships.retain(|membership| membership.strong_count() > 0);
        memberships.push(Arc::downgrade(membership));
    }

    /// Subtracts bytes that no longer wait, and tells the owners if there is room again. Must not be called
    /// while the lock of an inbox is held.
    pub(crate) fn remove(&self, bytes: usize) {
        if bytes == 0 || !self.fill.remove(bytes) {
            return;
        }
        let memberships = self.memberships.lock().ignore_poison();
        let memberships: Vec<Arc<Membership>> = memberships.iter().filter_map(Weak::upgrade).collect();
        for owner in memberships.iter().flat_map(|membership| membership.owners()) {
            // An error means that the owner has ended; it delivers nothing.
            let _ = owner.mailbox.send_now(OwnerMessage::Tell(Input::Credit));
        }
    }
}

impl PartialEq for Backlog {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.fill, &other.fill)
    }
}
