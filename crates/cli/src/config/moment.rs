//! Dates.

use std::fmt;

use serde::{Deserialize, Deserializer, de};
use toml::value::Datetime;

/// A moment, in milliseconds since 1970. Written as `2027-01-31T12:00:00Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment(promethean_model::Moment);

impl Moment {
    pub(crate) const fn from_ms(ms: i64) -> Self {
        Self(promethean_model::Moment::from_ms(ms))
    }

    pub(crate) const fn ms(self) -> i64 {
        self.0.ms()
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let datetime = Datetime::deserialize(deserializer)?;
        datetime.to_string().parse().map(Self).map_err(de::Error::custom)
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
    fn refuses_what_is_another_moment_elsewhere() {
        for text in ["2027-01-31", "2027-01-31T12:00:00", "12:00:00", "\"2027-01-31T12:00:00Z\"", "5"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
