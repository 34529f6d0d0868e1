//! Events, member limits and a rate for tests of the delivery machine.

use std::sync::atomic::{AtomicU64, Ordering};

use promethean_bus::delivery::Rate;
use promethean_bus::delivery::types::{MemberLimits, Now};
use promethean_model::{EventId, Offset};
use promethean_store::port::{EventBody, StoredEvent};

pub(crate) fn event(offset: u64, key: Option<&str>) -> StoredEvent {
    let id = EventId::from_bytes(u128::from(offset + 1).to_be_bytes());
    StoredEvent::new("t".parse().unwrap(), Offset(offset), id, 0).with_body(EventBody {
        key: key.map(str::as_bytes),
        meta: &[],
        payload: b"1",
    })
}

pub(crate) fn limits() -> MemberLimits {
    MemberLimits { batch_size: 100, ack_timeout_ms: 30_000, auto_ack: false, paused: false }
}

/// A rate of one delivery every `ms` milliseconds.
#[derive(Debug)]
pub(crate) struct Every {
    pub(crate) ms: u64,
    pub(crate) next: AtomicU64,
}

impl Rate for Every {
    fn take(&self, count: usize, now: Now) -> usize {
        if count == 0 || self.ready_at(now) > now.monotonic_ms {
            return 0;
        }
        self.next.store(now.monotonic_ms + self.ms, Ordering::Relaxed);
        1
    }

    fn ready_at(&self, _now: Now) -> u64 {
        self.next.load(Ordering::Relaxed)
    }
}
