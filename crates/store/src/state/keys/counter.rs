//! Counters of the store itself.
//!
//! ```text
//! key    00 | name byte
//! value  u64
//! ```

use super::super::codec::{Malformed, RowReader};
use super::tagged;

pub(super) const TAG: u8 = 0x00;

/// The counters. Their bytes are persisted: never change or reuse one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum StateCounter {
    /// The version of the catalogue of keys.
    Format = 1,
    /// The LSN of the last redo applied.
    AppliedLsn = 2,
    /// The next collection's number.
    NextCollection = 3,
    /// The next outbox row's sequence number.
    NextOutbox = 4,
    /// The number of the last sync of the engine.
    SyncMark = 5,
}

pub(crate) fn key(counter: StateCounter) -> Vec<u8> {
    tagged(TAG, &[&[counter as u8]])
}

pub(crate) fn value(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

pub(crate) fn decode(value: &[u8]) -> Result<u64, Malformed> {
    let mut reader = RowReader::new(value, "counter");
    let number = reader.u64()?;
    reader.end()?;
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_fixed() {
        assert_eq!(key(StateCounter::NextOutbox), [0, 4]);
        assert_eq!(decode(&value(7)), Ok(7));
        assert!(decode(&[1, 2]).is_err());
    }
}
