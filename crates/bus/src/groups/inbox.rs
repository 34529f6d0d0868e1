//! The inbox of a member: events and changes that wait until its subscription takes them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use super::ClaimOwner;
use super::backlog::Backlog;
use super::mailbox::remember_waker;
use crate::error::BusError;
use promethean_delivery::{Delivery, LeaseRef, MemberChange};
use promethean_model::IgnorePoison;

/// The most bytes of events in one `take`; a single larger event is taken alone.
const TAKEN_BYTES_MAX: usize = 256 << 10;

/// The queue that the owners of a subscription's topics fill. Its length is bounded by the member's credit
/// plus one rebalance, its bytes by the backlog, if there is one.
#[derive(Debug)]
pub(crate) struct Inbox {
    state: Mutex<InboxState>,
    backlog: Option<Backlog>,
}

#[derive(Debug, Default)]
struct InboxState {
    items: VecDeque<InboxItem>,
    /// Whether the reader keeps the leases that it took, and so must be told which of them are over.
    keeps: bool,
    /// Wakes the reader, if it waits for the next item.
    reader: Option<Waker>,
    /// The error that ended the inbox. Boxed, because most inboxes have not ended.
    ended: Option<Box<BusError>>,
}

/// One item that a subscription takes from its inbox.
#[derive(Debug)]
pub(crate) enum InboxItem {
    /// Leases of one topic.
    Leases(Arc<ClaimOwner>, VecDeque<Delivery>),
    /// A rebalance changed the member's partitions; with its epoch.
    Rebalance(u64, MemberChange),
    /// Leases that the reader took and keeps, and that are over: those listed, ascending, or with `None` all
    /// of this owner.
    Over(Arc<ClaimOwner>, Option<Vec<LeaseRef>>),
}

impl InboxState {
    /// Adds an item. A second rebalance that the member has not taken yet is merged into the first and stays
    /// at the place of the first, so that the member learns of its partitions before it gets their events.
    fn put(&mut self, item: InboxItem) {
        if let InboxItem::Rebalance(epoch, change) = &item {
            let unread = self.items.iter_mut().find_map(|item| match item {
                InboxItem::Rebalance(epoch, change) => Some((epoch, change)),
                InboxItem::Leases(..) | InboxItem::Over(..) => None,
            });
            if let Some((last, unread)) = unread {
                *last = *epoch;
                *unread = unread.clone().then(change.clone());
                return;
            }
        }
        self.items.push_back(item);
    }

    fn take(&mut self, leases_max: usize) -> Option<Result<InboxItem, BusError>> {
        if let Some(why) = &self.ended {
            return Some(Err(BusError::clone(why)));
        }
        loop {
            match self.items.front_mut()? {
                InboxItem::Leases(_, deliveries) if deliveries.is_empty() => {
                    self.items.pop_front();
                }
                InboxItem::Leases(owner, deliveries) => {
                    let count = first_few(deliveries, leases_max);
                    if count == deliveries.len() {
                        return self.items.pop_front().map(Ok);
                    }
                    let first = deliveries.drain(..count).collect();
                    return Some(Ok(InboxItem::Leases(Arc::clone(owner), first)));
                }
                _ => return self.items.pop_front().map(Ok),
            }
        }
    }
}

/// How many deliveries one `take` returns: at least one.
fn first_few(deliveries: &VecDeque<Delivery>, count_max: usize) -> usize {
    let mut bytes = 0;
    let fit = deliveries.iter().take(count_max).take_while(|delivery| {
        bytes += delivery.event.bytes();
        bytes <= TAKEN_BYTES_MAX
    });
    fit.count().max(1)
}

impl InboxItem {
    /// The bytes of the events in this item.
    fn bytes(&self) -> usize {
        match self {
            Self::Leases(_, deliveries) => deliveries.iter().map(|delivery| delivery.event.bytes()).sum(),
            Self::Rebalance(..) | Self::Over(..) => 0,
        }
    }
}

