//! The hub behind every adapter's `Watch` port.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use promethean_model::{Offset, TopicName};
use tokio::sync::watch;

/// Who follows which topic. A topic that nobody follows takes no memory here.
#[derive(Debug, Default)]
pub(crate) struct WatchHub {
    /// Entries in `topics`, so that the commit path of a store without followers takes no lock.
    followed: AtomicUsize,
    topics: Mutex<HashMap<TopicName, watch::Sender<Offset>>>,
}

/// Follows the durable end of one topic.
///
/// A change is a hint to read, never proof of an event: the end falls back to 0 when the topic is deleted.
#[derive(Debug)]
pub struct EndWatch {
    topic: TopicName,
    hub: Arc<WatchHub>,
    /// `None` only while dropping.
    receiver: Option<watch::Receiver<Offset>>,
}

impl WatchHub {
    /// Follows a topic whose end is read by `end`, under the lock: a move that `end` does not see yet will find the
    /// entry, because stores move the end first and tell the hub afterwards.
    pub(crate) fn follow(self: &Arc<Self>, topic: &TopicName, end: impl FnOnce() -> Offset) -> EndWatch {
        let mut topics = self.lock();
        let sender = topics.entry(topic.clone()).or_insert_with(|| {
            self.followed.fetch_add(1, Ordering::SeqCst);
            watch::channel(Offset::ZERO).0
        });
        // Pairs with the fence in `moved`: either we read the new end or the mover finds `followed` above 0.
        fence(Ordering::SeqCst);
        raise(sender, end());
        let receiver = sender.subscribe();
        EndWatch { topic: topic.clone(), hub: Arc::clone(self), receiver: Some(receiver) }
    }

    /// The durable end of a topic moved up.
    pub(crate) fn moved(&self, topic: &TopicName, end: Offset) {
        fence(Ordering::SeqCst);
        if self.followed.load(Ordering::SeqCst) == 0 {
            return;
        }
        if let Some(sender) = self.lock().get(topic) {
            raise(sender, end);
        }
    }

    /// The topic was deleted.
    pub(crate) fn reset(&self, topic: &TopicName) {
        if let Some(sender) = self.lock().get(topic) {
            sender.send_replace(Offset::ZERO);
        }
    }

    /// Ends every handle: the store is closed.
    pub(crate) fn close(&self) {
        let mut topics = self.lock();
        topics.clear();
        self.followed.store(0, Ordering::SeqCst);
    }

    fn forget_if_unused(&self, topic: &TopicName) {
        let mut topics = self.lock();
        if topics.get(topic).is_some_and(|sender| sender.receiver_count() == 0) {
            topics.remove(topic);
            self.followed.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TopicName, watch::Sender<Offset>>> {
        // Every change under this lock is a single map operation, so a panic elsewhere leaves it whole.
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Two commits may report out of order; the end only moves up.
fn raise(sender: &watch::Sender<Offset>, end: Offset) {
    sender.send_if_modified(|current| {
        let moved = end > *current;
        if moved {
            *current = end;
        }
        moved
    });
}

impl EndWatch {
    /// The topic followed.
    pub fn topic(&self) -> &TopicName {
        &self.topic
    }

    /// The end as last reported; marks it as seen.
    pub fn end(&mut self) -> Offset {
        self.receiver.as_mut().map_or(Offset::ZERO, |receiver| *receiver.borrow_and_update())
    }

    /// Waits until the end differs from what was last seen, and returns it. Cancel-safe. `None` once the store is
    /// closed.
    pub async fn changed(&mut self) -> Option<Offset> {
        let receiver = self.receiver.as_mut()?;
        receiver.changed().await.ok()?;
        Some(*receiver.borrow_and_update())
    }

    /// Waits until the end is above `offset`, that is, until the event at `offset` can be read. Cancel-safe.
    pub async fn past(&mut self, offset: Offset) -> Option<Offset> {
        let receiver = self.receiver.as_mut()?;
        receiver.wait_for(|end| *end > offset).await.ok().map(|end| *end)
    }
}

impl Drop for EndWatch {
    fn drop(&mut self) {
        // The receiver first, or the count below would include it.
        self.receiver = None;
        self.hub.forget_if_unused(&self.topic);
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
}
