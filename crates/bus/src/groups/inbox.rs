//! What a subscription has been given and not looked at yet.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use super::ClaimOwner;
use super::backlog::Backlog;
use super::mailbox::note;
use crate::error::BusError;
use promethean_delivery::{Delivery, LeaseRef, MemberChange};
use promethean_model::IgnorePoison;

/// Bytes of the events that are taken at once, unless one is larger.
const TAKEN_BYTES_MAX: usize = 256 << 10;

/// Filled by the owners of the subscription's topics. Its length is bounded by the member's credit, and one change of
/// partitions; its bytes by the backlog, if there is one.
#[derive(Debug)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    backlog: Option<Backlog>,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<InboxItem>,
    /// Whether the reader keeps leases, and so must hear which of them are over.
    keeps: bool,
    /// Whoever waits for the next item.
    reader: Option<Waker>,
    /// On the heap, as most have not.
    ended: Option<Box<BusError>>,
}

/// What a subscription hears.
#[derive(Debug)]
pub(crate) enum InboxItem {
    /// Leases of one topic.
    Leases(Arc<ClaimOwner>, VecDeque<Delivery>),
    /// Partitions changed hands, with the epoch.
    Rebalance(u64, MemberChange),
    /// Leases that a reader who keeps them looked at, and that are over; ascending, or all.
    Over(Arc<ClaimOwner>, Option<Vec<LeaseRef>>),
}

impl State {
    /// Partitions that changed hands again before the member looked are one change, in the place of the first: it hears
    /// of them before it is given their events.
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

/// How many are taken at once: at least one.
fn first_few(deliveries: &VecDeque<Delivery>, count_max: usize) -> usize {
    let mut bytes = 0;
    let fit = deliveries.iter().take(count_max).take_while(|delivery| {
        bytes += delivery.event.bytes();
        bytes <= TAKEN_BYTES_MAX
    });
    fit.count().max(1)
}

impl InboxItem {
    /// Of the events in it.
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

    /// From now on the reader keeps leases.
    pub(crate) fn keep(&self) {
        self.lock().keeps = true;
    }

    pub(crate) fn put(&self, item: InboxItem) {
        let mut state = self.lock();
        // Nobody will look at it.
        if state.ended.is_some() {
            return;
        }
        if let Some(backlog) = &self.backlog {
            backlog.fill.add(item.bytes());
        }
        state.put(item);
        wake(state);
    }

    /// Removes leases, ascending, that ended before anybody looked at them; tells of the others whoever keeps them.
    pub(crate) fn revoke(&self, owner: &Arc<ClaimOwner>, leases: &[LeaseRef]) {
        let mut state = self.lock();
        if state.ended.is_some() {
            return;
        }
        let mut seen: Vec<LeaseRef> = if state.keeps { leases.to_vec() } else { Vec::new() };
        let mut unread = 0;
        state.items.retain_mut(|item| match item {
            InboxItem::Leases(from, deliveries) if Arc::ptr_eq(from, owner) => {
                deliveries.retain(|delivery| {
                    let over = leases.binary_search(&delivery.lease).is_ok();
                    if over {
                        unread += delivery.event.bytes();
                        seen.retain(|lease| *lease != delivery.lease);
                    }
                    !over
                });
                !deliveries.is_empty()
            }
            _ => true,
        });
        if seen.is_empty() {
            drop(state);
        } else {
            state.items.push_back(InboxItem::Over(Arc::clone(owner), Some(seen)));
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

    /// Nothing more will come. Whoever looks hears it, also before what is there: its leases are worth nothing.
    pub(crate) fn end(&self, why: BusError) {
        let mut state = self.lock();
        let unread = state.items.iter().map(InboxItem::bytes).sum();
        state.items.clear();
        state.ended.get_or_insert_with(|| Box::new(why));
        wake(state);
        self.removed(unread);
    }

    /// The next item with at most `leases_max` leases, or the end; `None` if there is nothing now.
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

    /// As [`Inbox::take`], and wakes the reader when there is something. For one reader.
    pub(crate) fn poll_take(&self, cx: &Context<'_>, leases_max: usize) -> Poll<Result<InboxItem, BusError>> {
        if let Some(item) = self.take(leases_max) {
            return Poll::Ready(item);
        }
        let mut state = self.lock();
        if state.ended.is_none() && state.items.is_empty() {
            note(&mut state.reader, cx);
            return Poll::Pending;
        }
        drop(state);
        // Something came between the two looks.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Why nothing more will come.
    pub(crate) fn ended(&self) -> Option<BusError> {
        self.lock().ended.as_deref().cloned()
    }

    /// Has the reader woken by whatever comes next.
    pub(crate) fn note_reader(&self, cx: &Context<'_>) {
        note(&mut self.lock().reader, cx);
    }

    /// Wakes the reader if it waits.
    pub(crate) fn wake_reader(&self) {
        wake(self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is one operation, so a panic elsewhere leaves it whole.
        self.state.lock().ignore_poison()
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
    fn what_ended_unseen_takes_no_room() {
        let (inbox, owner) = (Inbox::new(None), owner());
        for n in 0..100 {
            inbox.put(InboxItem::Leases(Arc::clone(&owner), [delivery(n)].into()));
            inbox.revoke(&owner, &[delivery(n).lease]);
        }
        assert_eq!(inbox.lock().items.len(), 0);
    }

    #[test]
    fn changes_of_partitions_that_nobody_looked_at_are_one() {
        let (inbox, owner) = (Inbox::new(None), owner());
        inbox.put(InboxItem::Rebalance(1, change(&[0, 1, 2], &[])));
        inbox.put(InboxItem::Leases(owner, [delivery(0)].into()));
        inbox.put(InboxItem::Rebalance(2, change(&[], &[1])));
        inbox.put(InboxItem::Rebalance(3, change(&[3, 1], &[0])));
        let Some(Ok(InboxItem::Rebalance(epoch, told))) = inbox.take(10) else { panic!("not first") };
        assert_eq!((epoch, told), (3, change(&[1, 2, 3], &[])));
        // From here on it had them: what went and came again was others' in between.
        inbox.put(InboxItem::Rebalance(4, change(&[], &[1, 2])));
        inbox.put(InboxItem::Rebalance(5, change(&[2], &[3])));
        inbox.put(InboxItem::Rebalance(6, change(&[], &[2])));
        assert!(matches!(inbox.take(10), Some(Ok(InboxItem::Leases(..)))));
        let Some(Ok(InboxItem::Rebalance(epoch, told))) = inbox.take(10) else { panic!("not there") };
        assert_eq!((epoch, told), (6, change(&[], &[1, 2, 3])));
        assert!(inbox.take(10).is_none());
    }
}
