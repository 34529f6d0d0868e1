//! What one member shares between all the machines that deliver to it.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::turns::Turns;
use super::types::Now;

/// How many more leases a member may hold. Clones share one count.
#[derive(Debug, Clone)]
pub struct Credit {
    shared: Arc<Shared>,
    max: usize,
    /// Which of several users of the count this is; 0 where there is one.
    user: u64,
}

#[derive(Debug)]
struct Shared {
    /// Lowered by the machine that makes a lease, raised by the same machine when the lease ends. With the era, see
    /// [`Free`].
    free: AtomicU64,
    /// Whether it is given bit by bit, and not given back when a lease ends.
    pulled: bool,
    turns: Turns,
    /// While it is full, nothing more is to be taken.
    fill: Option<Arc<Fill>>,
}

/// How much is free, and since when: what was taken in an era is not given back in another. Packed, the era above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Free {
    era: u32,
    count: u32,
}

impl Free {
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

/// How much waits where deliveries are put. Members may share such a place.
#[derive(Debug)]
pub struct Fill {
    bytes: AtomicUsize,
    max: usize,
    /// Whether somebody found it full since it was last said that there is room.
    refused: AtomicBool,
}

impl Fill {
    /// Full from so many bytes on.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes: AtomicUsize::new(0), max: bytes_max, refused: AtomicBool::new(false) }
    }

    fn is_full(&self) -> bool {
        let full = || self.bytes.load(Ordering::SeqCst) >= self.max;
        if !full() {
            return false;
        }
        self.refused.store(true, Ordering::SeqCst);
        // Again: whoever makes room after this sees the mark.
        full()
    }

    /// So much was put there.
    pub fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    /// So much was taken from there; whether those who found it full are to look again. Not before half of it is free,
    /// so that they look seldom.
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

    /// Credit for as many leases as are granted, each grant for so many.
    pub fn pulled(max_in_flight: usize) -> Self {
        Self::of(0, max_in_flight, true, None)
    }

    /// The same, of which nothing is left while a place is full. Not for credit that is in use.
    #[must_use]
    pub fn unless_full(self, fill: Arc<Fill>) -> Self {
        Self::of(self.shared.free().count as usize, self.max, self.shared.pulled, Some(fill))
    }

    fn of(free: usize, max: usize, pulled: bool, fill: Option<Arc<Fill>>) -> Self {
        let shared =
            Shared { free: AtomicU64::new(Free::of(free).pack()), pulled, turns: Turns::default(), fill };
        Self { shared: Arc::new(shared), max, user: 0 }
    }

    /// Whether it has to be granted.
    pub fn is_pulled(&self) -> bool {
        self.shared.pulled
    }

    /// Grants so many leases more.
    pub fn grant(&self, count: usize) {
        self.shared.change(|free| Some(free.plus(count)));
    }

    /// Takes back what was granted and not used, also what a machine has in its hands at this moment and will not use.
    pub fn ungrant(&self) {
        self.shared.change(|free| Some(Free { era: free.era.wrapping_add(1), count: 0 }));
    }

    /// The same credit for one of several users, with a number above 0 that is its own. They take turns.
    #[must_use]
    pub fn of_user(&self, user: u64) -> Self {
        Self { user, ..self.clone() }
    }

    /// What is left, for this user: nothing while it is another's turn.
    pub fn free(&self) -> usize {
        if self.shared.turns.may_take(self.user) { self.shared.left() } else { 0 }
    }

    /// Waits for a turn; who had one waits behind the others. To be woken by who gives credit back.
    pub fn wait(&self) {
        self.shared.turns.wait(self.user);
    }

    /// Waits no more.
    pub fn stop_waiting(&self) {
        self.shared.turns.leave(self.user);
    }

    /// Who waits for what is left, if it is another user and something is.
    pub fn next_user(&self) -> Option<u64> {
        let next = self.shared.turns.first().filter(|first| *first != self.user);
        next.filter(|_| self.shared.left() > 0)
    }

    /// Another user has gone without a word.
    pub fn forget(&self, user: u64) {
        self.shared.turns.leave(user);
    }

    /// What there is when nothing is in flight.
    pub const fn max(&self) -> usize {
        self.max
    }

    /// Takes `wanted`, or what is left if that is less; says how much it was.
    pub fn take_up_to(&self, wanted: usize) -> usize {
        self.take(wanted).map_or(0, |taken| taken.count as usize)
    }

