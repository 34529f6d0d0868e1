//! The invalid tokens that each address has shown.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};

use promethean_model::IgnorePoison;

/// How many invalid tokens one address may show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureLimit {
    /// Invalid tokens at once. Default: 20.
    pub burst: NonZeroU32,
    /// The time after which one more is allowed. Default: 3 s.
    pub every_ms: u64,
    /// Addresses that are remembered; above that, the address with the fewest failures is forgotten. Default:
    /// 10,000.
    pub addresses: usize,
}

impl Default for FailureLimit {
    fn default() -> Self {
        let burst = NonZeroU32::new(20).unwrap_or(NonZeroU32::MIN);
        Self { burst, every_ms: 3_000, addresses: 10_000 }
    }
}

/// Valid tokens that are remembered.
const GOOD_MAX: usize = 1_000;

/// The invalid tokens of all addresses, within bounds.
#[derive(Debug)]
pub(crate) struct AuthFailures {
    limit: FailureLimit,
    /// When the failures of each address are forgotten, monotonic. Each failure adds `every_ms`.
    clean_at_ms: Mutex<HashMap<IpAddr, u64>>,
    /// How many addresses have failures: mostly none, and then the lock is not needed.
    known: AtomicUsize,
    /// Hashes, keyed for this process, of tokens that were valid when they were checked.
    good: RwLock<HashSet<u64>>,
    hasher: RandomState,
}

impl AuthFailures {
    pub(crate) fn new(limit: FailureLimit) -> Self {
        Self {
            limit,
            clean_at_ms: Mutex::default(),
            known: AtomicUsize::new(0),
            good: RwLock::default(),
            hasher: RandomState::new(),
        }
    }

    /// Remembers a valid token.
    pub(crate) fn good(&self, token: &str) {
        if self.was_good(token) {
            return;
        }
        let mut good = self.good.write().ignore_poison();
        if good.len() >= GOOD_MAX {
            good.clear();
        }
        good.insert(self.hasher.hash_one(token));
    }

    /// Whether the token was valid before, so that it is not a guess. It may be revoked since.
    pub(crate) fn was_good(&self, token: &str) -> bool {
        let good = self.good.read().ignore_poison();
        good.contains(&self.hasher.hash_one(token))
    }

    /// How long the address must wait before it may show another invalid token; `None` if it need not wait.
    pub(crate) fn wait_ms(&self, peer: IpAddr, now_ms: u64) -> Option<u64> {
        if self.known.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let clean_at = self.clean_at_ms.lock().ignore_poison();
        self.limit.wait_ms(clean_at.get(&of_one_client(peer)).copied(), now_ms)
    }

    /// Counts an invalid token of an address. Above the limit it is not counted, and the address must wait so
    /// long.
    pub(crate) fn failed(&self, peer: IpAddr, now_ms: u64) -> Option<u64> {
        let peer = of_one_client(peer);
        let mut clean_at = self.clean_at_ms.lock().ignore_poison();
        let before = clean_at.get(&peer).copied();
        if let Some(wait_ms) = self.limit.wait_ms(before, now_ms) {
            return Some(wait_ms);
        }
        if before.is_none() && clean_at.len() >= self.limit.addresses {
            make_room(&mut clean_at, now_ms);
        }
        clean_at.insert(peer, before.unwrap_or(0).max(now_ms) + self.limit.every_ms);
        self.known.store(clean_at.len(), Ordering::Relaxed);
        None
    }
}

impl FailureLimit {
    fn wait_ms(&self, clean_at_ms: Option<u64>, now_ms: u64) -> Option<u64> {
        let owed_ms = clean_at_ms?.saturating_sub(now_ms);
        let allowed_ms = u64::from(self.burst.get() - 1).saturating_mul(self.every_ms);
        owed_ms.checked_sub(allowed_ms).filter(|wait_ms| *wait_ms > 0)
    }
}

/// Removes addresses without failures; if there are none, the address with the fewest failures.
fn make_room(clean_at: &mut HashMap<IpAddr, u64>, now_ms: u64) {
    let before = clean_at.len();
    clean_at.retain(|_, at| *at > now_ms);
    if clean_at.len() == before
        && let Some(least) = clean_at.iter().min_by_key(|(_, at)| **at).map(|(peer, _)| *peer)
    {
        clean_at.remove(&least);
    }
}

/// One address for all addresses that one client can have: with IPv6, all with the same first half.
fn of_one_client(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(peer) => Ipv6Addr::from_bits(peer.to_bits() & !u128::from(u64::MAX)).into(),
        peer => peer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failures(burst: u32, addresses: usize) -> AuthFailures {
        let burst = NonZeroU32::new(burst).unwrap();
        AuthFailures::new(FailureLimit { burst, every_ms: 1_000, addresses })
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn good_tokens_are_remembered_within_bounds() {
        let failures = failures(3, 10);
        assert!(!failures.was_good("t"));
        failures.good("t");
        assert!(failures.was_good("t") && !failures.was_good("u"));
        for n in 0..GOOD_MAX {
            failures.good(&n.to_string());
        }
        assert!(failures.good.read().unwrap().len() <= GOOD_MAX);
    }

    #[test]
    fn a_burst_and_then_one_at_a_time() {
        let (failures, peer) = (failures(3, 10), ip("192.0.2.1"));
        assert_eq!(failures.wait_ms(peer, 500), None);
        for _ in 0..3 {
            assert_eq!((failures.wait_ms(peer, 500), failures.failed(peer, 500)), (None, None));
        }
        for now_ms in [500, 500, 1_499] {
            let wait_ms = Some(1_500 - now_ms);
            assert_eq!((failures.wait_ms(peer, now_ms), failures.failed(peer, now_ms)), (wait_ms, wait_ms));
        }
        assert_eq!(failures.failed(peer, 1_500), None);
        assert_eq!(failures.failed(peer, 1_500), Some(1_000));
        // Other addresses are not affected, and after a while the failures are forgotten.
        assert_eq!(failures.failed(ip("192.0.2.2"), 1_500), None);
        for _ in 0..3 {
            assert_eq!(failures.failed(peer, 60_000), None);
        }
        assert!(failures.failed(peer, 60_000).is_some());
    }

    #[test]
    fn addresses_of_one_client_count_together() {
        let failures = failures(1, 10);
        assert_eq!(failures.failed(ip("2001:db8::1"), 0), None);
        assert_eq!(failures.failed(ip("2001:db8::ffff:1"), 0), Some(1_000));
        assert_eq!(failures.failed(ip("2001:db8:0:1::1"), 0), None);
        assert_eq!(failures.failed(ip("10.0.0.1"), 0), None);
        assert_eq!(failures.failed(ip("::ffff:10.0.0.1"), 0), Some(1_000));
    }

    #[test]
    fn many_addresses_take_bounded_memory_and_the_worst_are_kept() {
        let failures = failures(5, 100);
        for _ in 0..5 {
            assert_eq!(failures.failed(ip("192.0.2.1"), 0), None);
        }
        for n in 0..10_000_u32 {
            failures.failed(IpAddr::V4(n.into()), u64::from(n / 10_000));
        }
        assert_eq!(failures.clean_at_ms.lock().unwrap().len(), 100);
        assert_eq!(failures.failed(ip("192.0.2.1"), 0), Some(1_000));
    }
}
