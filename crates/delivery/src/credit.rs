//! The credit and the rate that one member shares between all the machines that deliver to it.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::credit_queue::CreditQueue;
use crate::input::Now;

/// How many more leases a member may hold. Clones share one count.
#[derive(Debug, Clone)]
pub struct Credit {
    shared: Arc<CreditCount>,
    max: usize,
    /// The number of this user of the count; 0 where there is only one user.
    user: u64,
}

#[derive(Debug)]
struct CreditCount {
    /// A packed [`FreeCredit`]. The machine that makes a lease lowers it, and raises it when the lease ends.
    free: AtomicU64,
    /// Whether the member grants credit itself, as it pulls. Such credit is not given back when a lease ends.
    pulled: bool,
    queue: CreditQueue,
    /// While it is full, no credit can be taken.
    fill: Option<Arc<Fill>>,
}

/// How much credit is free, and in which era. Credit that was taken in one era is not given back in another.
/// Packed into 64 bits, with the era in the upper half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FreeCredit {
    era: u32,
    count: u32,
}

impl FreeCredit {
    fn of(count: usize) -> Self {
        Self { era: 0, count: u32::try_from(count).unwrap_or(u32::MAX) }
    }

    const fn read(packed: u64) -> Self {
        Self { era: (packed >> 32) as u32, count: packed as u32 }
    }

    fn pack(self) -> u64 {
        u64::from(self.era) << 32 | u64::from(self.count)
    }

    fn plus(self, count: usize) -> Self {
        Self { count: self.count.saturating_add(Self::of(count).count), ..self }
    }
}

/// How many bytes of deliveries wait in a buffer. Several members may share one buffer.
#[derive(Debug)]
pub struct Fill {
    bytes: AtomicUsize,
    max: usize,
    /// Whether a user found it full since [`Fill::remove`] last said that there is room.
    refused: AtomicBool,
}

impl Fill {
    /// A buffer that is full from `bytes_max` bytes on.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes: AtomicUsize::new(0), max: bytes_max, refused: AtomicBool::new(false) }
    }

    fn is_full(&self) -> bool {
        let full = || self.bytes.load(Ordering::SeqCst) >= self.max;
        if !full() {
            return false;
        }
        self.refused.store(true, Ordering::SeqCst);
        // Look again: a `remove` that runs after the mark was set sees it, one that ran before made the room
        // seen here.
        full()
    }

    /// Adds bytes that were put into the buffer.
    #[inline]
    pub fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Removes bytes that were taken from the buffer; returns whether the users that found it full should
    /// look again. That is so once half of it is free, so that they look seldom.
    #[inline]
    pub fn remove(&self, bytes: usize) -> bool {
        let left = self.bytes.fetch_sub(bytes, Ordering::SeqCst).saturating_sub(bytes);
        left <= self.max / 2 && self.refused.swap(false, Ordering::SeqCst)
    }
}

impl Credit {
    /// Credit for `max_in_flight` leases.
    pub fn new(max_in_flight: usize) -> Self {
        Self::of(max_in_flight, max_in_flight, false, None)
    }

    /// Credit that must be granted before it can be taken; `max_in_flight` is the most per grant.
    pub fn pulled(max_in_flight: usize) -> Self {
        Self::of(0, max_in_flight, true, None)
    }

    /// Credit with the same count, none of it free while the buffer is full. Call it before the credit is
    /// used: clones made before do not share with it.
    #[must_use]
    pub fn unless_full(self, fill: Arc<Fill>) -> Self {
        Self::of(self.shared.free().count as usize, self.max, self.shared.pulled, Some(fill))
    }

    fn of(free: usize, max: usize, pulled: bool, fill: Option<Arc<Fill>>) -> Self {
        let shared = CreditCount {
            free: AtomicU64::new(FreeCredit::of(free).pack()),
            pulled,
            queue: CreditQueue::default(),
            fill,
        };
        Self { shared: Arc::new(shared), max, user: 0 }
    }

    /// Whether the credit must be granted.
    pub fn is_pulled(&self) -> bool {
        self.shared.pulled
    }

    /// Grants `count` more leases.
    pub fn grant(&self, count: usize) {
        self.shared.change(|free| Some(free.plus(count)));
    }

    /// Takes back the granted credit that is not used, including credit that a machine has just taken and
    /// will not use.
    pub fn ungrant(&self) {
        self.shared.change(|free| Some(FreeCredit { era: free.era.wrapping_add(1), count: 0 }));
    }