    /// What was taken, and in which era; `None` if nothing.
    fn take(&self, wanted: usize) -> Option<Free> {
        if !self.shared.turns.may_take(self.user) || self.shared.is_full() {
            return None;
        }
        let wanted = Free::of(wanted).count;
        let before = self.shared.change(|free| {
            let taken = free.count.min(wanted);
            (taken > 0).then_some(Free { count: free.count - taken, ..free })
        })?;
        self.shared.turns.note_taken(self.user);
        Some(Free { count: before.count.min(wanted), ..before })
    }

    /// Gives back what a lease took that is over.
    pub fn put(&self, count: usize) {
        if !self.shared.pulled {
            // It has one era.
            self.untake(Free::of(count));
        }
    }

    /// Gives back what was taken and not used, unless it was taken back meanwhile: or it would be used for what is
    /// granted next, or for nothing that was asked for.
    fn untake(&self, taken: Free) {
        let count = taken.count as usize;
        let before = self.shared.change(|free| (free.era == taken.era).then(|| free.plus(count)));
        let fits = before.is_none_or(|before| before.count as usize + count <= self.max);
        debug_assert!(fits, "more credit given back than taken");
    }
}

impl Shared {
    fn is_full(&self) -> bool {
        self.fill.as_ref().is_some_and(|fill| fill.is_full())
    }

    fn left(&self) -> usize {
        if self.is_full() { 0 } else { self.free().count as usize }
    }

    fn free(&self) -> Free {
        Free::read(self.free.load(Ordering::Relaxed))
    }

    /// What there was before, if it is changed. The count guards nothing but itself, so no ordering is needed.
    fn change(&self, change: impl Fn(Free) -> Option<Free>) -> Option<Free> {
        let packed = |free: u64| change(Free::read(free)).map(Free::pack);
        let before = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, packed);
        before.ok().map(Free::read)
    }
}

/// A limit on deliveries per time.
pub trait Rate: Debug + Send + Sync {
    /// Takes up to `count` deliveries; says how many were granted.
    fn take(&self, count: usize, now: Now) -> usize;
    /// The monotonic time from which at least one is granted; not after `now` if that is already so.
    fn ready_at(&self, now: Now) -> u64;
}

/// What a member may use, wherever it is subscribed.
#[derive(Debug, Clone)]
pub struct Allowance {
    /// Leases at a time.
    pub credit: Credit,
    /// Deliveries per time; `None`: as many as there are.
    pub rate: Option<Arc<dyn Rate>>,
}

impl Allowance {
    /// So many leases at a time, at any rate.
    pub fn of(max_in_flight: usize) -> Self {
        Self { credit: Credit::new(max_in_flight), rate: None }
    }

    /// Whether the rate lets a delivery through now.
    pub(super) fn in_rate(&self, now: Now) -> bool {
        self.rate.as_ref().is_none_or(|rate| rate.ready_at(now) <= now.monotonic_ms)
    }

    /// Takes what one delivery needs, or nothing.
    pub(super) fn take_one(&self, now: Now) -> bool {
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
    fn gives_what_is_left_and_takes_it_back() {
        let credit = Credit::new(3);
        let shared = credit.clone();
        assert_eq!((credit.take_up_to(2), shared.take_up_to(2), credit.take_up_to(1)), (2, 1, 0));
        shared.put(2);
        assert_eq!((credit.free(), credit.max()), (2, 3));
    }

    /// Refuses everything; what is granted is taken back, and granted again, while it does.
    #[derive(Debug)]
    struct Late {
        credit: Credit,
        again: usize,
    }

    impl Rate for Late {
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
    fn what_the_rate_refuses_is_not_granted_once_it_is_taken_back() {
        for again in [0, 2, 3] {
            let credit = Credit::pulled(3);
            let rate = Arc::new(Late { credit: credit.clone(), again });
            let allowance = Allowance { credit: credit.clone(), rate: Some(rate) };
            credit.grant(2);
            assert!(!allowance.take_one(Now { monotonic_ms: 0, wall_ms: 0 }));
            assert_eq!(credit.free(), again);
        }
    }

    #[test]
    fn nothing_is_left_while_there_is_no_room() {
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
    fn those_who_found_no_room_are_told_once_when_half_is_free() {
        let fill = Fill::new(10);
        fill.add(12);
        assert!(!fill.remove(11), "nobody looked");
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
    fn what_is_given_back_is_for_who_waited() {
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
