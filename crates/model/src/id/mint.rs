//! The mint of version 7 ids.

use std::fmt;
use std::sync::Mutex;

use crate::IgnorePoison;
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_128;

use super::EventId;

/// The milliseconds of an id have 48 bits.
const MS_MAX: u64 = (1 << 48) - 1;
/// The tail of an id, which follows the milliseconds, has 74 bits without version and variant.
const TAIL_MAX: u128 = (1 << 74) - 1;
/// The first tail of a millisecond is in the lower half, which leaves room for 2^41 steps of at most 2^32.
const TAIL_START_MAX: u128 = TAIL_MAX >> 1;

/// Mints version 7 ids, each greater than the one before, even if the clock jumps back or several threads
/// mint.
///
/// A new millisecond starts at a random tail; ids within it step up by a random amount, so that one id does
/// not tell the next. While the clock is behind the last id, the mint goes on counting in that id's
/// millisecond.
pub struct IdMint {
    /// The lock is held for some tens of nanoseconds, and for one system call in each new millisecond.
    state: Mutex<LastId>,
}

/// The error when the operating system gives no randomness.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the operating system gave no randomness to make ids from: {0}")]
pub struct EntropyError(#[from] getrandom::Error);

impl IdMint {
    /// Makes a mint that the operating system seeds, and again in each new millisecond, so that copies of a
    /// running machine mint different ids.
    pub fn new() -> Result<Self, EntropyError> {
        let mut key = [0; 16];
        getrandom::fill(&mut key)?;
        Ok(Self::from_noise(Noise { key, draws: 0, refreshed_by_os: true }))
    }

    /// Makes a mint whose ids depend on `seed` and the given times only. For simulations: two mints with one
    /// seed mint the same ids.
    pub fn with_seed(seed: u64) -> Self {
        let key = xxh3_128(&seed.to_le_bytes()).to_le_bytes();
        Self::from_noise(Noise { key, draws: 0, refreshed_by_os: false })
    }

    /// Mints an id with the time `now_ms` (milliseconds since 1970 began), or with that of the last id if it
    /// is later.
    pub fn mint(&self, now_ms: u64) -> EventId {
        // A panic cannot leave the last id half-changed in a way that repeats an id, so lock poison is
        // ignored.
        let mut state = self.state.lock().ignore_poison();
        state.advance(now_ms.min(MS_MAX));
        state.id()
    }

    fn from_noise(mut noise: Noise) -> Self {
        let tail = noise.draw() & TAIL_START_MAX;
        Self { state: Mutex::new(LastId { noise, ms: 0, tail }) }
    }
}

impl fmt::Debug for IdMint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A reader of logs could guess ids from the state.
        f.debug_struct("IdMint").finish_non_exhaustive()
    }
}

/// The last minted id, as `ms` and `tail`. The pair only grows.
struct LastId {
    noise: Noise,
    ms: u64,
    tail: u128,
}

impl LastId {
    fn advance(&mut self, now_ms: u64) {
        let step = (self.noise.draw() & u128::from(u32::MAX)) + 1;
        if now_ms > self.ms {
            self.start(now_ms);
        } else if self.tail + step <= TAIL_MAX {
            self.tail += step;
        } else {
            self.start(self.ms + 1);
        }
    }

    fn start(&mut self, ms: u64) {
        self.noise.refresh();
        self.ms = ms;
        self.tail = self.noise.draw() & TAIL_START_MAX;
    }

    /// `ms: 48 | version 7: 4 | tail, high 12 | variant 2: 2 | tail, low 62`
    fn id(&self) -> EventId {
        let tail_high = self.tail >> 62;
        let tail_low = self.tail & ((1 << 62) - 1);
        let bits = u128::from(self.ms) << 80 | 7 << 76 | tail_high << 64 | 0b10 << 62 | tail_low;
        EventId::from_bytes(bits.to_be_bytes())
    }
}

/// A source of random numbers: XXH3-128 of a key and a counter.
struct Noise {
    key: [u8; 16],
    draws: u64,
    refreshed_by_os: bool,
}

impl Noise {
    fn draw(&mut self) -> u128 {
        self.draws = self.draws.wrapping_add(1);
        let mut input = [0; 24];
        let (key, draws) = input.split_at_mut(16);
        key.copy_from_slice(&self.key);
        draws.copy_from_slice(&self.draws.to_le_bytes());
        xxh3_128(&input)
    }

    fn refresh(&mut self) {
        let mut fresh = [0; 16];
        // The key is random already, so after a failure only the refresh is missing.
        if self.refreshed_by_os && getrandom::fill(&mut fresh).is_ok() {
            self.key.iter_mut().zip(fresh).for_each(|(key, fresh)| *key ^= fresh);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn stamps_the_time_asked_for() {
        let mint = IdMint::new().unwrap();
        let id = mint.mint(1_700_000_000_123);
        assert_eq!(id.unix_ms(), Some(1_700_000_000_123));
        assert_eq!(mint.mint(1_600_000_000_000).unix_ms(), Some(1_700_000_000_123));
        assert_eq!(mint.mint(u64::MAX).unix_ms(), Some(MS_MAX));
        assert!(mint.mint(0) > id);
    }

    #[test]
    fn a_full_millisecond_borrows_the_next() {
        let mint = IdMint::with_seed(1);
        let before = mint.mint(5);
        mint.state.lock().unwrap().tail = TAIL_MAX;
        let after = mint.mint(5);
        assert_eq!((before.unix_ms(), after.unix_ms()), (Some(5), Some(6)));
    }

    #[test]
    fn mints_do_not_meet() {
        let (a, b) = (IdMint::new().unwrap(), IdMint::new().unwrap());
        let ids: HashSet<_> = (0..10_000).flat_map(|n| [a.mint(n / 100), b.mint(n / 100)]).collect();
        assert_eq!(ids.len(), 20_000);
    }

    #[test]
    fn a_seed_decides_everything() {
        let ids = |seed| {
            let mint = IdMint::with_seed(seed);
            [5, 5, 4, 9].map(|ms| mint.mint(ms))
        };
        assert_eq!(ids(7), ids(7));
        assert_ne!(ids(7), ids(8));
    }

    /// Clock readings that stand still, creep, and jump both ways.
    fn clock() -> impl Strategy<Value = Vec<u64>> {
        let jump = prop_oneof![8 => 0..3_u64, 1 => 0..1_000_000_u64, 1 => Just(u64::MAX)];
        proptest::collection::vec((any::<bool>(), jump), 1..200).prop_map(|jumps| {
            let mut now = 1_700_000_000_000_u64;
            let step = |(back, by): (bool, u64)| {
                now = if back { now.saturating_sub(by) } else { now.saturating_add(by) };
                now
            };
            jumps.into_iter().map(step).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn unique_and_increasing_over_threads_and_jumps(clocks in proptest::collection::vec(clock(), 1..5)) {
            let mint = &IdMint::new().unwrap();
            let run = |clock: Vec<u64>| clock.into_iter().map(|now| mint.mint(now)).collect::<Vec<_>>();
            let minted: Vec<Vec<EventId>> = std::thread::scope(|scope| {
                let threads: Vec<_> = clocks.into_iter().map(|clock| scope.spawn(move || run(clock))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            for ids in &minted {
                prop_assert!(ids.is_sorted_by(|a, b| a < b));
                prop_assert!(ids.iter().all(|id| id.unix_ms().is_some()));
            }
            let all: HashSet<_> = minted.iter().flatten().collect();
            prop_assert_eq!(all.len(), minted.iter().map(Vec::len).sum::<usize>());
        }
    }
}
