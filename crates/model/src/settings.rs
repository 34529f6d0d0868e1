//! The settings of a topic.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::durability::Durability;
use crate::limits::{ATTEMPTS_DEFAULT, ATTEMPTS_MAX, PARTITIONS_MAX};
use crate::time::Millis;

/// The settings of a topic. In input everything is optional and unknown names are refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TopicSettings {
    /// Which old events are removed. Default: none.
    #[serde(skip_serializing_if = "Retention::is_unlimited")]
    pub retention: Retention,
    /// Whether only the latest event of each key is kept, tombstones for 24 h; every publish then needs a
    /// key. Default: false.
    pub compacted: bool,
    /// The number of partition labels of the topic's events. Default: none, events get no label. Minimum: 1.
    /// Maximum: 4,096.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u32>,
    /// How long a repeated id is recognised. Default: 24 h. Minimum: 1 s.
    pub dedupe_window: Millis,
    /// What an acknowledgement promises. Default: the server's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// Whether payloads are checked against the topic's schema, and whether it must have one. Default:
    /// `optional`.
    pub schema: SchemaRule,
    /// What a new version of the schema may change. Default: `backward`.
    pub compat: Compat,
    /// What the check of a new version assumes about properties that a schema does not name. Default: `any`.
    pub undeclared: Undeclared,
    /// Deliveries to a group that sets no number of its own before an event becomes a dead letter. Default:
    /// 5. Minimum: 1. Maximum: 1,000.
    pub max_attempts: u32,
}

/// Limits on the events that a topic keeps. Each limit that is set applies by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    /// Remove events appended longer ago than this; `ts` does not count. Default: keep. Minimum: 1 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age: Option<Millis>,
    /// Remove the oldest events beyond this many bytes. Default: keep. Minimum: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Remove the oldest events beyond this many. Default: keep. Minimum: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

/// Whether payloads are checked against a schema.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SchemaRule {
    /// Payloads must fit the schema; while there is none, every payload is accepted.
    #[default]
    Optional,
    /// Payloads must fit the schema; while there is none, every publish is refused.
    Required,
    /// Nothing is checked and no version is recorded, even if the topic has schemas.
    Off,
}

/// What a comparison of two schema versions assumes about properties that a schema neither names nor forbids.
/// The check of payloads does not depend on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Undeclared {
    /// Such properties may have any value, so giving one a type is a change.
    #[default]
    Any,
    /// Publishers do not send such properties, so adding an optional one with a type is no change. Objects
    /// that name no property at all, and objects with `additionalProperties`, are read as they are written.
    Absent,
}

/// What a new version of a schema may change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compat {
    /// Anything.
    None,
    /// The new version accepts what the previous one accepted.
    #[default]
    Backward,
    /// The previous version accepts what the new one accepts.
    Forward,
    /// Both `Backward` and `Forward`.
    Full,
    /// As `Backward`, against every earlier version.
    BackwardTransitive,
    /// As `Forward`, against every earlier version.
    ForwardTransitive,
    /// As `Full`, against every earlier version.
    FullTransitive,
}

/// The error for settings that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SettingsError {
    /// A retention that would keep nothing.
    #[error(
        "`retention.{field}` is 0, which would keep nothing; give at least 1, or leave it out to keep everything"
    )]
    RetentionZero {
        /// The limit that is 0.
        field: &'static str,
    },
    /// Too few or too many partitions.
    #[error(
        "`partitions` is {given}; give a number from 1 to {PARTITIONS_MAX}, or leave it out for no labels"
    )]
    Partitions {
        /// What was given.
        given: u32,
    },
    /// A dedupe window that a retry can miss.
    #[error("`dedupe_window` is {given}; give at least {}", TopicSettings::DEDUPE_WINDOW_MIN)]
    DedupeWindow {
        /// What was given.
        given: Millis,
    },
    /// Too few or too many attempts.
    #[error("`max_attempts` is {given}; give a number from 1 to {ATTEMPTS_MAX}")]
    MaxAttempts {
        /// What was given.
        given: u32,
    },
}

impl TopicSettings {
    /// The dedupe window of a topic that sets none.
    pub const DEDUPE_WINDOW_DEFAULT: Millis = Millis::from_hours(24);
    /// The shortest dedupe window: it is long enough for a publisher's first retry.
    pub const DEDUPE_WINDOW_MIN: Millis = Millis::from_secs(1);