    /// The same credit for one of several users that take turns. `user` is above 0 and unique among them.
    #[must_use]
    pub fn of_user(&self, user: u64) -> Self {
        Self { user, ..self.clone() }
    }

    /// How much credit this user can take: none while it is another user's turn.
    #[inline]
    pub fn free(&self) -> usize {
        if self.shared.queue.may_take(self.user) { self.shared.left() } else { 0 }
    }

    /// Enters this user into the queue for credit; a user that had its turn goes to the end. The user that
    /// gives credit back wakes the next one.
    pub fn wait(&self) {
        self.shared.queue.wait(self.user);
    }

    /// Whether it is this user's turn and it has taken credit in it.
    pub fn had_turn(&self) -> bool {
        self.shared.queue.had_turn(self.user)
    }

    /// Removes this user from the queue.
    pub fn stop_waiting(&self) {
        self.shared.queue.leave(self.user);
    }

    /// The user whose turn it is, if it is another user and credit is free.
    #[inline]
    pub fn next_user(&self) -> Option<u64> {
        let next = self.shared.queue.first().filter(|first| *first != self.user);
        next.filter(|_| self.shared.left() > 0)
    }

    /// Removes another user, which is gone, from the queue.
    pub fn forget(&self, user: u64) {
        self.shared.queue.leave(user);
    }

    /// The credit when no lease is in flight.
    #[inline]
    pub const fn max(&self) -> usize {
        self.max
    }

    /// Takes `wanted`, or as much as is free; returns how much it took.
    pub fn take_up_to(&self, wanted: usize) -> usize {
        self.take(wanted).map_or(0, |taken| taken.count as usize)
    }

    /// Takes as [`Credit::take_up_to`]; returns how much and in which era, `None` if nothing was free.
    #[inline]
    fn take(&self, wanted: usize) -> Option<FreeCredit> {
        if !self.shared.queue.may_take(self.user) || self.shared.is_full() {
            return None;
        }
        let wanted = FreeCredit::of(wanted).count;
        let before = self.shared.change(|free| {
            let taken = free.count.min(wanted);
            (taken > 0).then_some(FreeCredit { count: free.count - taken, ..free })
        })?;
        self.shared.queue.note_taken(self.user);
        Some(FreeCredit { count: before.count.min(wanted), ..before })
    }

    /// Gives back the credit of leases that ended.
    #[inline]
    pub fn put(&self, count: usize) {
        if !self.shared.pulled {
            // Credit that is not pulled has only one era.
            self.untake(FreeCredit::of(count));
        }
    }

    /// Gives back credit that was taken and not used, unless `ungrant` has taken it back since: then it would
    /// add to the next grant, or be used without any grant.
    fn untake(&self, taken: FreeCredit) {
        let count = taken.count as usize;
        let before = self.shared.change(|free| (free.era == taken.era).then(|| free.plus(count)));
        let fits = before.is_none_or(|before| before.count as usize + count <= self.max);
        debug_assert!(fits, "more credit given back than taken");
    }
}

impl CreditCount {
    fn is_full(&self) -> bool {
        self.fill.as_ref().is_some_and(|fill| fill.is_full())
    }

    fn left(&self) -> usize {
        if self.is_full() { 0 } else { self.free().count as usize }
    }

    #[inline]
    fn free(&self) -> FreeCredit {
        FreeCredit::read(self.free.load(Ordering::Relaxed))
    }

    /// Changes the count; returns what it was before, `None` if `change` returned `None`. The count guards no
    /// other data, so relaxed ordering is enough.
    fn change(&self, change: impl Fn(FreeCredit) -> Option<FreeCredit>) -> Option<FreeCredit> {
        let packed = |free: u64| change(FreeCredit::read(free)).map(FreeCredit::pack);
        let before = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, packed);
        before.ok().map(FreeCredit::read)
    }
}

/// A limit on deliveries per time.
pub trait DeliveryRate: Debug + Send + Sync {
    /// Takes up to `count` deliveries; returns how many were granted.
    fn take(&self, count: usize, now: Now) -> usize;
    /// The monotonic time from which at least one delivery is granted; at or before `now` if one is granted
    /// now.
    fn ready_at(&self, now: Now) -> u64;
}

/// The credit and the rate of one member, over all its subscriptions.
#[derive(Debug, Clone)]
pub struct Allowance {
    /// Limits leases at a time.
    pub credit: Credit,
    /// Limits deliveries per time; `None`: no limit.
    pub rate: Option<Arc<dyn DeliveryRate>>,
}