impl Inbox {
    pub(crate) fn new(backlog: Option<Backlog>) -> Self {
        Self { state: Mutex::default(), backlog }
    }

    /// Says that from now on the reader keeps leases.
    pub(crate) fn keep(&self) {
        self.lock().keeps = true;
    }

    pub(crate) fn put(&self, item: InboxItem) {
        let mut state = self.lock();
        // An ended inbox is not read any more.
        if state.ended.is_some() {
            return;
        }
        if let Some(backlog) = &self.backlog {
            backlog.fill.add(item.bytes());
        }
        state.put(item);
        wake(state);
    }

    /// Removes leases that are over. `leases` is ascending. Leases that were not taken yet just vanish; if
    /// the reader keeps leases, an `Over` item names the ones that it has taken.
    pub(crate) fn revoke(&self, owner: &Arc<ClaimOwner>, leases: &[LeaseRef]) {
        let mut state = self.lock();
        if state.ended.is_some() {
            return;
        }
        let mut taken: Vec<LeaseRef> = if state.keeps { leases.to_vec() } else { Vec::new() };
        let mut unread = 0;
        state.items.retain_mut(|item| match item {
            InboxItem::Leases(from, deliveries) if Arc::ptr_eq(from, owner) => {
                deliveries.retain(|delivery| {
                    let over = leases.binary_search(&delivery.lease).is_ok();
                    if over {
                        unread += delivery.event.bytes();
                        taken.retain(|lease| *lease != delivery.lease);
                    }
                    !over
                });
                !deliveries.is_empty()
            }
            _ => true,
        });
        if taken.is_empty() {
            drop(state);
        } else {
            state.items.push_back(InboxItem::Over(Arc::clone(owner), Some(taken)));
            wake(state);
        }
        self.removed(unread);
    }

    /// Removes all leases of an owner that has ended.
    pub(crate) fn forget(&self, owner: &Arc<ClaimOwner>) {
        let mut state = self.lock();
        if state.ended.is_some() {
            return;
        }
        let mut unread = 0;
        state.items.retain(|item| {
            let gone = matches!(item, InboxItem::Leases(from, _) if Arc::ptr_eq(from, owner));
            unread += if gone { item.bytes() } else { 0 };
            !gone
        });
        if state.keeps {
            state.items.push_back(InboxItem::Over(Arc::clone(owner), None));
            wake(state);
        } else {
            drop(state);
        }
        self.removed(unread);
    }

    /// Ends the inbox. The reader gets the error at its next look; items it has not taken are dropped, as
    /// their leases are over.
    pub(crate) fn end(&self, why: BusError) {
        let mut state = self.lock();
        let unread = state.items.iter().map(InboxItem::bytes).sum();
        state.items.clear();
        state.ended.get_or_insert_with(|| Box::new(why));
        wake(state);
        self.removed(unread);
    }

    /// Takes the next item, with at most `leases_max` leases. An error if the inbox has ended, `None` if it
    /// is empty.
    pub(crate) fn take(&self, leases_max: usize) -> Option<Result<InboxItem, BusError>> {
        let taken = self.lock().take(leases_max);
        if let Some(Ok(item)) = &taken {
            self.removed(item.bytes());
        }
        taken
    }

    fn removed(&self, bytes: usize) {
        if let Some(backlog) = &self.backlog {
            backlog.remove(bytes);
        }
    }

