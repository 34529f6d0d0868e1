//! The bytes of an open dead letter.

use promethean_delivery::{Attempts, Failure};
use promethean_model::EventId;

use crate::rows::{RowError, bad, failure};

const TABLE: &str = "DeadLetters";
const VERSION: u8 = 1;
const REDRIVING: u8 = 1;
const POSTED: u8 = 2;

/// The value of a row; group, topic and offset of the event are in its key. All numbers are little-endian.
///
/// ```text
/// 0         1       2         3          7          11         19        27
/// +---------+-------+---------+----------+----------+----------+---------+-----------------+
/// | version | flags | failure | attempts | redrives | first_ms | last_ms | letter's id     |
/// |   1     | u8    | u8      | u32      | u32      | i64      | i64     | 16, if flag 2   |
/// +---------+-------+---------+----------+----------+----------+---------+-----------------+
/// flag 1  being delivered again: to be taken up after a restart
/// flag 2  there is a letter in `<topic>.dlq`, with this id
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LetterRow {
    /// The id of the letter in the dead-letter topic, if there is one.
    pub letter: Option<EventId>,
    /// Why the last attempt failed.
    pub reason: Failure,
    /// How many attempts failed.
    pub attempts: u32,
    /// When the first attempt failed, epoch ms.
    pub first_ms: i64,
    /// When the last attempt failed, epoch ms.
    pub last_ms: i64,
    /// How often the event was redriven to the group.
    pub redrives: u32,
    /// Whether the event is being redriven to the group now.
    pub redriving: bool,
}

impl LetterRow {
    /// The row of an event that is given up now, with the id of its letter if it has one.
    pub const fn open(letter: Option<EventId>, attempts: &Attempts, redrives: u32) -> Self {
        Self {
            letter,
            reason: attempts.last_failure,
            attempts: attempts.failed,
            first_ms: attempts.first_ms,
            last_ms: attempts.last_ms,
            redrives,
            redriving: false,
        }
    }

    /// The row at the start of a redrive.
    #[must_use]
    pub const fn redriven(mut self) -> Self {
        self.redrives = self.redrives.saturating_add(1);
        self.redriving = true;
        self
    }

    /// The row of an event that died although it is being redriven. The redrive came after the death, so it goes
    /// on.
    #[must_use]
    pub const fn kept_redriving(mut self) -> Self {
        self.redriving = true;
        self
    }

    /// The row after a redrive that failed.
    #[must_use]
    pub const fn reopened(mut self) -> Self {
        self.redriving = false;
        self
    }

    /// Encodes the row.
    pub fn encode(&self) -> Vec<u8> {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(self.redriving, REDRIVING) | flag(self.letter.is_some(), POSTED);
        let mut value = Vec::with_capacity(43);
        value.extend_from_slice(&[VERSION, flags, failure::number(self.reason)]);
        value.extend_from_slice(&self.attempts.to_le_bytes());
        value.extend_from_slice(&self.redrives.to_le_bytes());
        value.extend_from_slice(&self.first_ms.to_le_bytes());
        value.extend_from_slice(&self.last_ms.to_le_bytes());
        if let Some(id) = &self.letter {
            value.extend_from_slice(id.as_bytes());
        }
        value
    }

    /// Decodes a row that `encode` wrote.
    pub fn decode(value: &[u8]) -> Result<Self, RowError> {
        let malformed = || bad(TABLE, "malformed value");
        let (version, rest) = value.split_first().ok_or_else(malformed)?;
        if *version != VERSION {
            return Err(bad(TABLE, format!("version {version}")));
        }
        let parsed = || {
            let ([flags, reason], rest) = rest.split_first_chunk()?;
            let (attempts, rest) = rest.split_first_chunk()?;
            let (redrives, rest) = rest.split_first_chunk()?;
            let (first, rest) = rest.split_first_chunk()?;
            let (last, rest) = rest.split_first_chunk()?;
            let letter = match (flags & POSTED != 0, rest) {
                (false, []) => None,
                (false, _) => return None,
                (true, id) => Some(EventId::from_bytes(id.try_into().ok()?)),
            };
            (flags & !(REDRIVING | POSTED) == 0).then_some(())?;
            Some(Self {
                letter,
                reason: failure::of_number(*reason)?,
                attempts: u32::from_le_bytes(*attempts),
                first_ms: i64::from_le_bytes(*first),
                last_ms: i64::from_le_bytes(*last),
                redrives: u32::from_le_bytes(*redrives),
                redriving: flags & REDRIVING != 0,
            })
        };
        parsed().ok_or_else(malformed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn round_trips() {
        let row = LetterRow {
            letter: Some(EventId::from_bytes([7; 16])),
            reason: Failure::MemberLost,
            attempts: 5,
            first_ms: 10,
            last_ms: 20,
            redrives: 0,
            redriving: false,
        };
        for row in [row, LetterRow { letter: None, ..row }, row.redriven(), row.redriven().redriven()] {
            assert_eq!(LetterRow::decode(&row.encode()), Ok(row));
        }
        assert_eq!((row.redriven().redrives, row.redriven().redriving), (1, true));
        assert_eq!(row.redriven().reopened(), LetterRow { redrives: 1, ..row });
        assert_eq!(row.encode()[..8], [1, 2, 3, 5, 0, 0, 0, 0]);
        assert_eq!(row.encode().len(), 43);
    }

    proptest! {
        #[test]
        fn garbage_is_refused_or_is_a_value(mut bytes in proptest::collection::vec(any::<u8>(), 0..50), len in 20_usize..50) {
            if let Ok(row) = LetterRow::decode(&bytes) {
                prop_assert_eq!(row.encode(), bytes.clone());
            }
            bytes.resize(len, 3);
            bytes[0] = 1;
            bytes[1] %= 8;
            bytes[2] %= 5;
            if let Ok(row) = LetterRow::decode(&bytes) {
                prop_assert_eq!(row.encode(), bytes);
            }
        }
    }
}
