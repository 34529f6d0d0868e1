//! Events on their way to a member that wants them in their topic's latest schema version.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use promethean_delivery::Delivery;
use promethean_model::IgnorePoison;
use tokio::sync::Notify;

use super::ClaimOwner;
use super::inbox::InboxItem;
use super::membership::Membership;
use crate::error::BusError;
use crate::schemas::lift_events;

/// Between a member's inbox and the member. Takes one item at a time, so that their order stays; a task of the bus lifts
/// its events, so that nobody waits for a program. What it holds the member has taken, as far as the group knows: its
/// length is bounded by the member's credit.
#[derive(Debug, Default)]
pub(crate) struct Lifter {
    state: Mutex<LifterState>,
    /// Signals that an item is done.
    done: Notify,
}

#[derive(Debug, Default)]
struct LifterState {
    ready: VecDeque<InboxItem>,
    /// Whether a task has an item.
    busy: bool,
}

impl Lifter {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// As [`crate::groups::Inbox::poll_take`].
    pub(crate) fn poll_take(
        self: &Arc<Self>,
        link: &Arc<Membership>,
        cx: &Context<'_>,
        leases_max: usize,
    ) -> Poll<Result<InboxItem, BusError>> {
        // Before the look: what is done after it must wake the reader.
        link.inbox.note_reader(cx);
        match self.try_take(link, leases_max) {
            Some(item) => Poll::Ready(item),
            None => Poll::Pending,
        }
    }

    /// What is ready. If nothing is, the next item is taken to be lifted.
    pub(crate) fn try_take(
        self: &Arc<Self>,
        link: &Arc<Membership>,
        leases_max: usize,
    ) -> Option<Result<InboxItem, BusError>> {
        let mut state = self.lock();
        if let Some(why) = link.inbox.ended() {
            state.ready.clear();
            return Some(Err(why));
        }
        if let Some(item) = state.take(leases_max) {
            return Some(Ok(item));
        }
        if state.busy {
            return None;
        }
        match link.inbox.take(leases_max)? {
            Ok(InboxItem::Leases(owner, deliveries)) => {
                state.busy = true;
                drop(state);
                self.start(link, owner, deliveries);
                None
            }
            other => Some(other),
        }
    }

    /// Lifts everything that is in the inbox now.
    pub(crate) async fn lift_all(self: &Arc<Self>, link: &Arc<Membership>) {
        loop {
            let done = self.done.notified();
            tokio::pin!(done);
            // Before the look: what is done after it must wake us.
            done.as_mut().enable();
            {
                let mut state = self.lock();
                if !state.busy {
                    match link.inbox.take(usize::MAX) {
                        Some(Ok(InboxItem::Leases(owner, deliveries))) => {
                            state.busy = true;
                            drop(state);
                            self.start(link, owner, deliveries);
                        }
                        Some(Ok(item)) => {
                            state.ready.push_back(item);
                            continue;
                        }
                        Some(Err(_)) | None => return,
                    }
                }
            }
            done.await;
        }
    }

    /// The task holds no link: a member that goes away is not kept.
    fn start(self: &Arc<Self>, link: &Membership, owner: Arc<ClaimOwner>, deliveries: VecDeque<Delivery>) {
        let (lifter, groups, inbox) = (Arc::clone(self), Arc::clone(&link.groups), Arc::clone(&link.inbox));
        link.groups.base.tasks.spawn(async move {
            let events = deliveries.iter().map(|delivery| delivery.event.clone()).collect();
            let lifted = lift_events(&groups.schemas, events).await;
            let lifted = deliveries.into_iter().zip(lifted);
            let deliveries = lifted.map(|(delivery, event)| Delivery { event, ..delivery }).collect();
            let mut state = lifter.lock();
            state.ready.push_back(InboxItem::Leases(owner, deliveries));
            state.busy = false;
            drop(state);
            lifter.done.notify_waiters();
            inbox.wake_reader();
        });
    }

    fn lock(&self) -> MutexGuard<'_, LifterState> {
        // Each change is one operation, so a panic elsewhere leaves it whole.
        self.state.lock().ignore_poison()
    }
}

impl LifterState {
    fn take(&mut self, leases_max: usize) -> Option<InboxItem> {
        match self.ready.front_mut()? {
            InboxItem::Leases(owner, deliveries) if deliveries.len() > leases_max => {
                let first = deliveries.drain(..leases_max.max(1)).collect();
                Some(InboxItem::Leases(Arc::clone(owner), first))
            }
            _ => self.ready.pop_front(),
        }
    }
}