    /// Like [`Inbox::take`], but wakes the reader when there is an item. There may be only one reader.
    pub(crate) fn poll_take(&self, cx: &Context<'_>, leases_max: usize) -> Poll<Result<InboxItem, BusError>> {
        if let Some(item) = self.take(leases_max) {
            return Poll::Ready(item);
        }
        let mut state = self.lock();
        if state.ended.is_none() && state.items.is_empty() {
            remember_waker(&mut state.reader, cx);
            return Poll::Pending;
        }
        drop(state);
        // An item came between `take` and the lock.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Why the inbox has ended, if it has.
    pub(crate) fn ended(&self) -> Option<BusError> {
        self.lock().ended.as_deref().cloned()
    }

    /// Stores the reader's waker: the next item wakes it.
    pub(crate) fn remember_reader(&self, cx: &Context<'_>) {
        remember_waker(&mut self.lock().reader, cx);
    }

    /// Wakes the reader if it waits.
    pub(crate) fn wake_reader(&self) {
        wake(self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, InboxState> {
        // Each change is one operation, so a panic elsewhere leaves it whole.
        self.state.lock().ignore_poison()
    }
}

/// Wakes the reader if it waits. Releases the lock first, because the reader takes it next.
fn wake(mut state: MutexGuard<'_, InboxState>) {
    let reader = state.reader.take();
    drop(state);
    if let Some(reader) = reader {
        reader.wake();
    }
}

#[cfg(test)]
mod tests {
    use promethean_delivery::MemberNo;
    use promethean_model::{EventId, Offset};
    use promethean_store::port::StoredEvent;

    use super::*;
    use crate::groups::mailbox::Mailbox;
    use crate::metrics::{BusMetrics, Registry};

    fn owner() -> Arc<ClaimOwner> {
        let (topic, group) = ("t".parse().unwrap(), "g".parse().unwrap());
        let metrics = BusMetrics::new(&Registry::default(), 10).group(&topic, &group);
        Arc::new(ClaimOwner {
            topic,
            group,
            mailbox: Mailbox::new(),
            metrics,
            number: 1,
            starved: Default::default(),
        })
    }

    fn delivery(offset: u64) -> Delivery {
        let event = StoredEvent::new("t".parse().unwrap(), Offset(offset), EventId::from_bytes([0; 16]), 0);
        Delivery { lease: LeaseRef { offset: Offset(offset), serial: offset }, attempt: 1, event }
    }

    fn change(assigned: &[u32], revoked: &[u32]) -> MemberChange {
        let (assigned, revoked) = (assigned.to_vec(), revoked.to_vec());
        MemberChange { member: "m".parse().unwrap(), session: MemberNo(1), assigned, revoked }
    }

    #[test]
    fn leases_that_end_before_they_are_taken_use_no_room() {
        let (inbox, owner) = (Inbox::new(None), owner());
        for n in 0..100 {
            inbox.put(InboxItem::Leases(Arc::clone(&owner), [delivery(n)].into()));
            inbox.revoke(&owner, &[delivery(n).lease]);
        }
        assert_eq!(inbox.lock().items.len(), 0);
    }

    #[test]
    fn rebalances_that_are_not_taken_yet_are_merged() {
        let (inbox, owner) = (Inbox::new(None), owner());
        inbox.put(InboxItem::Rebalance(1, change(&[0, 1, 2], &[])));
        inbox.put(InboxItem::Leases(owner, [delivery(0)].into()));
        inbox.put(InboxItem::Rebalance(2, change(&[], &[1])));
        inbox.put(InboxItem::Rebalance(3, change(&[3, 1], &[0])));
        let Some(Ok(InboxItem::Rebalance(epoch, told))) = inbox.take(10) else { panic!("not first") };
        assert_eq!((epoch, told), (3, change(&[1, 2, 3], &[])));
        // The member knows its partitions now, so a partition that went and came back was another member's in
        // between.
        inbox.put(InboxItem::Rebalance(4, change(&[], &[1, 2])));
        inbox.put(InboxItem::Rebalance(5, change(&[2], &[3])));
        inbox.put(InboxItem::Rebalance(6, change(&[], &[2])));
        assert!(matches!(inbox.take(10), Some(Ok(InboxItem::Leases(..)))));
        let Some(Ok(InboxItem::Rebalance(epoch, told))) = inbox.take(10) else { panic!("not there") };
        assert_eq!((epoch, told), (6, change(&[], &[1, 2, 3])));
        assert!(inbox.take(10).is_none());
    }
}
