//! What was delivered to members and waits for them to look at it.

use std::sync::{Arc, Mutex, Weak};

use super::message::OwnerMessage;
use crate::groups::Membership;
use promethean_delivery::{Fill, Input};
use promethean_model::IgnorePoison;

/// A bound on the bytes of events that wait in the inboxes of members that belong together, such as those of one
/// connection. While it is reached, what they could be given stays in the log.
#[derive(Debug, Clone)]
pub struct Backlog {
    pub(crate) fill: Arc<Fill>,
    /// Whom to tell that there is room again.
    links: Arc<Mutex<Vec<Weak<Membership>>>>,
}

impl Backlog {
    /// At most so many bytes, and what each topic reads from the log at once.
    pub fn new(bytes_max: usize) -> Self {
        Self { fill: Arc::new(Fill::new(bytes_max)), links: Arc::default() }
    }

    /// A member is to be told when there is room again.
    pub(crate) fn attach(&self, link: &Arc<Membership>) {
        let mut links = self.links.lock().ignore_poison();
        links.retain(|link| link.strong_count() > 0);
        links.push(Arc::downgrade(link));
    }

    /// So many bytes wait no more. Not to be called with the lock of an inbox.
    pub(crate) fn remove(&self, bytes: usize) {
        if bytes == 0 || !self.fill.remove(bytes) {
            return;
        }
        let links = self.links.lock().ignore_poison();
        let links: Vec<Arc<Membership>> = links.iter().filter_map(Weak::upgrade).collect();
        for owner in links.iter().flat_map(|link| link.owners()) {
            // One that has ended delivers nothing.
            let _ = owner.mailbox.send_now(OwnerMessage::Tell(Input::Credit));
        }
    }
}

impl PartialEq for Backlog {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.fill, &other.fill)
    }
}
