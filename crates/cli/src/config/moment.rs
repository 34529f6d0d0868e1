//! Dates, in the Gregorian calendar and UTC.

use std::fmt;

use serde::{Deserialize, Deserializer, de};
use toml::value::{Datetime, Offset};

const DAY_S: i64 = 86_400;

/// A moment, in milliseconds since 1970. Written as `2027-01-31T12:00:00Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment(i64);

impl Moment {
    pub(crate) const fn from_ms(ms: i64) -> Self {
        Self(ms)
    }

    pub(crate) const fn ms(self) -> i64 {
        self.0
    }

    /// Needs date, time and offset: without one of them it is a different moment in different places.
    fn of(datetime: &Datetime) -> Option<Self> {
        let (date, time, offset) = (datetime.date?, datetime.time?, datetime.offset?);
        let offset_min = match offset {
            Offset::Z => 0,
            Offset::Custom { minutes } => i64::from(minutes),
        };
        let days = days_from_civil(i64::from(date.year), i64::from(date.month), i64::from(date.day));
        let minutes = i64::from(time.hour) * 60 + i64::from(time.minute) - offset_min;
        let seconds = days * DAY_S + minutes * 60 + time.second.map_or(0, i64::from);
        Some(Self(seconds * 1000 + time.nanosecond.map_or(0, i64::from) / 1_000_000))
    }
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

/// The other way: year, month, day.
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

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let datetime = Datetime::deserialize(deserializer)?;
        let message = "a moment needs date, time and offset, such as 2027-01-31T12:00:00Z";
        Self::of(&datetime).ok_or_else(|| de::Error::custom(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Moment, toml::de::Error> {
        #[derive(Deserialize)]
        struct Table {
            t: Moment,
        }
        toml::from_str::<Table>(&format!("t = {text}")).map(|table| table.t)
    }

    #[test]
    fn reads_and_prints_dates() {
        for (text, ms, printed) in [
            ("1970-01-01T00:00:00Z", 0, "1970-01-01T00:00:00Z"),
            ("2000-02-29T23:59:59Z", 951_868_799_000, "2000-02-29T23:59:59Z"),
            ("2027-01-31T12:00:00+02:00", 1_801_389_600_000, "2027-01-31T10:00:00Z"),
            ("2024-12-31T23:30:00-01:00", 1_735_691_400_000, "2025-01-01T00:30:00Z"),
            ("1969-12-31T23:59:59.5Z", -500, "1969-12-31T23:59:59.500Z"),
            ("2100-03-01T00:00:00Z", 4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ] {
            let moment = read(text).unwrap();
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
    fn refuses_what_is_another_moment_elsewhere() {
        for text in ["2027-01-31", "2027-01-31T12:00:00", "12:00:00", "\"2027-01-31T12:00:00Z\"", "5"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