    /// Refuses settings that cannot work. The store checks whether it offers `durability`.
    pub fn validate(&self) -> Result<(), SettingsError> {
        self.retention.validate()?;
        if let Some(given) = self.partitions.filter(|n| !(1..=PARTITIONS_MAX).contains(n)) {
            return Err(SettingsError::Partitions { given });
        }
        if self.dedupe_window < Self::DEDUPE_WINDOW_MIN {
            return Err(SettingsError::DedupeWindow { given: self.dedupe_window });
        }
        if !(1..=ATTEMPTS_MAX).contains(&self.max_attempts) {
            return Err(SettingsError::MaxAttempts { given: self.max_attempts });
        }
        Ok(())
    }
}

impl Default for TopicSettings {
    fn default() -> Self {
        Self {
            retention: Retention::default(),
            compacted: false,
            partitions: None,
            dedupe_window: Self::DEDUPE_WINDOW_DEFAULT,
            durability: None,
            schema: SchemaRule::default(),
            compat: Compat::default(),
            undeclared: Undeclared::default(),
            max_attempts: ATTEMPTS_DEFAULT,
        }
    }
}

impl Retention {
    /// Whether no event is ever removed.
    pub const fn is_unlimited(&self) -> bool {
        self.age.is_none() && self.bytes.is_none() && self.count.is_none()
    }

    fn validate(&self) -> Result<(), SettingsError> {
        let limits = [("age", self.age.map(Millis::get)), ("bytes", self.bytes), ("count", self.count)];
        match limits.into_iter().find(|(_, limit)| *limit == Some(0)) {
            Some((field, _)) => Err(SettingsError::RetentionZero { field }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> TopicSettings {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn nothing_given_is_the_default() {
        let settings = read("{}");
        assert_eq!(settings, TopicSettings::default());
        assert_eq!(settings.validate(), Ok(()));
        assert_eq!(
            serde_json::to_string(&settings).unwrap(),
            r#"{"compacted":false,"dedupe_window":"1d","schema":"optional","compat":"backward","undeclared":"any","max_attempts":5}"#
        );
    }

    #[test]
    fn everything_given_round_trips() {
        let json = r#"{"retention":{"age":"7d","bytes":1000000,"count":5},"compacted":true,"partitions":8,"dedupe_window":"90s","durability":"os","schema":"required","compat":"full_transitive","undeclared":"absent","max_attempts":3}"#;
        let settings = read(json);
        assert_eq!(settings.validate(), Ok(()));
        assert_eq!(serde_json::to_string(&settings).unwrap(), json);
        assert_eq!(read(r#"{"schema":"off"}"#).schema, SchemaRule::Off);
    }

    #[test]
    fn refuses_unknown_names_and_values() {
        for json in [
            r#"{"partition":1}"#,
            r#"{"retention":{"days":1}}"#,
            r#"{"schema":"x"}"#,
            r#"{"undeclared":"x"}"#,
            r#"{"partitions":-1}"#,
        ] {
            assert!(serde_json::from_str::<TopicSettings>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn refuses_what_cannot_work_and_says_what_would() {
        let check = |json: &str, message: &str| {
            assert_eq!(read(json).validate().unwrap_err().to_string(), message);
        };
        let zero = |field: &str| {
            format!(
                "`retention.{field}` is 0, which would keep nothing; give at least 1, or leave it out to keep everything"
            )
        };
        check(r#"{"retention":{"age":"0s"}}"#, &zero("age"));
        check(r#"{"retention":{"bytes":0}}"#, &zero("bytes"));
        check(r#"{"retention":{"count":0}}"#, &zero("count"));
        let partitions = "give a number from 1 to 4096, or leave it out for no labels";
        check(r#"{"partitions":0}"#, &format!("`partitions` is 0; {partitions}"));
        check(r#"{"partitions":4097}"#, &format!("`partitions` is 4097; {partitions}"));
        check(r#"{"dedupe_window":"999ms"}"#, "`dedupe_window` is 999ms; give at least 1s");
        check(r#"{"max_attempts":0}"#, "`max_attempts` is 0; give a number from 1 to 1000");
    }
}
