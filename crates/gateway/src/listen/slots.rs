//! The places of connections: how many there may be, and which connection makes room for a new one.
//!
//! Every connection has a file descriptor, and the store needs descriptors too. So a connection counts from
//! the moment it is accepted, before it has sent a byte, until its socket is closed. When all places are
//! taken, the oldest connection whose client has shown no valid token gives its place to the new one: clients
//! without a token cannot keep others out.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use promethean_model::IgnorePoison;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// How long a connection may take to give its place away.
const GIVES_WAY_WITHIN: Duration = Duration::from_secs(1);

/// All places. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionSlots(Arc<SlotPool>);

#[derive(Debug)]
struct SlotPool {
    room: Arc<Semaphore>,
    next: AtomicU64,
    /// Connections whose client has shown no valid token, the oldest first.
    strangers: Mutex<BTreeMap<u64, CancellationToken>>,
}

/// A connection's place; free again when it is dropped. Drop it after the socket.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    number: u64,
    slots: ConnectionSlots,
    evicted: CancellationToken,
    kept: AtomicBool,
    _permit: OwnedSemaphorePermit,
}

/// A way to a place that does not keep it.
#[derive(Debug, Clone, Default)]
pub(crate) struct SlotHandle(Weak<ConnectionSlot>);

/// How a place was found for a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotFound {
    Free,
    /// Another connection was closed.
    Evicted,
}

impl ConnectionSlots {
    pub(super) fn new(connections_max: usize) -> Self {
        let room = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
        Self(Arc::new(SlotPool { room, next: AtomicU64::new(0), strangers: Mutex::default() }))
    }

    /// A place for a new connection; `None` if every place belongs to a client with a valid token.
    pub(super) async fn place(&self) -> Option<(Arc<ConnectionSlot>, SlotFound)> {
        if let Ok(permit) = Arc::clone(&self.0.room).try_acquire_owned() {
            return Some((self.slot(permit), SlotFound::Free));
        }
        let (_, oldest) = self.strangers().pop_first()?;
        oldest.cancel();
        let freed = Arc::clone(&self.0.room).acquire_owned();
        let permit = tokio::time::timeout(GIVES_WAY_WITHIN, freed).await.ok()?.ok()?;
        Some((self.slot(permit), SlotFound::Evicted))
    }

    fn slot(&self, permit: OwnedSemaphorePermit) -> Arc<ConnectionSlot> {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let evicted = CancellationToken::new();
        self.strangers().insert(number, evicted.clone());
        let kept = AtomicBool::new(false);
        Arc::new(ConnectionSlot { number, slots: self.clone(), evicted, kept, _permit: permit })
    }

    fn strangers(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, CancellationToken>> {
        // Each change is one operation, so a panic elsewhere leaves the map whole.
        self.0.strangers.lock().ignore_poison()
    }
}

impl ConnectionSlot {
    /// The client has shown a valid token: the connection no longer makes room for others.
    pub(crate) fn keep(&self) {
        if !self.kept.swap(true, Ordering::Relaxed) {
            self.slots.strangers().remove(&self.number);
        }
    }

    /// Returns when the connection must close, to make room for another one.
    pub(crate) fn evicted(&self) -> WaitForCancellationFutureOwned {
        self.evicted.clone().cancelled_owned()
    }

    pub(super) fn handle(self: &Arc<Self>) -> SlotHandle {
        SlotHandle(Arc::downgrade(self))
    }
}

impl SlotHandle {
    /// As [`ConnectionSlot::keep`], if the connection is still open.
    pub(crate) fn keep(&self) {
        if let Some(slot) = self.0.upgrade() {
            slot.keep();
        }
    }

    /// The place itself, for a WebSocket that lives on after its request.
    pub(crate) fn hold(&self) -> Option<Arc<ConnectionSlot>> {
        self.0.upgrade()
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if !*self.kept.get_mut() {
            self.slots.strangers().remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_oldest_stranger_makes_room_and_a_known_client_does_not() {
        let slots = ConnectionSlots::new(3);
        let (known, _) = slots.place().await.unwrap();
        known.keep();
        let (first, _) = slots.place().await.unwrap();
        let (second, found) = slots.place().await.unwrap();
        assert_eq!(found, SlotFound::Free);
        let leaves = first.evicted();
        let (third, found) = tokio::join!(slots.place(), async move {
            leaves.await;
            drop(first);
        })
        .0
        .unwrap();
        assert_eq!(found, SlotFound::Evicted);
        // Known clients stay, and then no place is left.
        second.keep();
        third.keep();
        assert!(slots.place().await.is_none());
        assert!(!known.evicted.is_cancelled() && !second.evicted.is_cancelled());
        drop(known);
        assert_eq!(slots.place().await.unwrap().1, SlotFound::Free);
        assert!(slots.strangers().is_empty(), "places that are given up are forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_does_not_leave_keeps_its_place() {
        let slots = ConnectionSlots::new(1);
        let (stuck, _) = slots.place().await.unwrap();
        assert!(slots.place().await.is_none(), "never more connections than places");
        drop(stuck);
        assert!(slots.place().await.is_some());
    }
}
