//! The hub behind the `Watch` port of every adapter: it wakes the followers of a topic when its durable end moves.

mod wake_thread;

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use promethean_model::{IgnorePoison, Offset, TopicName};

use self::wake_thread::WakeThread;

/// The most followers that the commit path wakes by itself; more followers are woken by the wake thread.
const FEW: usize = 8;

/// The followers of each topic. A topic without followers takes no memory here.
#[derive(Debug, Default)]
pub(crate) struct WatchHub {
    /// Entries in `topics`, so that the commit path of a store without followers takes no lock.
    followed: AtomicUsize,
    topics: Mutex<HashMap<TopicName, Arc<FollowedTopic>>>,
    wake_thread: WakeThread,
}

/// Follows the durable end of one topic.
///
/// A change is a hint to read, never proof of an event: the end falls back to 0 when the topic is deleted.
#[derive(Debug)]
pub struct EndWatch {
    topic: TopicName,
    hub: Arc<WatchHub>,
    followed: Arc<FollowedTopic>,
    /// The number of the last move that this follower has seen.
    seen: u64,
    /// The slot of this follower's waker.
    slot: usize,
}

/// A followed topic. There may be thousands of them with one follower each, so it is small. A follower that waits again
/// after it was woken for something else finds its waker in the same slot.
#[derive(Debug, Default)]
struct FollowedTopic {
    state: Mutex<FollowedState>,
}

#[derive(Debug, Default)]
struct FollowedState {
    end: Offset,
    /// Grows with every change of the end.
    moves: u64,
    /// The store is closed: the end moves no more.
    closed: bool,
    followers: usize,
    /// Whether the wake thread will wake the waiting followers.
    wake_pending: bool,
    slots: Vec<WakerSlot>,
}

#[derive(Debug)]
enum WakerSlot {
    Free,
    /// Holds the waker of a follower that waits.
    Taken(Option<Waker>),
}

impl WatchHub {
    /// Follows a topic whose end is read by `end`, under the lock: a move that `end` does not see yet will find the
    /// entry, because stores move the end first and tell the hub afterwards.
    pub(crate) fn follow(self: &Arc<Self>, topic: &TopicName, end: impl FnOnce() -> Offset) -> EndWatch {
        let mut topics = self.lock();
        let followed = Arc::clone(topics.entry(topic.clone()).or_insert_with(|| {
            self.followed.fetch_add(1, Ordering::SeqCst);
            Arc::default()
        }));
        // Pairs with the fence in `moved`: either we read the new end or the mover finds `followed` above 0.
        fence(Ordering::SeqCst);
        let moved = followed.lock().raise(end());
        let (slot, seen) = followed.take_slot();
        drop(topics);
        if moved {
            self.wake(Arc::clone(&followed));
        }
        EndWatch { topic: topic.clone(), hub: Arc::clone(self), followed, seen, slot }
    }

    /// Raises the durable end of a topic and wakes its followers.
    pub(crate) fn moved(&self, topic: &TopicName, end: Offset) {
        fence(Ordering::SeqCst);
        if self.followed.load(Ordering::SeqCst) == 0 {
            return;
        }
        let followed = self.lock().get(topic).cloned();
        if let Some(followed) = followed
            && followed.lock().raise(end)
        {
            self.wake(followed);
        }
    }

    fn wake(&self, followed: Arc<FollowedTopic>) {
        let mut state = followed.lock();
        if state.wake_pending {
            return;
        }
        if state.followers <= FEW {
            drop(state);
            followed.wake_all();
            return;
        }
        state.wake_pending = true;
        drop(state);
        if !self.wake_thread.wake_soon(Arc::clone(&followed)) {
            followed.wake_all();
        }
    }

    /// Sets the end of a deleted topic to 0 and wakes its followers.
    pub(crate) fn reset(&self, topic: &TopicName) {
        let followed = self.lock().get(topic).cloned();
        if let Some(followed) = followed {
            let mut state = followed.lock();
            state.end = Offset::ZERO;
            state.moves += 1;
            drop(state);
            followed.wake_all();
        }
    }

    /// Ends every [`EndWatch`]: the store is closed.
    pub(crate) fn close(&self) {
        let mut topics = self.lock();
        let all = std::mem::take(&mut *topics);
        self.followed.store(0, Ordering::SeqCst);
        drop(topics);
        for followed in all.into_values() {
            followed.lock().closed = true;
            followed.wake_all();
        }
    }

