//! Moments as people write them: `2027-01-31T12:00:00Z` (RFC 3339, in the Gregorian calendar), epoch
//! milliseconds, `now`, or `2h30m ago`.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::duration::sum_ms;

const DAY_S: i64 = 86_400;

/// A moment, in milliseconds since 1970 began. Written as `2027-01-31T12:00:00Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(i64);

/// The error for a text that is not a moment in RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a moment needs date, time and offset, such as 2027-01-31T12:00:00Z")]
pub struct MomentError;

/// The error for a text that [`Moment::parse`] cannot read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{text}` is not a time; write a date such as `2027-01-31T12:00:00Z`, milliseconds since 1970, `now`, or how long \
     ago, such as `5m ago` or `2h30m ago`"
)]
pub struct MomentTextError {
    /// The text, as it was given.
    pub text: String,
}

impl Moment {
    /// The moment this many milliseconds after 1970 began.
    pub const fn from_ms(ms: i64) -> Self {
        Self(ms)
    }

    /// Milliseconds since 1970 began.
    pub const fn ms(self) -> i64 {
        self.0
    }

    /// Reads a moment in any form that users may give: a date, epoch milliseconds, `now`, or a length of time
    /// with `ago`.
    ///
    /// ```
    /// use promethean_model::Moment;
    ///
    /// let now_ms = 1_800_000_000_000;
    /// assert_eq!(Moment::parse("5m ago", now_ms), Ok(Moment::from_ms(now_ms - 300_000)));
    /// assert_eq!(Moment::parse("1969-12-31T23:59:59Z", now_ms), Ok(Moment::from_ms(-1_000)));
    /// assert!(Moment::parse("yesterday", now_ms).is_err());
    /// ```
    pub fn parse(text: &str, now_ms: i64) -> Result<Self, MomentTextError> {
        read_any(text.trim(), now_ms).ok_or_else(|| MomentTextError { text: text.to_owned() })
    }
}

fn read_any(text: &str, now_ms: i64) -> Option<Moment> {
    if text.eq_ignore_ascii_case("now") {
        return Some(Moment(now_ms));
    }
    if let Some(length) = text.strip_suffix("ago") {
        let length = length.strip_suffix(|space: char| space.is_ascii_whitespace())?;
        return sum_ms(length.trim_end()).and_then(|ms| now_ms.checked_sub_unsigned(ms)).map(Moment);
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok().map(Moment);
    }
    read_date(text)
}

/// Reads RFC 3339. Date, time and offset are needed: without one of them the text is another moment in other
/// places. Seconds may be left out; digits below a millisecond are cut off.
impl FromStr for Moment {
    type Err = MomentError;

    fn from_str(text: &str) -> Result<Self, MomentError> {
        read_date(text).ok_or(MomentError)
    }
}

fn read_date(text: &str) -> Option<Moment> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let (year, rest_of_date) = date.split_once('-')?;
    let (month, day) = rest_of_date.split_once('-')?;
    let (year, month, day) = (number(year, 4)?, number(month, 2)?, number(day, 2)?);
    let known = (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
    let zone_at = rest.find(['Z', 'z', '+', '-']).filter(|_| known)?;
    let (time, zone) = rest.split_at_checked(zone_at)?;
    let minutes = days_from_civil(year, month, day) * 24 * 60 - zone_minutes(zone)?;
    Some(Moment(minutes * 60_000 + time_ms(time)?))
}

/// Reads `HH:MM`, `HH:MM:SS` or `HH:MM:SS.fraction`. A leap second is read as the first second of the next
/// minute.
fn time_ms(time: &str) -> Option<i64> {
    let (hour, rest) = time.split_once(':')?;
    let (minute, seconds) = rest.split_once(':').unwrap_or((rest, "00"));
    let (second, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let (hour, minute, second) = (number(hour, 2)?, number(minute, 2)?, number(second, 2)?);
    let digits = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    if hour > 23 || minute > 59 || second > 60 || !digits {
        return None;
    }
    let ms = fraction.bytes().chain(*b"000").take(3).fold(0, |ms, digit| ms * 10 + i64::from(digit - b'0'));
    Some(((hour * 60 + minute) * 60 + second) * 1000 + ms)
}

/// The minutes that the zone is ahead of UTC.
fn zone_minutes(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, text) = match zone.strip_prefix('-') {
        Some(text) => (-1, text),
        None => (1, zone.strip_prefix('+')?),
    };
    let (hours, minutes) = text.split_once(':')?;
    let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 60 + minutes))
}

