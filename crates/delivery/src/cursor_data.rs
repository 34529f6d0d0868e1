//! The bytes of the finished ranges of a cursor.
//!
//! ```text
//! data = version u8 (1) | count varint | count x (gap varint, length varint)
//! ```
//!
//! The first gap counts from the floor, the others from the end of the range before. Gaps and lengths are at least
//! 1. Varints are little-endian base 128, as short as they can be.

use promethean_model::{Offset, OffsetRange};

const VERSION: u8 = 1;
const VARINT_BYTES_MAX: usize = 10;

/// Why bytes are not the data of a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CursorDataError {
    /// A newer release wrote the bytes, or they are not cursor data at all.
    #[error("unknown version {0} of cursor data")]
    Version(u8),
    /// The bytes end too early.
    #[error("cursor data is cut short")]
    Short,
    /// Bytes follow after the last range.
    #[error("{0} bytes too many in cursor data")]
    Long(usize),
    /// A number or a range that no encoder writes.
    #[error("cursor data has a malformed number or range")]
    Malformed,
}

/// Encodes ranges that ascend from `floor` and touch neither it nor each other. An empty list gives no bytes.
pub fn encode_finished(ranges: &[OffsetRange], floor: Offset) -> Vec<u8> {
    if ranges.is_empty() {
        return Vec::new();
    }
    let mut out = Vec::with_capacity(2 + 4 * ranges.len());
    out.push(VERSION);
    put(&mut out, ranges.len() as u64);
    let mut at = floor;
    for range in ranges {
        debug_assert!(range.start > at && !range.is_empty(), "{range} touches what lies before {at}");
        put(&mut out, range.start.since(at));
        put(&mut out, range.len());
        at = range.end;
    }
    out
}

/// Decodes the bytes of [`encode_finished`].
pub fn decode_finished(mut bytes: &[u8], floor: Offset) -> Result<Vec<OffsetRange>, CursorDataError> {
    let Some((version, rest)) = bytes.split_first() else { return Ok(Vec::new()) };
    if *version != VERSION {
        return Err(CursorDataError::Version(*version));
    }
    bytes = rest;
    let count = get(&mut bytes)?;
    // Each range takes at least two bytes: a wrong count must not allocate memory.
    if count > bytes.len() as u64 / 2 {
        return Err(CursorDataError::Short);
    }
    let mut ranges = Vec::with_capacity(count as usize);
    let mut at = floor;
    for _ in 0..count {
        let (gap, len) = (get(&mut bytes)?, get(&mut bytes)?);
        let start = at.checked_add(gap).filter(|_| gap > 0).ok_or(CursorDataError::Malformed)?;
        let end = start.checked_add(len).filter(|_| len > 0).ok_or(CursorDataError::Malformed)?;
        ranges.push(OffsetRange::new(start, end));
        at = end;
    }
    if bytes.is_empty() { Ok(ranges) } else { Err(CursorDataError::Long(bytes.len())) }
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn get(bytes: &mut &[u8]) -> Result<u64, CursorDataError> {
    let mut value = 0_u64;
    for index in 0..VARINT_BYTES_MAX {
        let (byte, rest) = bytes.split_first().ok_or(CursorDataError::Short)?;
        *bytes = rest;
        let (bits, shift) = (u64::from(byte & 0x7f), 7 * index as u32);
        // The tenth byte has room for one bit.
        if shift == 63 && bits > 1 {
            break;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            let is_shortest = *byte != 0 || index == 0;
            return if is_shortest { Ok(value) } else { Err(CursorDataError::Malformed) };
        }
    }
    Err(CursorDataError::Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranges(floor: u64, pairs: &[(u64, u64)]) -> Vec<OffsetRange> {
        let mut at = floor;
        pairs
            .iter()
            .map(|(gap, len)| {
                let range = OffsetRange::new(Offset(at + gap), Offset(at + gap + len));
                at = range.end.0;
                range
            })
            .collect()
    }

    #[test]
    fn has_the_bytes_it_is_drawn_with() {
        assert!(encode_finished(&[], Offset(7)).is_empty());
        assert_eq!(encode_finished(&ranges(7, &[(1, 1), (300, 2)]), Offset(7)), [1, 2, 1, 1, 0xac, 2, 2]);
    }

    #[test]
    fn refuses_what_no_encoder_writes() {
        let cases: [(&[u8], CursorDataError); 9] = [
            (&[2, 0], CursorDataError::Version(2)),
            (&[1], CursorDataError::Short),
            (&[1, 1, 1], CursorDataError::Short),
            (&[1, 1, 1, 1, 0], CursorDataError::Long(1)),
            (&[1, 1, 0, 1], CursorDataError::Malformed),
            (&[1, 1, 1, 0], CursorDataError::Malformed),
            (&[1, 1, 0x81, 0, 1], CursorDataError::Malformed),
            (&[1, 1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2, 1], CursorDataError::Malformed),
            (&[1, 255, 255, 255, 255, 15], CursorDataError::Short),
        ];
        for (bytes, error) in cases {
            assert_eq!(decode_finished(bytes, Offset(0)), Err(error), "{bytes:?}");
        }
        let last = [1, 1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 1];
        assert_eq!(
            decode_finished(&last, Offset(0)),
            Err(CursorDataError::Malformed),
            "beyond the last offset"
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(floor in 0u64..1 << 50, pairs in proptest::collection::vec((1u64..1 << 40, 1u64..1 << 20), 0..50)) {
            let ranges = ranges(floor, &pairs);
            let bytes = encode_finished(&ranges, Offset(floor));
            prop_assert_eq!(decode_finished(&bytes, Offset(floor)), Ok(ranges.clone()));
            for cut in 1..bytes.len() {
                prop_assert!(decode_finished(&bytes[..cut], Offset(floor)).is_err());
            }
        }

        #[test]
        fn noise_is_refused_or_is_what_it_says(bytes in proptest::collection::vec(any::<u8>(), 0..40), version in any::<bool>()) {
            let mut bytes = bytes;
            if version && !bytes.is_empty() { bytes[0] = 1; }
            if let Ok(ranges) = decode_finished(&bytes, Offset(3)) && !ranges.is_empty() {
                prop_assert_eq!(encode_finished(&ranges, Offset(3)), bytes);
            }
        }
    }
}