    fn forget_if_unused(&self, topic: &TopicName, left: &Arc<FollowedTopic>) {
        let mut topics = self.lock();
        // Under both locks, in the order in which `follow` takes them.
        let is_unused = left.lock().followers == 0;
        if is_unused && topics.get(topic).is_some_and(|followed| Arc::ptr_eq(followed, left)) {
            topics.remove(topic);
            self.followed.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TopicName, Arc<FollowedTopic>>> {
        // Every change under this lock is a single map operation, so a panic elsewhere leaves it whole.
        self.topics.lock().ignore_poison()
    }
}

impl FollowedState {
    /// Moves the end up and returns whether it moved. Two commits may report out of order; the end never moves down here.
    fn raise(&mut self, end: Offset) -> bool {
        let moved = end > self.end;
        if moved {
            self.end = end;
            self.moves += 1;
        }
        moved
    }
}

impl FollowedTopic {
    /// Wakes the waiting followers and returns their number.
    fn wake_all(&self) -> u32 {
        let mut state = self.lock();
        state.wake_pending = false;
        let mut wakers = state.slots.iter_mut().filter_map(WakerSlot::take_waker);
        // Most topics have one waiting follower, which needs no list.
        let first = wakers.next();
        let rest: Vec<Waker> = wakers.collect();
        drop(state);
        let mut woken = 0;
        for waker in first.into_iter().chain(rest) {
            waker.wake();
            woken += 1;
        }
        woken
    }

    /// Takes a slot for a new follower; returns it with the number of the last move.
    fn take_slot(&self) -> (usize, u64) {
        let mut state = self.lock();
        state.followers += 1;
        let free = (state.followers <= state.slots.len())
            .then(|| state.slots.iter().position(|slot| matches!(slot, WakerSlot::Free)))
            .flatten();
        let slot = free.unwrap_or(state.slots.len());
        match state.slots.get_mut(slot) {
            Some(free) => *free = WakerSlot::Taken(None),
            None => {
                if state.slots.is_empty() {
                    // Most topics have few followers, and many of them one.
                    state.slots.reserve_exact(1);
                }
                state.slots.push(WakerSlot::Taken(None));
            }
        }
        (slot, state.moves)
    }

    fn free_slot(&self, slot: usize) {
        let mut state = self.lock();
        state.followers -= 1;
        if let Some(slot) = state.slots.get_mut(slot) {
            *slot = WakerSlot::Free;
        }
    }

    fn lock(&self) -> MutexGuard<'_, FollowedState> {
        // Each change leaves the state whole before any step that could panic.
        self.state.lock().ignore_poison()
    }
}

impl WakerSlot {
    fn take_waker(&mut self) -> Option<Waker> {
        match self {
            Self::Taken(waker) => waker.take(),
            Self::Free => None,
        }
    }
}

impl EndWatch {
    /// The topic followed.
    pub fn topic(&self) -> &TopicName {
        &self.topic
    }

    /// The end as last reported; marks it as seen.
    pub fn end(&mut self) -> Offset {
        let state = self.followed.lock();
        self.seen = state.moves;
        state.end
    }

    /// Waits until the end differs from what was last seen, and returns it. Cancel-safe. `None` once the store is
    /// closed.
    pub async fn changed(&mut self) -> Option<Offset> {
        poll_fn(|context| self.poll_changed(context)).await
    }

    /// As [`EndWatch::changed`], for a caller that also waits for other things.
    pub fn poll_changed(&mut self, context: &mut Context<'_>) -> Poll<Option<Offset>> {
        let seen = self.seen;
        self.poll_until(context, |state| state.moves != seen)
    }

    /// Waits until the end is above `offset`, that is, until the event at `offset` can be read. Cancel-safe.
    pub async fn past(&mut self, offset: Offset) -> Option<Offset> {
        poll_fn(|context| self.poll_until(context, |state| state.end > offset)).await
    }

