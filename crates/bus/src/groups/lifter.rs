//! Lifting the events of a member that wants them in their topic's latest schema version.

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

/// Stands between a member's inbox and the member. It takes one item at a time, so that the order stays; a
/// task of the bus lifts the events, so that no reader blocks on a jq program. For the group, the member has
/// already taken the items held here, so their number is bounded by the member's credit.
#[derive(Debug, Default)]
pub(crate) struct Lifter {
    state: Mutex<LifterState>,
    /// Signals that an item is lifted.
    done: Notify,
}

#[derive(Debug, Default)]
struct LifterState {
    ready: VecDeque<InboxItem>,
    /// Whether a task is lifting an item.
    busy: bool,
}

impl Lifter {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Like [`crate::groups::Inbox::poll_take`], for lifted items.
    pub(crate) fn poll_take(
        self: &Arc<Self>,
        membership: &Arc<Membership>,
        cx: &Context<'_>,
        leases_max: usize,
    ) -> Poll<Result<InboxItem, BusError>> {
        // Before we look: an item that is lifted after the look must wake the reader.
        membership.inbox.remember_reader(cx);
        match self.try_take(membership, leases_max) {
            Some(item) => Poll::Ready(item),
            None => Poll::Pending,
        }
    }

    /// Takes the next lifted item. If there is none, takes an item from the inbox and starts to lift it.
    pub(crate) fn try_take(
        self: &Arc<Self>,
        membership: &Arc<Membership>,
        leases_max: usize,
    ) -> Option<Result<InboxItem, BusError>> {
        let mut state = self.lock();
        if let Some(why) = membership.inbox.ended() {
            state.ready.clear();
            return Some(Err(why));
        }
        if let Some(item) = state.take(leases_max) {
            return Some(Ok(item));
        }
        if state.busy {
            return None;
        }
        match membership.inbox.take(leases_max)? {
            Ok(InboxItem::Leases(owner, deliveries)) => {
                state.busy = true;
                drop(state);
                self.start(membership, owner, deliveries);
                None
            }
            other => Some(other),
        }
    }

    /// Lifts everything that is in the inbox now.
    pub(crate) async fn lift_all(self: &Arc<Self>, membership: &Arc<Membership>) {
        loop {
            let done = self.done.notified();
            tokio::pin!(done);
            // Enabled before we look: an item that is lifted after the look must wake us.
            done.as_mut().enable();
            {
                let mut state = self.lock();
                if !state.busy {
                    match membership.inbox.take(usize::MAX) {
                        Some(Ok(InboxItem::Leases(owner, deliveries))) => {
                            state.busy = true;
                            drop(state);
                            self.start(membership, owner, deliveries);
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

    /// Starts the task that lifts one item. It holds no `Membership`, so that it does not keep a dropped
    /// member alive.
    fn start(
        self: &Arc<Self>,
        membership: &Membership,
        owner: Arc<ClaimOwner>,
        deliveries: VecDeque<Delivery>,
    ) {
        let (lifter, groups, inbox) =
            (Arc::clone(self), Arc::clone(&membership.groups), Arc::clone(&membership.inbox));
        membership.groups.base.tasks.spawn(async move {
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