impl Allowance {
    /// An allowance of `max_in_flight` leases at a time, without a rate.
    pub fn of(max_in_flight: usize) -> Self {
        Self { credit: Credit::new(max_in_flight), rate: None }
    }

    /// Whether the rate allows a delivery now.
    #[inline]
    pub(crate) fn in_rate(&self, now: Now) -> bool {
        self.rate.as_ref().is_none_or(|rate| rate.ready_at(now) <= now.monotonic_ms)
    }

    /// Takes credit and rate for one delivery; takes neither if one of them is used up.
    #[inline]
    pub(crate) fn take_one(&self, now: Now) -> bool {
        let Some(taken) = self.credit.take(1) else { return false };
        let granted = self.rate.as_ref().is_none_or(|rate| rate.take(1, now) == 1);
        if !granted {
            self.credit.untake(taken);
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_what_is_free_and_takes_it_back() {
        let credit = Credit::new(3);
        let shared = credit.clone();
        assert_eq!((credit.take_up_to(2), shared.take_up_to(2), credit.take_up_to(1)), (2, 1, 0));
        shared.put(2);
        assert_eq!((credit.free(), credit.max()), (2, 3));
    }

    /// A rate that refuses everything; while it refuses, the credit is taken back and granted again.
    #[derive(Debug)]
    struct LateRate {
        credit: Credit,
        again: usize,
    }

    impl DeliveryRate for LateRate {
        fn take(&self, _count: usize, _now: Now) -> usize {
            self.credit.ungrant();
            self.credit.grant(self.again);
            0
        }

        fn ready_at(&self, now: Now) -> u64 {
            now.monotonic_ms + 1
        }
    }

    #[test]
    fn credit_the_rate_refuses_is_not_free_after_it_was_taken_back() {
        for again in [0, 2, 3] {
            let credit = Credit::pulled(3);
            let rate = Arc::new(LateRate { credit: credit.clone(), again });
            let allowance = Allowance { credit: credit.clone(), rate: Some(rate) };
            credit.grant(2);
            assert!(!allowance.take_one(Now { monotonic_ms: 0, wall_ms: 0 }));
            assert_eq!(credit.free(), again);
        }
    }

    #[test]
    fn no_credit_is_free_while_the_buffer_is_full() {
        let fill = Arc::new(Fill::new(10));
        let credit = Credit::new(3).unless_full(Arc::clone(&fill));
        let other = Credit::new(3).unless_full(Arc::clone(&fill));
        fill.add(9);
        assert_eq!((credit.free(), credit.take_up_to(1)), (3, 1));
        fill.add(9);
        assert_eq!((credit.free(), credit.take_up_to(1), other.free()), (0, 0, 0));
        assert_eq!((fill.remove(8), fill.remove(5), fill.remove(5)), (false, true, false));
        assert_eq!((credit.free(), other.take_up_to(3)), (2, 3));
    }

    #[test]
    fn users_that_found_it_full_look_again_once_when_half_is_free() {
        let fill = Fill::new(10);
        fill.add(12);
        assert!(!fill.remove(11), "no user looked");
        fill.add(9);
        assert!(fill.is_full());
        assert!(!fill.remove(4) && !fill.is_full(), "there is room, but less than half");
        assert!(fill.remove(1), "half");
        assert!(!fill.remove(1), "they know");
        fill.add(6);
        assert!(fill.is_full() && fill.is_full());
        assert_eq!((fill.remove(10), fill.remove(0)), (true, false));
    }

    #[test]
    fn credit_given_back_goes_to_the_user_that_waited() {
        let credit = Credit::new(1);
        let (busy, patient) = (credit.of_user(1), credit.of_user(2));
        assert_eq!((busy.take_up_to(1), patient.take_up_to(1)), (1, 0));
        patient.wait();
        busy.wait();
        assert_eq!(busy.next_user(), None, "nothing is left");
        busy.put(1);
        assert_eq!((busy.free(), busy.take_up_to(1), busy.next_user()), (0, 0, Some(2)));
        assert_eq!((patient.free(), patient.take_up_to(1)), (1, 1));
        patient.wait();
        patient.put(1);
        assert_eq!((patient.next_user(), busy.take_up_to(1)), (Some(1), 1));
        busy.stop_waiting();
        busy.put(1);
        assert_eq!(busy.next_user(), Some(2));
        busy.forget(2);
        assert_eq!(busy.free(), 1);
    }
}
