//! The only source of randomness in this crate: the same seed gives the same run on every machine.

use std::ops::Range;

/// xoshiro256++ seeded through splitmix64.
#[derive(Debug, Clone)]
pub struct SeededRng {
    state: [u64; 4],
}

impl SeededRng {
    /// A generator for this seed; every seed works, also 0.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut word = seed;
        Self { state: std::array::from_fn(|_| splitmix(&mut word)) }
    }

    /// An independent generator, so that the draws of one part do not shift the draws of another.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let out = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c2, d2) = (c ^ a, d ^ b);
        self.state = [a ^ d2, b ^ c2, c2 ^ (b << 17), d2.rotate_left(45)];
        out
    }

    /// A number of the range.
    ///
    /// # Panics
    /// If the range is empty.
    pub fn range(&mut self, range: Range<u64>) -> u64 {
        assert!(range.start < range.end, "empty range {range:?}");
        let width = u128::from(range.end - range.start);
        // Multiply-shift instead of a remainder: no bias worth a second draw at these widths.
        let scaled = (u128::from(self.next_u64()) * width) >> 64;
        range.start + scaled as u64
    }

    /// True in `percent` of a hundred draws.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.range(0..100) < percent
    }

    /// Fills the buffer with noise.
    pub fn fill(&mut self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// `len` bytes of noise.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.fill(&mut out);
        out
    }

    /// One of the items, `None` if there are none.
    pub fn choose<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() {
            return None;
        }
        items.get(self.range(0..items.len() as u64) as usize)
    }

    /// Puts the items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.range(0..last as u64 + 1) as usize);
        }
    }
}

fn splitmix(word: &mut u64) -> u64 {
    *word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *word;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_stream() {
        let draw = |seed| SeededRng::new(seed).bytes(61);
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn matches_the_published_xoshiro_sequence() {
        let mut rng = SeededRng { state: [1, 2, 3, 4] };
        let got: Vec<u64> = (0..4).map(|_| rng.next_u64()).collect();
        assert_eq!(got, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }

    #[test]
    fn range_stays_inside_and_reaches_both_ends() {
        let mut rng = SeededRng::new(1);
        let seen: std::collections::BTreeSet<u64> = (0..200).map(|_| rng.range(5..8)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [5, 6, 7]);
    }

    #[test]
    fn chance_is_never_at_zero_and_always_at_hundred() {
        let mut rng = SeededRng::new(2);
        assert!((0..500).all(|_| !rng.chance(0) && rng.chance(100)));
    }

    #[test]
    fn choose_of_nothing_is_none() {
        let mut rng = SeededRng::new(3);
        assert_eq!(rng.choose::<u8>(&[]), None);
        assert_eq!(rng.choose(&[9]), Some(&9));
    }

    #[test]
    fn shuffle_keeps_the_items() {
        let mut items: Vec<u32> = (0..50).collect();
        SeededRng::new(4).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