fn number(text: &str, digits: usize) -> Option<i64> {
    let fits = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    if fits { text.parse().ok() } else { None }
}

fn days_of(year: i64, month: i64) -> i64 {
    let (next_year, next) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    days_from_civil(next_year, next, 1) - days_from_civil(year, month, 1)
}

/// Days since 1970. Years are counted from March, so that a leap day is their last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day: the inverse of [`days_from_civil`].
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.div_euclid(1000);
        let (year, month, day) = civil_from_days(seconds.div_euclid(DAY_S));
        let (of_day, ms) = (seconds.rem_euclid(DAY_S), self.0.rem_euclid(1000));
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}",
            of_day / 3600,
            of_day / 60 % 60,
            of_day % 60
        )?;
        if ms > 0 {
            write!(f, ".{ms:03}")?;
        }
        f.write_str("Z")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: i64 = 1_800_000_000_000;

    #[test]
    fn reads_and_prints_dates() {
        for (text, ms, printed) in [
            ("1970-01-01T00:00:00Z", 0, "1970-01-01T00:00:00Z"),
            ("2000-02-29 23:59:59z", 951_868_799_000, "2000-02-29T23:59:59Z"),
            ("2027-01-31T12:00+02:00", 1_801_389_600_000, "2027-01-31T10:00:00Z"),
            ("2024-12-31t23:30:00-01:00", 1_735_691_400_000, "2025-01-01T00:30:00Z"),
            ("1969-12-31T23:59:59.5Z", -500, "1969-12-31T23:59:59.500Z"),
            ("1970-01-01T00:00:00.0019999Z", 1, "1970-01-01T00:00:00.001Z"),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000, "2017-01-01T00:00:00Z"),
            ("2100-03-01T00:00:00Z", 4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ] {
            let moment: Moment = text.parse().unwrap();
            assert_eq!((moment.ms(), moment.to_string().as_str()), (ms, printed), "{text}");
        }
    }

    #[test]
    fn every_day_of_eight_centuries_comes_back() {
        for day in days_from_civil(1600, 1, 1)..=days_from_civil(2400, 12, 31) {
            let (year, month, date) = civil_from_days(day);
            assert_eq!(days_from_civil(year, month, date), day);
            assert!((1..=12).contains(&month) && (1..=31).contains(&date));
        }
    }

    #[test]
    fn refuses_a_text_that_is_no_moment_or_another_one_elsewhere() {
        for text in [
            "",
            "2027-01-31",
            "2027-01-31T12:00:00",
            "12:00:00Z",
            "2027-02-29T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2027-13-01T00:00:00Z",
            "2027-00-01T00:00:00Z",
            "2027-01-00T00:00:00Z",
            "2027-01-31T24:00:00Z",
            "2027-01-31T23:60:00Z",
            "2027-01-31T23:00:61Z",
            "2027-01-31T23:00:00.Z",
            "2027-01-31T23:00:00+2:00",
            "2027-01-31T23:00:00+0200",
            "2027-01-31T23:00:00Zulu",
            "+027-01-31T23:00:00Z",
            "2027-01-31T23:00:00\u{0665}Z",
        ] {
            assert_eq!(text.parse::<Moment>(), Err(MomentError), "{text}");
        }
    }

    #[test]
    fn parse_reads_every_form() {
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
            assert_eq!(Moment::parse(text, NOW), Ok(Moment(ms)), "{text}");
        }
    }

    #[test]
    fn parse_refuses_the_rest_and_says_what_to_write() {
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
            assert_eq!(Moment::parse(text, NOW), Err(MomentTextError { text: text.to_owned() }), "{text}");
        }
        let said = Moment::parse("5m", NOW).unwrap_err().to_string();
        assert!(said.starts_with("`5m` is not a time; write a date such as"), "{said}");
        assert!(Moment::parse("1ms ago", i64::MIN).is_err());
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read(ms in -62_135_596_800_000_i64..253_402_300_800_000) {
            let moment = Moment::from_ms(ms);
            prop_assert_eq!(moment.to_string().parse(), Ok(moment));
        }

        #[test]
        fn no_date_panics(text in "[0-9TtZz:.+ -]{0,30}") {
            let _ = text.parse::<Moment>();
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,12}( ago)?", now in any::<i64>()) {
            let _ = Moment::parse(&text, now);
        }
    }
}
