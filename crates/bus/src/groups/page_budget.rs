//! The memory that pages of events may take, for all owners of a bus together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use promethean_store::port::StoredEvent;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What an event takes in memory beside its key, meta and payload.
const EVENT_BYTES: usize = size_of::<StoredEvent>() + 2 * size_of::<usize>();

/// A budget of bytes. An owner gets a permit before it reads a page, and gives it back when its machine has taken
/// the page. Owners that wait are served in the order they came, so a small page cannot overtake a large one for ever.
/// An owner that holds a page waits for nothing else, so every permit comes back.
#[derive(Debug)]
pub(crate) struct PageBudget {
    free: Arc<Semaphore>,
    max: usize,
    used: Arc<PagesInMemory>,
}

/// The bytes of the pages that are in memory.
#[derive(Debug, Default)]
struct PagesInMemory {
    bytes: AtomicUsize,
    peak: AtomicUsize,
}

/// The memory that pages of events take, for all groups of a bus together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageMemory {
    /// The bytes of the pages in memory now.
    pub bytes: usize,
    /// The most bytes there ever were at a time.
    pub peak_bytes: usize,
    /// The budget.
    pub bytes_max: usize,
}

/// A part of the budget, and the bytes of the page that it is for.
#[derive(Debug)]
pub(super) struct PagePermit {
    bytes: OwnedSemaphorePermit,
    max: usize,
    page_bytes: usize,
    used: Arc<PagesInMemory>,
}

impl PageBudget {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let max = bytes_max.clamp(1, (u32::MAX as usize).min(Semaphore::MAX_PERMITS));
        Self { free: Arc::new(Semaphore::new(max)), max, used: Arc::default() }
    }

    /// Waits for this many bytes, or for the whole budget if it is smaller.
    pub(super) async fn reserve(&self, bytes: usize) -> PagePermit {
        let bytes = u32::try_from(bytes.min(self.max)).unwrap_or(u32::MAX);
        let permit = loop {
            // An error means that the semaphore is closed, which it never is.
            if let Ok(permit) = Arc::clone(&self.free).acquire_many_owned(bytes).await {
                break permit;
            }
        };
        PagePermit { bytes: permit, max: self.max, page_bytes: 0, used: Arc::clone(&self.used) }
    }

    pub(crate) fn memory(&self) -> PageMemory {
        PageMemory {
            bytes: self.used.bytes.load(Ordering::SeqCst),
            peak_bytes: self.used.peak.load(Ordering::SeqCst),
            bytes_max: self.max,
        }
    }
}

impl PagePermit {
    /// Makes the permit as large as the page. Returns `false` if the page is larger and the rest is not free: then the
    /// page must be dropped. A page that is larger than the whole budget needs the whole budget.
    pub(super) fn fit(&mut self, page_bytes: usize) -> bool {
        let reserved = self.bytes.num_permits();
        let needed = page_bytes.min(self.max);
        if let Some(surplus) = reserved.checked_sub(needed) {
            // Dropped, so that it is free again.
            drop(self.bytes.split(surplus));
        } else {
            let rest = u32::try_from(needed - reserved).unwrap_or(u32::MAX);
            match Arc::clone(self.bytes.semaphore()).try_acquire_many_owned(rest) {
                Ok(more) => self.bytes.merge(more),
                Err(_) => return false,
            }
        }
        self.page_bytes = page_bytes;
        let bytes = self.used.bytes.fetch_add(page_bytes, Ordering::SeqCst) + page_bytes;
        self.used.peak.fetch_max(bytes, Ordering::SeqCst);
        true
    }
}

impl Drop for PagePermit {
    fn drop(&mut self) {
        self.used.bytes.fetch_sub(self.page_bytes, Ordering::SeqCst);
    }
}

/// The most memory of a page of `events` events, `bytes` of which are key, meta and payload.
pub(super) const fn memory_max(events: usize, bytes: usize) -> usize {
    bytes.saturating_add(events.saturating_mul(EVENT_BYTES))
}

/// The memory of these events.
pub(super) fn memory_of(events: &[StoredEvent]) -> usize {
    memory_max(events.len(), events.iter().map(StoredEvent::bytes).sum())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use proptest::prelude::*;
    use tokio::task::{JoinSet, yield_now};

    use super::*;

    const MAX: usize = 1_000;

    /// Reads pages of these sizes for one owner after the other; each reserves, and keeps its page for some turns.
    /// Returns the order in which owners were served first.
    async fn read_all(sizes: Vec<(usize, usize, usize)>) -> (Vec<usize>, PageMemory) {
        let budget = Arc::new(PageBudget::new(MAX));
        let served = Arc::new(Mutex::new(Vec::new()));
        let mut owners = JoinSet::new();
        for (n, (guess, page, turns)) in sizes.into_iter().enumerate() {
            let (budget, served) = (Arc::clone(&budget), Arc::clone(&served));
            owners.spawn(async move {
                let mut wanted = guess;
                let mut first = true;
                loop {
                    let mut permit = budget.reserve(wanted).await;
                    if std::mem::take(&mut first) {
                        served.lock().unwrap().push(n);
                    }
                    if permit.fit(page) {
                        for _ in 0..turns {
                            yield_now().await;
                        }
                        return;
                    }
                    wanted = page;
                }
            });
        }
        owners.join_all().await;
        let served = served.lock().unwrap().clone();
        (served, budget.memory())
    }

    proptest! {
        /// Whatever the sizes: every owner gets its page, in the order they came, and the budget is kept.
        #[test]
        fn every_owner_is_served_in_turn_within_the_budget(
            sizes in proptest::collection::vec((1_usize..1_500, 0_usize..=MAX, 0_usize..5), 1..60),
        ) {
            let count = sizes.len();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let (served, memory) = runtime.block_on(read_all(sizes));
            prop_assert_eq!(served, (0..count).collect::<Vec<_>>());
            prop_assert!(memory.peak_bytes <= MAX, "{:?}", memory);
            prop_assert_eq!(memory.bytes, 0);
        }
    }

    #[tokio::test]
    async fn a_page_beyond_the_whole_budget_is_alone() {
        let budget = PageBudget::new(MAX);
        let mut small = budget.reserve(10).await;
        let mut large = budget.reserve(10).await;
        assert!(small.fit(10) && !large.fit(5_000), "the small page is there");
        drop((small, large));
        let mut large = budget.reserve(5_000).await;
        assert!(large.fit(5_000));
        assert_eq!((budget.memory().bytes, budget.free.available_permits()), (5_000, 0));
        drop(large);
        assert_eq!((budget.memory().bytes, budget.free.available_permits()), (0, MAX));
    }
}
