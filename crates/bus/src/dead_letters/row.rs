//! The bytes of an open dead letter.

use std::sync::Arc;

use promethean_delivery::{Attempts, DeliveryFailure, FailureNote};
use promethean_model::EventId;

use super::letter::reason_word;
use crate::rows::{RowError, bad, failure};

const TABLE: &str = "DeadLetters";
/// The version of a row without a note.
const VERSION: u8 = 1;
/// The version of a row with a note, which releases before notes cannot read.
const NOTED: u8 = 2;
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
///
/// A row of version 2 goes on with the note of the last attempt:
/// +------------------+-----------+----------------+-----------+
/// | bytes of reason  | reason    | bytes of name  | name      |
/// | u16              | UTF-8     | u8, 0: no name | UTF-8     |
/// +------------------+-----------+----------------+-----------+
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetterRow {
    /// The id of the letter in the dead-letter topic, if there is one.
    pub letter: Option<EventId>,
    /// Why the last attempt failed.
    pub reason: DeliveryFailure,
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
    /// Why the last attempt failed, where that was said.
    pub note: Option<Arc<FailureNote>>,
}

impl LetterRow {
    /// The row of an event that is given up now, with the id of its letter if it has one.
    pub fn open(
        letter: Option<EventId>,
        attempts: &Attempts,
        redrives: u32,
        note: Option<Arc<FailureNote>>,
    ) -> Self {
        Self {
            letter,
            reason: attempts.last_failure,
            attempts: attempts.failed,
            first_ms: attempts.first_ms,
            last_ms: attempts.last_ms,
            redrives,
            redriving: false,
            note,
        }
    }

    /// Why the event was given up: what was said when its last attempt failed, or else the word for how it failed.
    pub fn reason_text(&self) -> &str {
        reason_of(self.reason, self.note.as_deref())
    }

    /// What was said when an earlier attempt failed, if nothing was said for the last one.
    pub fn last_error(&self) -> Option<&str> {
        last_error_of(self.reason, self.note.as_deref())
    }

    /// The row at the start of a redrive.
    #[must_use]
    pub fn redriven(mut self) -> Self {
        self.redrives = self.redrives.saturating_add(1);
        self.redriving = true;
        self
    }

    /// The row of an event that died although it is being redriven. The redrive came after the death, so it goes
    /// on.
    #[must_use]
    pub fn kept_redriving(mut self) -> Self {
        self.redriving = true;
        self
    }

    /// The row after a redrive that failed.
    #[must_use]
    pub fn reopened(mut self) -> Self {
        self.redriving = false;
        self
    }

    /// Encodes the row.
    pub fn encode(&self) -> Vec<u8> {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(self.redriving, REDRIVING) | flag(self.letter.is_some(), POSTED);
        let mut value = Vec::with_capacity(43);
        let version = if self.note.is_some() { NOTED } else { VERSION };
        value.extend_from_slice(&[version, flags, failure::number(self.reason)]);
        value.extend_from_slice(&self.attempts.to_le_bytes());
        value.extend_from_slice(&self.redrives.to_le_bytes());
        value.extend_from_slice(&self.first_ms.to_le_bytes());
        value.extend_from_slice(&self.last_ms.to_le_bytes());
        if let Some(id) = &self.letter {
            value.extend_from_slice(id.as_bytes());
        }
        if let Some(note) = &self.note {
            put_note(&mut value, note);
        }
        value
    }

    /// Decodes a row that `encode` wrote.
    pub fn decode(value: &[u8]) -> Result<Self, RowError> {
        let malformed = || bad(TABLE, "malformed value");
        let (version, rest) = value.split_first().ok_or_else(malformed)?;
        if ![VERSION, NOTED].contains(version) {
            return Err(bad(TABLE, format!("version {version}")));
        }
        let parsed = || {
            let ([flags, reason], rest) = rest.split_first_chunk()?;
            let (attempts, rest) = rest.split_first_chunk()?;
            let (redrives, rest) = rest.split_first_chunk()?;
            let (first, rest) = rest.split_first_chunk()?;
            let (last, rest) = rest.split_first_chunk()?;
            let (letter, rest) = match flags & POSTED != 0 {
                false => (None, rest),
                true => rest.split_first_chunk().map(|(id, rest)| (Some(EventId::from_bytes(*id)), rest))?,
            };
            let note = match (*version == NOTED, rest) {
                (false, []) => None,
                (false, _) => return None,
                (true, rest) => Some(Arc::new(read_note(rest)?)),
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
                note,
            })
        };
        parsed().ok_or_else(malformed)
    }
}