    fn poll_until(
        &mut self,
        context: &mut Context<'_>,
        is_so: impl Fn(&FollowedState) -> bool,
    ) -> Poll<Option<Offset>> {
        let mut state = self.followed.lock();
        if is_so(&state) {
            self.seen = state.moves;
            return Poll::Ready(Some(state.end));
        }
        if state.closed {
            return Poll::Ready(None);
        }
        match state.slots.get_mut(self.slot) {
            Some(WakerSlot::Taken(Some(waker))) => waker.clone_from(context.waker()),
            Some(slot) => *slot = WakerSlot::Taken(Some(context.waker().clone())),
            None => debug_assert!(false, "a follower without a slot"),
        }
        Poll::Pending
    }
}

impl Drop for EndWatch {
    fn drop(&mut self) {
        self.followed.free_slot(self.slot);
        self.hub.forget_if_unused(&self.topic, &self.followed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str) -> TopicName {
        name.parse().unwrap()
    }

    #[test]
    fn forgets_a_topic_with_its_last_follower() {
        let hub = Arc::new(WatchHub::default());
        let first = hub.follow(&topic("a"), || Offset(3));
        let mut second = hub.follow(&topic("a"), || Offset(3));
        drop(first);
        hub.moved(&topic("a"), Offset(4));
        assert_eq!(second.end(), Offset(4));
        drop(second);
        assert!(hub.lock().is_empty());
        assert_eq!(hub.followed.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn the_end_moves_up_except_when_the_topic_is_deleted() {
        let hub = Arc::new(WatchHub::default());
        let mut watch = hub.follow(&topic("a"), || Offset(3));
        hub.moved(&topic("a"), Offset(2));
        assert_eq!(watch.end(), Offset(3));
        hub.reset(&topic("a"));
        assert_eq!(watch.end(), Offset::ZERO);
    }

    fn poll(watch: &mut EndWatch) -> Poll<Option<Offset>> {
        watch.poll_changed(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_follower_hears_of_every_change_once_and_of_the_end() {
        let hub = Arc::new(WatchHub::default());
        let mut watch = hub.follow(&topic("a"), || Offset(3));
        assert_eq!(poll(&mut watch), Poll::Pending, "what was there at first is no change");
        hub.moved(&topic("a"), Offset(4));
        hub.moved(&topic("b"), Offset(9));
        assert_eq!(poll(&mut watch), Poll::Ready(Some(Offset(4))));
        assert_eq!(poll(&mut watch), Poll::Pending);
        hub.moved(&topic("a"), Offset(5));
        hub.close();
        assert_eq!(poll(&mut watch), Poll::Ready(Some(Offset(5))), "the last change comes before the end");
        assert_eq!(poll(&mut watch), Poll::Ready(None));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn many_followers_see_the_last_change() {
        let hub = Arc::new(WatchHub::default());
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..10 * FEW {
            let mut watch = hub.follow(&topic("a"), || Offset(0));
            waiting.spawn(async move {
                let mut last = Offset(0);
                while let Some(end) = watch.changed().await {
                    assert!(end > last, "{end} after {last}");
                    last = end;
                }
                last
            });
        }
        for end in 1..=2_000 {
            hub.moved(&topic("a"), Offset(end));
            if end % 7 == 0 {
                tokio::task::yield_now().await;
            }
        }
        let mut witness = hub.follow(&topic("a"), || Offset(0));
        assert_eq!(witness.end(), Offset(2_000));
        // The last wave comes although the end moves no more.
        let heard = async {
            while hub.lock().values().any(|followed| followed.lock().wake_pending) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), heard).await.unwrap();
        hub.close();
        for last in waiting.join_all().await {
            assert_eq!(last, Offset(2_000));
        }
    }

    #[tokio::test]
    async fn a_follower_is_woken_in_any_slot() {
        let hub = Arc::new(WatchHub::default());
        let mut watches: Vec<_> = (0..4).map(|_| hub.follow(&topic("a"), || Offset(0))).collect();
        // New followers take the slots of followers that left.
        watches.remove(1);
        watches.remove(2);
        watches.extend((0..3).map(|_| hub.follow(&topic("a"), || Offset(0))));
        let slots: std::collections::BTreeSet<_> = watches.iter().map(|watch| watch.slot).collect();
        assert_eq!(slots.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        let mut waiting = tokio::task::JoinSet::new();
        for mut watch in watches {
            waiting.spawn(async move {
                assert_eq!(watch.past(Offset(6)).await, Some(Offset(7)));
                assert_eq!(watch.changed().await, None);
            });
        }
        tokio::task::yield_now().await;
        hub.moved(&topic("a"), Offset(6));
        tokio::task::yield_now().await;
        hub.moved(&topic("a"), Offset(7));
        tokio::task::yield_now().await;
        hub.close();
        assert_eq!(waiting.join_all().await.len(), 5);
    }
}
