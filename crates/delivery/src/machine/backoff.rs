//! How long a failed event waits.

/// 100 ms x 2^(n-1), at most 30 s, give or take 20 %, where `failed` is n. The same arguments give the same
/// time, so that a run can be repeated.
pub(super) fn backoff_ms(failed: u32, seed: u64, offset: u64) -> u64 {
    let doublings = failed.saturating_sub(1).min(16);
    let base = (BASE_MS << doublings).min(CAP_MS);
    let noise = mix(seed ^ mix(offset ^ u64::from(failed).rotate_right(16)));
    // base * (800..=1200) / 1000
    base * (800 + noise % 401) / 1000
}

const BASE_MS: u64 = 100;
const CAP_MS: u64 = 30_000;

/// splitmix64's finisher.
const fn mix(word: u64) -> u64 {
    let z = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_cap_within_a_fifth() {
        for (failed, base) in
            [(1, 100), (2, 200), (5, 1600), (9, 25_600), (10, 30_000), (40, 30_000), (u32::MAX, 30_000)]
        {
            let waits: Vec<u64> = (0..200).map(|offset| backoff_ms(failed, 7, offset)).collect();
            assert!(
                waits.iter().all(|ms| (base * 8 / 10..=base * 12 / 10).contains(ms)),
                "{failed}: {waits:?}"
            );
            assert!(
                waits.iter().any(|ms| *ms < base * 85 / 100) && waits.iter().any(|ms| *ms > base * 115 / 100)
            );
        }
        assert_eq!(backoff_ms(3, 1, 2), backoff_ms(3, 1, 2));
    }
}
