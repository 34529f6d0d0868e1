//! Lengths of time as text: `24h`, `50ms`, `7d`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// A whole number of milliseconds, at most 100 years, so that adding it to any present time cannot overflow.
///
/// Written as a number and a unit (`ms`, `s`, `m`, `h`, `d`), in the greatest unit that divides it. Read in
/// that form, or as a bare number of milliseconds where the format has numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(u64);

/// The error for a text that is not a length of time.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MillisError {
    /// No number, no unit, or neither.
    #[error("not a length of time; write a whole number and `ms`, `s`, `m`, `h` or `d`, such as `24h`")]
    Form,
    /// More than 100 years.
    #[error("longer than 100 years; write at most `36500d`")]
    TooLong,
}

/// Units with their milliseconds, greatest first: a duration is printed in the first unit that divides it.
const UNITS: [(&str, u64); 5] =
    [("d", 24 * 60 * 60 * 1000), ("h", 60 * 60 * 1000), ("m", 60 * 1000), ("s", 1000), ("ms", 1)];

impl Millis {
    /// 100 years of 365 days.
    pub const MAX: Self = Self(36_500 * 24 * 60 * 60 * 1000);

    /// Makes a length of this many milliseconds, at most `MAX`.
    pub const fn new(ms: u64) -> Self {
        if ms > Self::MAX.0 { Self::MAX } else { Self(ms) }
    }

    /// Makes a length of this many seconds, at most `MAX`.
    pub const fn from_secs(secs: u64) -> Self {
        Self::new(secs.saturating_mul(1000))
    }

    /// Makes a length of this many hours, at most `MAX`.
    pub const fn from_hours(hours: u64) -> Self {
        Self::from_secs(hours.saturating_mul(3600))
    }

    /// The number of milliseconds.
    pub const fn get(self) -> u64 {
        self.0
    }

    fn checked(ms: u64) -> Result<Self, MillisError> {
        if ms > Self::MAX.0 { Err(MillisError::TooLong) } else { Ok(Self(ms)) }
    }
}

/// Adds up lengths of decreasing units, such as `1d12h`. `None` if there is none, or a unit does not
/// decrease.
pub(super) fn sum_ms(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut sum_ms = 0_u64;
    let mut units = UNITS.iter();
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let letters = rest.bytes().skip(digits).take_while(u8::is_ascii_lowercase).count();
        let (part, after) = rest.split_at_checked(digits + letters)?;
        // The units before this one are used up: none of them may follow it.
        units.find(|(name, _)| part.get(digits..) == Some(name))?;
        sum_ms = sum_ms.checked_add(part.parse::<Millis>().ok()?.get())?;
        rest = after;
    }
    (!text.is_empty()).then_some(sum_ms)
}

impl From<Millis> for Duration {
    fn from(millis: Millis) -> Self {
        Self::from_millis(millis.0)
    }
}

impl FromStr for Millis {
    type Err = MillisError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_lowercase());
        let unit = text.strip_prefix(digits).unwrap_or_default();
        let (_, unit_ms) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(MillisError::Form)?;
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(MillisError::Form);
        }
        // The text is all digits, so that parsing can fail by overflow only.
        let count: u64 = digits.parse().map_err(|_| MillisError::TooLong)?;
        Self::checked(count.checked_mul(*unit_ms).ok_or(MillisError::TooLong)?)
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let divides = |(_, unit_ms): &&(&str, u64)| self.0 > 0 && self.0.is_multiple_of(*unit_ms);
        let (name, unit_ms) = UNITS.iter().find(divides).unwrap_or(&("ms", 1));
        f.pad(&format!("{}{name}", self.0 / unit_ms))
    }
}

impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MillisVisitor)
    }
}

struct MillisVisitor;

impl Visitor<'_> for MillisVisitor {
    type Value = Millis;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a length of time such as \"24h\", or a number of milliseconds")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Millis, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, ms: u64) -> Result<Millis, E> {
        Millis::checked(ms).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, ms: i64) -> Result<Millis, E> {
        u64::try_from(ms)
            .map_err(|_| E::invalid_value(de::Unexpected::Signed(ms), &self))
            .and_then(|ms| self.visit_u64(ms))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_and_prints() {
        let check = |text: &str, ms: u64, printed: &str| {
            let millis: Millis = text.parse().unwrap();
            assert_eq!((millis.get(), millis.to_string().as_str()), (ms, printed), "{text}");
        };
        check("50ms", 50, "50ms");
        check("24h", 86_400_000, "1d");
        check("7d", 604_800_000, "7d");
        check("90m", 5_400_000, "90m");
        check("0s", 0, "0ms");
        check("007s", 7000, "7s");
        check("36500d", Millis::MAX.get(), "36500d");
    }

    #[test]
    fn refuses() {
        let too_long = ["36501d", "18446744073709551615d", "99999999999999999999ms"];
        for text in too_long {
            assert_eq!(text.parse::<Millis>(), Err(MillisError::TooLong), "{text}");
        }
        for text in ["", "5", "h", "-5s", "+5s", "1.5h", " 5s", "5 s", "5S", "5w", "1h30m", "\u{0665}s"] {
            assert_eq!(text.parse::<Millis>(), Err(MillisError::Form), "{text}");
        }
    }

    #[test]
    fn reads_text_and_numbers() {
        let read = |json: &str| serde_json::from_str::<Millis>(json);
        assert_eq!(read("\"24h\"").unwrap(), Millis::from_hours(24));
        assert_eq!(read("1500").unwrap(), Millis::new(1500));
        assert!(read("-1").is_err() && read("1.5").is_err() && read("null").is_err());
        assert_eq!(serde_json::to_string(&Millis::new(1500)).unwrap(), "\"1500ms\"");
    }

    proptest! {
        #[test]
        fn round_trips(ms in 0..=Millis::MAX.get()) {
            let millis = Millis::new(ms);
            prop_assert_eq!(millis.to_string().parse(), Ok(millis));
        }
    }
}