/// The bounds of a note fit its lengths: 1024 bytes fit `u16`, 255 fit `u8`.
fn put_note(value: &mut Vec<u8>, note: &FailureNote) {
    let (reason, by) = (note.reason(), note.by().unwrap_or_default());
    value.extend_from_slice(&u16::try_from(reason.len()).unwrap_or(u16::MAX).to_le_bytes());
    value.extend_from_slice(reason.as_bytes());
    value.push(u8::try_from(by.len()).unwrap_or(u8::MAX));
    value.extend_from_slice(by.as_bytes());
}

/// What was said when the last attempt failed, or else the word for how it failed. A lease that expires and a member
/// that is lost say nothing, so their note is of an earlier attempt.
pub(super) fn reason_of(failure: DeliveryFailure, note: Option<&FailureNote>) -> &str {
    note.filter(|_| says_reason(failure)).map_or(reason_word(failure), FailureNote::reason)
}

/// What was said when an earlier attempt failed, if nothing was said for the last one.
pub(super) fn last_error_of(failure: DeliveryFailure, note: Option<&FailureNote>) -> Option<&str> {
    note.filter(|_| !says_reason(failure)).map(FailureNote::reason)
}

const fn says_reason(failure: DeliveryFailure) -> bool {
    match failure {
        DeliveryFailure::Nack | DeliveryFailure::Projection => true,
        DeliveryFailure::Expired | DeliveryFailure::MemberLost => false,
    }
}

fn read_note(bytes: &[u8]) -> Option<FailureNote> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (reason, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
    let (len, by) = rest.split_first()?;
    let (reason, by) = (str::from_utf8(reason).ok()?, str::from_utf8(by).ok()?);
    let note = FailureNote::new(reason, Some(by).filter(|by| !by.is_empty()))?;
    let is_whole =
        by.len() == usize::from(*len) && note.reason() == reason && note.by().unwrap_or_default() == by;
    is_whole.then_some(note)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn note(reason: &str, by: Option<&str>) -> Option<Arc<FailureNote>> {
        FailureNote::new(reason, by).map(Arc::new)
    }

    #[test]
    fn round_trips() {
        let row = LetterRow {
            letter: Some(EventId::from_bytes([7; 16])),
            reason: DeliveryFailure::MemberLost,
            attempts: 5,
            first_ms: 10,
            last_ms: 20,
            redrives: 0,
            redriving: false,
            note: None,
        };
        let name = "b".repeat(255);
        let noted = |reason: &str, by| LetterRow { note: note(reason, by), ..row.clone() };
        let rows = [
            row.clone(),
            LetterRow { letter: None, ..row.clone() },
            row.clone().redriven(),
            row.clone().redriven().redriven(),
            noted("no stock", Some("worker-1")),
            noted("no \"stock\"\n", None).redriven(),
            LetterRow { letter: None, ..noted("\u{e4}".repeat(512).as_str(), Some(name.as_str())) },
        ];
        for row in rows {
            assert_eq!(LetterRow::decode(&row.encode()), Ok(row));
        }
        assert_eq!(
            (noted("x", None).reason_text(), noted("x", None).last_error()),
            ("member_lost", Some("x"))
        );
        let nacked = LetterRow { reason: DeliveryFailure::Nack, ..noted("x", None) };
        assert_eq!((nacked.reason_text(), nacked.last_error()), ("x", None));
        assert_eq!(row.reason_text(), "member_lost");
        assert_eq!(noted("ab", Some("c")).encode()[43..], [2, 0, b'a', b'b', 1, b'c']);
        let redriven = row.clone().redriven();
        assert_eq!((redriven.redrives, redriven.redriving), (1, true));
        assert_eq!(redriven.reopened(), LetterRow { redrives: 1, ..row.clone() });
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
            bytes[0] = 1 + bytes[3] % 2;
            bytes[1] %= 8;
            bytes[2] %= 5;
            if let Ok(row) = LetterRow::decode(&bytes) {
                prop_assert_eq!(row.encode(), bytes);
            }
        }
    }
}
