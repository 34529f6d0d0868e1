//! The row of an event that is not finished and has failed attempts.

use promethean_delivery::Attempts;
use promethean_model::Offset;

use super::{RowError, bad, failure};

const TABLE: &str = "Attempts";
const VERSION: u8 = 1;

/// Encodes the value of a row; the offset is in its key. All numbers are little-endian.
///
/// ```text
/// 0         1         2        6           14         22        30
/// +---------+---------+--------+-----------+----------+---------+
/// | version | failure | failed | first_ms  | last_ms  | due_ms  |
/// |   1     | u8      | u32    | i64       | i64      | i64     |
/// +---------+---------+--------+-----------+----------+---------+
/// failure: 1 nack, 2 expired, 3 member lost
/// ```
pub fn encode_attempts(attempts: &Attempts) -> Vec<u8> {
    let mut value = Vec::with_capacity(30);
    value.extend_from_slice(&[VERSION, failure::number(attempts.last_failure)]);
    value.extend_from_slice(&attempts.failed.to_le_bytes());
    for ms in [attempts.first_ms, attempts.last_ms, attempts.due_ms] {
        value.extend_from_slice(&ms.to_le_bytes());
    }
    value
}

/// Decodes a value that `encode_attempts` wrote.
pub fn decode_attempts(offset: Offset, value: &[u8]) -> Result<Attempts, RowError> {
    let malformed = || bad(TABLE, "malformed value");
    let (version, rest) = value.split_first().ok_or_else(malformed)?;
    if *version != VERSION {
        return Err(bad(TABLE, format!("version {version}")));
    }
    let parsed = || {
        let (number, rest) = rest.split_first()?;
        let (failed, rest) = rest.split_first_chunk()?;
        let (first, rest) = rest.split_first_chunk()?;
        let (last, rest) = rest.split_first_chunk()?;
        let due: &[u8; 8] = rest.try_into().ok()?;
        Some(Attempts {
            offset,
            failed: u32::from_le_bytes(*failed),
            last_failure: failure::of_number(*number)?,
            first_ms: i64::from_le_bytes(*first),
            last_ms: i64::from_le_bytes(*last),
            due_ms: i64::from_le_bytes(*due),
        })
    };
    parsed().ok_or_else(malformed)
}

#[cfg(test)]
mod tests {
    use promethean_delivery::DeliveryFailure;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_bytes_never_change() {
        let attempts = Attempts {
            offset: Offset(9),
            failed: 3,
            last_failure: DeliveryFailure::Expired,
            first_ms: 1,
            last_ms: -1,
            due_ms: 258,
        };
        let value = encode_attempts(&attempts);
        assert_eq!(
            value,
            [
                1, 2, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 2, 1, 0, 0,
                0, 0, 0, 0
            ]
        );
        assert_eq!(decode_attempts(Offset(9), &value), Ok(attempts));
    }

    #[test]
    fn another_version_is_named() {
        let error = decode_attempts(Offset(0), &[2, 1]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a row of table `Attempts` cannot be read (version 2); use the release that wrote it"
        );
    }

    proptest! {
        #[test]
        fn garbage_is_refused_or_is_a_value(mut bytes in proptest::collection::vec(any::<u8>(), 0..40), ours in any::<bool>()) {
            if ours {
                bytes.resize(30, 0);
                bytes[0] = 1;
                bytes[1] %= 4;
            }
            if let Ok(attempts) = decode_attempts(Offset(1), &bytes) {
                prop_assert_eq!(encode_attempts(&attempts), bytes);
            }
        }
    }
}
