//! Times as users give them: `2027-01-31T12:00:00Z`, epoch milliseconds, `now`, or `2h30m ago`.

use promethean_model::{Millis, Moment};
use thiserror::Error;

/// A text that is no time.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{text}` is no time; write a date such as `2027-01-31T12:00:00Z`, milliseconds since 1970, `now`, or how long \
     ago, such as `5m ago` or `2h30m ago`"
)]
pub struct BadMoment {
    /// What was given.
    pub text: String,
}

/// The time that a text names, in epoch ms.
///
/// ```
/// use promethean_projections::moment::parse;
///
/// let now = 1_800_000_000_000;
/// assert_eq!(parse("5m ago", now), Ok(now - 300_000));
/// assert_eq!(parse("1969-12-31T23:59:59Z", now), Ok(-1_000));
/// assert!(parse("yesterday", now).is_err());
/// ```
pub fn parse(text: &str, now_ms: i64) -> Result<i64, BadMoment> {
    let asked = text.trim();
    let bad = || BadMoment { text: text.to_owned() };
    if asked.eq_ignore_ascii_case("now") {
        return Ok(now_ms);
    }
    if let Some(length) = asked.strip_suffix("ago") {
        let length = length.strip_suffix(|space: char| space.is_ascii_whitespace()).ok_or_else(bad)?;
        return elapsed(length.trim_end()).and_then(|ms| now_ms.checked_sub_unsigned(ms)).ok_or_else(bad);
    }
    let digits = asked.strip_prefix('-').unwrap_or(asked);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return asked.parse().map_err(|_| bad());
    }
    asked.parse::<Moment>().map(Moment::ms).map_err(|_| bad())
}

/// The sum of one length or several, each shorter in its unit than the one before: `1d12h`.
fn elapsed(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut sum = 0_u64;
    let mut unit_before = usize::MAX;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let letters = rest.bytes().skip(digits).take_while(u8::is_ascii_lowercase).count();
        let (part, after) = rest.split_at_checked(digits + letters)?;
        let unit = ["ms", "s", "m", "h", "d"].iter().position(|unit| part.get(digits..) == Some(unit))?;
        if unit >= unit_before {
            return None;
        }
        unit_before = unit;
        sum = sum.checked_add(part.parse::<Millis>().ok()?.get())?;
        rest = after;
    }
    (unit_before != usize::MAX).then_some(sum)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: i64 = 1_800_000_000_000;

    #[test]
    fn reads_every_form() {
        for (text, ms) in [
            ("now", NOW),
            (" NOW ", NOW),
            ("5m ago", NOW - 300_000),
            ("2h30m ago", NOW - 9_000_000),
            ("1d ago", NOW - 86_400_000),
            ("1d2h3m4s5ms  ago", NOW - 93_784_005),
            ("0s ago", NOW),
            ("0", 0),
            ("-5", -5),
            ("1700000000000", 1_700_000_000_000),
            ("2027-01-31T12:00:00+02:00", 1_801_389_600_000),
        ] {
            assert_eq!(parse(text, NOW), Ok(ms), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest_and_says_what_to_write() {
        for text in [
            "",
            "ago",
            "5 ago",
            "5mago",
            "m ago",
            "30m2h ago",
            "5m5m ago",
            "-5m ago",
            "5m",
            "yesterday",
            "1.5",
            "--5",
            "-",
            "99999999999999999999",
            "40000d ago",
            "2027-01-31",
            "2027-01-31T12:00:00",
            "5M ago",
        ] {
            assert_eq!(parse(text, NOW), Err(BadMoment { text: text.to_owned() }), "{text}");
        }
        let said = parse("5m", NOW).unwrap_err().to_string();
        assert!(said.starts_with("`5m` is no time; write a date such as"), "{said}");
        assert!(parse("1ms ago", i64::MIN).is_err());
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd(text in "\\PC{0,12}( ago)?", now in any::<i64>()) {
            let _ = parse(&text, now);
        }
    }
}
