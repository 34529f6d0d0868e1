//! Events on their way to a member that wants them in their topic's latest schema version.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use promethean_delivery::Delivery;
use promethean_model::IgnorePoison;
use tokio::sync::Notify;

use super::Link;
use crate::error::BusError;
use crate::group::{Item, Owner};
use crate::schema::lift_events;

/// Between a member's inbox and the member. Takes one item at a time, so that their order stays; a task of the bus lifts
/// its events, so that nobody waits for a program. What it holds the member has taken, as far as the group knows: its
/// length is bounded by the member's credit.
#[derive(Debug, Default)]
pub(crate) struct Lifter {
    state: Mutex<State>,
    /// Signals that an item is done.
    done: Notify,
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<Item>,
    /// Whether a task has an item.
    busy: bool,
}

impl Lifter {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// As [`crate::group::Inbox::poll_take`].
    pub(super) fn poll_take(
        self: &Arc<Self>,
        link: &Arc<Link>,
        cx: &Context<'_>,
        leases_max: usize,
    ) -> Poll<Result<Item, BusError>> {
        // Before the look: what is done after it must wake the reader.
        link.inbox.note_reader(cx);
        match self.try_take(link, leases_max) {
            Some(item) => Poll::Ready(item),
            None => Poll::Pending,
        }
    }

    /// What is ready. If nothing is, the next item is taken to be lifted.
    pub(super) fn try_take(
        self: &Arc<Self>,
        link: &Arc<Link>,
        leases_max: usize,
    ) -> Option<Result<Item, BusError>> {
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
            Ok(Item::Leases(owner, deliveries)) => {
                state.busy = true;
                drop(state);
                self.start(link, owner, deliveries);
                None
            }
            other => Some(other),
        }
    }

    /// Lifts everything that is in the inbox now.
    pub(super) async fn lift_all(self: &Arc<Self>, link: &Arc<Link>) {
        loop {
            let done = self.done.notified();
            tokio::pin!(done);
            // Before the look: what is done after it must wake us.
            done.as_mut().enable();
            {
                let mut state = self.lock();
                if !state.busy {
                    match link.inbox.take(usize::MAX) {
                        Some(Ok(Item::Leases(owner, deliveries))) => {
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
    fn start(self: &Arc<Self>, link: &Link, owner: Arc<Owner>, deliveries: VecDeque<Delivery>) {
        let (lifter, core, inbox) = (Arc::clone(self), Arc::clone(&link.core), Arc::clone(&link.inbox));
        link.core.tasks.spawn(async move {
            let events = deliveries.iter().map(|delivery| delivery.event.clone()).collect();
            let lifted = lift_events(&core, events).await;
            let lifted = deliveries.into_iter().zip(lifted);
            let deliveries = lifted.map(|(delivery, event)| Delivery { event, ..delivery }).collect();
            let mut state = lifter.lock();
            state.ready.push_back(Item::Leases(owner, deliveries));
            state.busy = false;
            drop(state);
            lifter.done.notify_waiters();
            inbox.wake_reader();
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is one operation, so a panic elsewhere leaves it whole.
        self.state.lock().ignore_poison()
    }
}

impl State {
    fn take(&mut self, leases_max: usize) -> Option<Item> {
        match self.ready.front_mut()? {
            Item::Leases(owner, deliveries) if deliveries.len() > leases_max => {
                let first = deliveries.drain(..leases_max.max(1)).collect();
                Some(Item::Leases(Arc::clone(owner), first))
            }
            _ => self.ready.pop_front(),
        }
    }
}
