//! What a subscription has been given and not looked at yet.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use super::Owner;
use super::mailbox::note;
use crate::coordinator::MemberChange;
use crate::delivery::types::{Delivery, LeaseRef};
use crate::error::BusError;

/// Filled by the owners of the subscription's topics. Its length is bounded by the member's credit.
#[derive(Debug)]
pub(crate) struct Inbox {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<Item>,
    /// Whoever waits for the next item.
    reader: Option<Waker>,
    /// On the heap, as most have not.
    ended: Option<Box<BusError>>,
}

/// What a subscription hears.
#[derive(Debug)]
pub(crate) enum Item {
    /// Leases of one topic.
    Leases(Arc<Owner>, VecDeque<Delivery>),
    /// Partitions changed hands, with the epoch.
    Rebalance(u64, MemberChange),
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::default() }
    }

    pub(crate) fn put(&self, item: Item) {
        let mut state = self.lock();
        state.items.push_back(item);
        wake(state);
    }

    /// Removes leases, ascending, that ended before anybody looked at them.
    pub(crate) fn revoke(&self, owner: &Arc<Owner>, leases: &[LeaseRef]) {
        for item in &mut self.lock().items {
            if let Item::Leases(from, deliveries) = item
                && Arc::ptr_eq(from, owner)
            {
                deliveries.retain(|delivery| leases.binary_search(&delivery.lease).is_err());
            }
        }
    }

    /// Removes all leases of an owner that has ended.
    pub(crate) fn forget(&self, owner: &Arc<Owner>) {
        self.lock().items.retain(|item| !matches!(item, Item::Leases(from, _) if Arc::ptr_eq(from, owner)));
    }

    /// Nothing more will come. Whoever looks hears it, also before what is there: its leases are worth nothing.
    pub(crate) fn end(&self, why: BusError) {
        let mut state = self.lock();
        state.items.clear();
        state.ended.get_or_insert_with(|| Box::new(why));
        wake(state);
    }

    /// The next item with at most `leases_max` leases, or the end; `None` if there is nothing now.
    pub(crate) fn take(&self, leases_max: usize) -> Option<Result<Item, BusError>> {
        let mut state = self.lock();
        if let Some(why) = &state.ended {
            return Some(Err(BusError::clone(why)));
        }
        loop {
            match state.items.front_mut()? {
                Item::Leases(_, deliveries) if deliveries.is_empty() => {
                    state.items.pop_front();
                }
                Item::Leases(owner, deliveries) if deliveries.len() > leases_max => {
                    let first = deliveries.drain(..leases_max.max(1)).collect();
                    return Some(Ok(Item::Leases(Arc::clone(owner), first)));
                }
                _ => return state.items.pop_front().map(Ok),
            }
        }
    }

    /// Waits until there is something to look at. For one reader.
    pub(crate) async fn arrived(&self) {
        poll_fn(|context| {
            let mut state = self.lock();
            if !state.items.is_empty() || state.ended.is_some() {
                return Poll::Ready(());
            }
            note(&mut state.reader, context);
            Poll::Pending
        })
        .await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is one operation, so a panic elsewhere leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the reader if it waits, without the lock, which it takes next.
fn wake(mut state: MutexGuard<'_, State>) {
    let reader = state.reader.take();
    drop(state);
    if let Some(reader) = reader {
        reader.wake();
    }
}
