//! Error codes, and properties of errors that programs need.

use promethean_model::limits::Limited;

use super::BusError;

impl BusError {
    /// The stable error code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Name(error) => error.code(),
            Self::Delivery(error) => error.code(),
            Self::Limit(error) => limit_code(error.what),
            Self::Settings(_) => "bad_settings",
            Self::InvalidJson(_) => "invalid_json",
            Self::ControlCharacter { .. } => "control_character",
            Self::BadPartition { .. } => "bad_partition",
            Self::KeyRequired { .. } | Self::ExpectationWithoutKey => "key_required",
            Self::IdConflict { .. } => "id_conflict",
            Self::Conflict { .. } | Self::KeyConflict { .. } | Self::GroupConflict { .. } => "conflict",
            Self::BadOption { .. } => "bad_option",
            Self::RateLimited { .. } | Self::OverBurst { .. } => "rate_limited",
            Self::UnknownTopic { .. } | Self::AutoCreateOff { .. } => "unknown_topic",
            Self::UnknownGroup { .. } => "unknown_group",
            Self::UnknownEvent { .. } => "unknown_event",
            Self::UnknownLetter { .. } => "unknown_letter",
            Self::BadSeek { .. } => "bad_seek",
            Self::BeyondEnd { .. } => "beyond_end",
            Self::GroupBusy { .. } => "group_busy",
            Self::ProjectorGroup { .. } => "projector_group",
            Self::TooManyTopics { .. } => "too_many_topics",
            Self::TopicDeleted { .. } => "topic_deleted",
            Self::TooLarge { .. } => "too_large",
            Self::NotOffered { .. } => "not_offered",
            Self::Backup(error) => error.code(),
            Self::Fenced { .. } => "fenced",
            Self::MemberFenced { .. } => "member_fenced",
            Self::CorruptRange { .. } => "corrupt_range",
            Self::StorageFull { .. } => "storage_full",
            Self::StorageFailed { .. } => "storage_failed",
            Self::Poisoned { .. } => "poisoned",
            Self::UnknownOutcome { .. } => "unknown_outcome",
            Self::BadSchema(_) => "bad_schema",
            Self::SchemaRejected(_) => "schema_rejected",
            Self::SchemaTooCostly { .. } => "schema_too_costly",
            Self::SchemaIncompatible(_) => "schema_incompatible",
            Self::UnknownSchema { .. } => "unknown_schema",
            Self::SchemaRequired { .. } => "schema_required",
            Self::SchemaInUse { .. } => "schema_in_use",
            Self::VersionTaken { .. } => "version_taken",
            Self::TooManySchemas { .. } => "too_many_schemas",
            Self::DowncastFailed { .. } => "downcast_failed",
            Self::Busy { .. } => "busy",
            Self::Closed => "closed",
            Self::Store { code, .. } => code,
        }
    }

    /// Adds the index of the event in its batch, if the error has a field for it.
    pub(crate) fn in_batch(mut self, index: usize) -> Self {
        if let Self::SchemaRejected(rejected) = &mut self {
            rejected.index = Some(index);
        }
        self
    }

    /// Whether it is certain that nothing was or will be written.
    pub const fn has_no_side_effects(&self) -> bool {
        !matches!(self, Self::UnknownOutcome { .. })
    }

    /// Whether the same request may succeed later without being changed.
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::RateLimited { .. }
                | Self::TopicDeleted { .. }
                | Self::Fenced { .. }
                | Self::StorageFull { .. }
                | Self::Poisoned { .. }
                | Self::UnknownOutcome { .. }
                | Self::Busy { .. }
                | Self::Closed
        )
    }

    /// Whether an owner that gets this error from the store must end.
    pub(crate) const fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Fenced { .. }
                | Self::Closed
                | Self::Poisoned { .. }
                | Self::UnknownOutcome { .. }
                | Self::TopicDeleted { .. }
        )
    }

    /// After how many milliseconds to try again, if that is known.
    pub const fn retry_after_ms(&self) -> Option<u64> {
        match self {
            Self::RateLimited { retry_after_ms, .. } => Some(*retry_after_ms),
            Self::Busy { .. } => Some(1_000),
            _ => None,
        }
    }
}

const fn limit_code(what: Limited) -> &'static str {
    match what {
        Limited::PayloadBytes => "payload_too_large",
        Limited::Headers | Limited::HeaderBytes => "headers_too_large",
        Limited::KeyBytes => "key_too_large",
        Limited::Tags | Limited::TagBytes => "tags_too_large",
        Limited::CausedBy => "caused_by_too_large",
        Limited::SidBytes => "sid_too_large",
        Limited::BatchEvents => "batch_too_large",
        Limited::MessageBytes => "too_large",
        Limited::Topics => "too_many_topics",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_refused_as_busy_may_be_tried_again() {
        let busy = BusError::Busy { what: "programs" };
        assert!(busy.is_retryable() && busy.has_no_side_effects() && !busy.is_final());
        assert_eq!(busy.retry_after_ms(), Some(1_000));
    }
}
