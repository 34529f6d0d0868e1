//! Converts errors of the store to errors of the bus. Both matches are exhaustive, so a new error of the
//! store must be mapped here.

use promethean_store::port::{CommitError, Damage, ReadError};

use super::BusError;

impl From<CommitError> for BusError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Conflict { topic, expected, actual } => Self::Conflict { topic, expected, actual },
            CommitError::KeyConflict { topic, expected, actual } => {
                Self::KeyConflict { topic, expected, actual }
            }
            CommitError::IdConflict { topic, id, offset } => Self::IdConflict { topic, id, offset },
            CommitError::Fenced { group, topic, .. } => Self::Fenced { group, topic },
            CommitError::BeyondEnd { group, topic, floor, end } => {
                Self::BeyondEnd { group, topic, floor, end }
            }
            CommitError::KeyRequired { topic } => Self::KeyRequired { topic },
            CommitError::TooLarge { what, size, max } => Self::TooLarge { what, size, max },
            CommitError::TooManyTopics { max } => Self::TooManyTopics { max },
            CommitError::TopicDeleted { topic } => Self::TopicDeleted { topic },
            CommitError::StorageFull { reason } => Self::StorageFull { reason },
            CommitError::Busy { what } => Self::Busy { what },
            CommitError::Poisoned { reason } => Self::Poisoned { reason },
            CommitError::UnknownOutcome { reason } => Self::UnknownOutcome { reason },
            CommitError::Storage { reason } => Self::StorageFailed { reason },
            CommitError::Closed => Self::Closed,
            CommitError::NotOffered { asked, offered } => Self::NotOffered { asked, offered },
            other @ (CommitError::UniqueViolation { .. }
            | CommitError::DocConflict { .. }
            | CommitError::UnknownCollection { .. }
            | CommitError::WrongKeeping { .. }
            | CommitError::BadIndex { .. }
            | CommitError::BadDocument { .. }
            | CommitError::AlreadySeen { .. }
            | CommitError::RowExists
            | CommitError::OutboxConflict { .. }
            | CommitError::UnknownOutboxRow { .. }
            | CommitError::DerivedWithEvents
            | CommitError::NotDerivable { .. }) => {
                Self::Store { code: other.code(), message: other.to_string() }
            }
        }
    }
}

impl From<ReadError> for BusError {
    fn from(error: ReadError) -> Self {
        match error {
            // The detail names files. It goes to the log, for the operator, and not to clients.
            ReadError::CorruptRange(Damage { topic, range, .. }) => Self::CorruptRange { topic, range },
            ReadError::Storage { reason } => Self::StorageFailed { reason },
            ReadError::Closed => Self::Closed,
            other @ (ReadError::UnknownCollection { .. }
            | ReadError::UnknownField { .. }
            | ReadError::WrongType { .. }) => Self::Store { code: other.code(), message: other.to_string() },
        }
    }
}

#[cfg(test)]
mod tests {
    use promethean_model::{EventId, LimitError, Limits, Offset, OffsetRange, TopicName};

    use super::*;
    use crate::error::RateOwner;

    fn topic() -> TopicName {
        "a.b".parse().unwrap()
    }

    fn commit_errors() -> Vec<CommitError> {
        let (group, id) = ("g".parse().unwrap(), EventId::from_bytes([0; 16]));
        vec![
            CommitError::Conflict { topic: topic(), expected: Offset(1), actual: Offset(2) },
            CommitError::KeyConflict { topic: topic(), expected: None, actual: Some(Offset(2)) },
            CommitError::IdConflict { topic: topic(), id, offset: Offset(4) },
            CommitError::Fenced { group, topic: topic(), expected: 1, actual: 2 },
            CommitError::BeyondEnd {
                group: "g".parse().unwrap(),
                topic: topic(),
                floor: Offset(9),
                end: Offset(3),
            },
            CommitError::DocConflict { collection: "c".parse().unwrap(), key: "k".into(), actual: 0 },
            CommitError::RowExists,
            CommitError::OutboxConflict { id },
            CommitError::KeyRequired { topic: topic() },
            CommitError::TooLarge { what: "a record", size: 2, max: 1 },
            CommitError::TooManyTopics { max: 5 },
            CommitError::TopicDeleted { topic: topic() },
            CommitError::NotOffered { asked: "w1", offered: "fsync, os" },
            CommitError::StorageFull { reason: "1 byte is free".into() },
            CommitError::Busy { what: "writing earlier events" },
            CommitError::Poisoned { reason: "x".into() },
            CommitError::UnknownOutcome { reason: "x".into() },
            CommitError::Storage { reason: "x".into() },
            CommitError::Closed,
        ]
    }

    #[test]
    fn codes_and_properties_of_store_errors_are_kept() {
        for error in commit_errors() {
            let (code, retryable) = (error.code(), error.is_retryable());
            let no_side_effects = error.has_no_side_effects();
            let fenced = matches!(error, CommitError::Fenced { .. });
            let bus = BusError::from(error);
            assert_eq!(bus.code(), code);
            // For the owner of a cursor, fencing is final; a caller of the bus may try again.
            assert_eq!(bus.is_retryable(), retryable || fenced, "{bus}");
            assert_eq!(bus.has_no_side_effects(), no_side_effects);
        }
    }

    #[test]
    fn damage_names_no_files() {
        let range = OffsetRange::new(Offset(3), Offset(7));
        let damage = Damage { topic: topic(), range, detail: "/var/lib/x".into() };
        let bus = BusError::from(ReadError::from(damage));
        assert_eq!(bus.code(), "corrupt_range");
        assert_eq!(
            bus.to_string(),
            "events 3..7 of topic `a.b` are damaged; restore from a backup, or read on from 7"
        );
    }

    #[test]
    fn names_and_limits_have_their_own_codes() {
        let name = |text: &str| BusError::from(TopicName::parse_user(text).unwrap_err()).code();
        assert_eq!(name("A"), "bad_name");
        assert_eq!(name("a.dlq"), "reserved_name");
        assert_eq!(name("_a"), "reserved_name");
        let over: LimitError = Limits::default().check_key(&"k".repeat(2000)).unwrap_err();
        assert_eq!(BusError::from(over).code(), "key_too_large");
        assert_eq!(
            BusError::from(Limits::default().check_batch(1001).unwrap_err()).code(),
            "batch_too_large"
        );
        assert_eq!(
            BusError::RateLimited { whose: RateOwner::Topic, retry_after_ms: 7 }.retry_after_ms(),
            Some(7)
        );
        assert_eq!(BusError::Closed.retry_after_ms(), None);
    }
}
