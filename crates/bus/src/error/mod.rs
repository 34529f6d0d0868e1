//! The errors of the bus. Messages are for people and say what to do; `code()` is for programs.

use promethean_delivery::DeliveryError;
use promethean_model::json::JsonError;
use promethean_model::{
    EventId, GroupName, LimitError, MemberId, NameError, Offset, OffsetRange, SettingsError, TopicName,
};
use promethean_store::port::BackupError;
use thiserror::Error;

use promethean_schema::{BadSchema, Incompatible, SchemaRejected};

mod code;
mod from_store;
mod rate_owner;

pub use self::rate_owner::RateOwner;

/// The reason why the bus refused a request or failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BusError {
    /// A name that is not allowed, or is reserved for the system.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A value is larger than its limit.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// Settings of a topic that cannot work.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The payload is not JSON.
    #[error("the payload is not valid JSON: {0}")]
    InvalidJson(#[from] JsonError),
    /// A header's name or value, or a session id, has a control character, which could break a line of a
    /// protocol or of a log.
    #[error("{what} has a control character; remove it")]
    ControlCharacter {
        /// The text that has it.
        what: String,
    },
    /// The partition number is too large for the topic.
    #[error("partition {given} is not one of the topic's; give a number below {partitions}, or none")]
    BadPartition {
        /// The partition that was given.
        given: u32,
        /// How many partitions the topic has.
        partitions: u32,
    },
    /// The event needs a key, because the topic is compacted.
    #[error("topic `{topic}` is compacted; give the event a key")]
    KeyRequired {
        /// The topic.
        topic: TopicName,
    },
    /// The publisher gave an expected offset of a key, but no key.
    #[error("`expected_key_offset` was given without a key; give the key it is about")]
    ExpectationWithoutKey,
    /// The id is taken by another event.
    #[error("topic `{topic}` already has a different event with id {id}, at offset {offset}; use a new id")]
    IdConflict {
        /// The topic.
        topic: TopicName,
        /// The id.
        id: EventId,
        /// The offset of the other event.
        offset: Offset,
    },
    /// The next offset of the topic is not the one that the publisher expected.
    #[error("topic `{topic}` is at offset {actual}, not {expected}; read what was added and try again")]
    Conflict {
        /// The topic.
        topic: TopicName,
        /// The expected next offset.
        expected: Offset,
        /// The actual next offset.
        actual: Offset,
    },
    /// The key's latest event is not the one that the publisher expected.
    #[error(
        "the latest event of the key in topic `{topic}` is {}, not {}; read it and try again",
        at(*actual),
        at(*expected)
    )]
    KeyConflict {
        /// The topic.
        topic: TopicName,
        /// The expected offset of the key's latest event; `None` if none was expected.
        expected: Option<Offset>,
        /// The actual offset of the key's latest event; `None` if the key has no event.
        actual: Option<Offset>,
    },
    /// The group exists with a different value of an option.
    #[error(
        "group `{group}` has `{option}` = {actual}, not {asked}; leave the option out to keep it, or use another group"
    )]
    GroupConflict {
        /// The group.
        group: GroupName,
        /// The option.
        option: &'static str,
        /// The value that was asked for.
        asked: String,
        /// The value that the group was created with.
        actual: String,
    },
    /// An option of a group or member has a value that cannot work.
    #[error("`{option}` is {given}; {fix}")]
    BadOption {
        /// The option.
        option: &'static str,
        /// The value that was given.
        given: String,
        /// What to give instead.
        fix: &'static str,
    },
    /// The rate limit is reached.
    #[error("too many events of {whose} in too short a time; try again in {retry_after_ms} ms")]
    RateLimited {
        /// Whose limit it is.
        whose: RateOwner,
        /// After how many milliseconds the same request will be accepted, if no other request comes first.
        retry_after_ms: u64,
    },
    /// The request is larger than the rate limit ever accepts at once.
    #[error(
        "{asked} events at once, but the limit of {whose} lets at most {burst} through; send smaller batches"
    )]
    OverBurst {
        /// Whose limit it is.
        whose: RateOwner,
        /// How many were asked for.
        asked: u32,
        /// The most events that are accepted at once.
        burst: u32,
    },
    /// The topic does not exist.
    #[error("topic `{topic}` does not exist; publish to it first, or check the spelling")]
    UnknownTopic {
        /// The name asked for.
        topic: TopicName,
    },
    /// The group does not exist.
    #[error("group `{group}` does not exist on `{subject}`; subscribe with it first, or check the spelling")]
    UnknownGroup {
        /// The name asked for.
        group: GroupName,
        /// The topic or pattern.
        subject: String,
    },
    /// The event does not exist, or no longer.
    #[error("topic `{topic}` has no event with id {id}; it may have expired, use an offset or a time")]
    UnknownEvent {
        /// The topic.
        topic: TopicName,
        /// The id asked for.
        id: EventId,
    },
    /// The group has no open dead letter for this offset.
    #[error("the group has no open dead letter for offset {offset} of topic `{topic}`; list them again")]
    UnknownLetter {
        /// The topic.
        topic: TopicName,
        /// The offset asked for.
        offset: Offset,
    },
    /// A start position that cannot be used.
    #[error("cannot seek there: {reason}")]
    BadSeek {
        /// What is wrong and what to change.
        reason: String,
    },
    /// The position is beyond the end of the topic.
    #[error(
        "group `{group}` cannot be at offset {floor} of topic `{topic}`, which ends at {end}; use at most {end}"
    )]
    BeyondEnd {
        /// The group.
        group: GroupName,
        /// The topic.
        topic: TopicName,
        /// The offset that was asked for.
        floor: Offset,
        /// The topic's durable end.
        end: Offset,
    },
    /// A filter, a pattern or a request about partitions and their members was refused.
    #[error(transparent)]
    Delivery(#[from] DeliveryError),
    /// The group is a follower: only the server may use it.
    #[error(
        "group `{group}` belongs to a projector, which alone moves it; rebuild the projector, redrive its letters to the topic, or use another group"
    )]
    ProjectorGroup {
        /// The group.
        group: GroupName,
    },
    /// The group has members, so the request is refused.
    #[error("group `{group}` has {members} members; stop them first")]
    GroupBusy {
        /// The group.
        group: GroupName,
        /// How many members it has.
        members: usize,
    },
    /// The number of topics is at its limit.
    #[error("there are already {max} topics; delete some, or raise `limits.events.topics_max`")]
    TooManyTopics {
        /// The limit.
        max: u64,
    },
    /// The topic does not exist, and topics are not created on first use.
    #[error("topic `{topic}` does not exist, and `auto_create_topics` is off; create it first")]
    AutoCreateOff {
        /// The name asked for.
        topic: TopicName,
    },
    /// The topic is being deleted, or was deleted during the request.
    #[error("topic `{topic}` was deleted during the request; try again to create a new one")]
    TopicDeleted {
        /// The topic.
        topic: TopicName,
    },
    /// A value is larger than a limit of the store.
    #[error("{what} has {size}; the limit is {max}")]
    TooLarge {
        /// The value that is too large.
        what: &'static str,
        /// Its size.
        size: u64,
        /// The limit.
        max: u64,
    },
    /// The store does not offer the durability.
    #[error("this store does not offer durability `{asked}`; use one of: {offered}")]
    NotOffered {
        /// The durability that was asked for.
        asked: &'static str,
        /// The durabilities that the store offers.
        offered: &'static str,
    },
    /// A backup was refused or failed.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// A later owner has taken the cursor over.
    #[error("group `{group}` on topic `{topic}` is served by another owner now; subscribe again")]
    Fenced {
        /// The group.
        group: GroupName,
        /// The topic.
        topic: TopicName,
    },
    /// Another member took the name of this one.
    #[error(
        "member `{member}` of group `{group}` on `{subject}` was fenced: another member subscribed with the same \
         `memberId`; give each member a name of its own"
    )]
    MemberFenced {
        /// The group.
        group: GroupName,
        /// The topic or pattern.
        subject: String,
        /// The name.
        member: MemberId,
    },
    /// Stored events do not match their checksums.
    #[error("events {range} of topic `{topic}` are damaged; restore from a backup, or read on from {}", range.end)]
    CorruptRange {
        /// The topic.
        topic: TopicName,
        /// The damaged offsets.
        range: OffsetRange,
    },
    /// The disk is nearly full, or the last write found no space.
    #[error("storage is full ({reason}); free some space or add retention, then try again")]
    StorageFull {
        /// What there is too little of.
        reason: String,
    },
    /// The disk or the state engine failed.
    #[error("storage failed: {reason}; see the server's log, and run `promethean verify`")]
    StorageFailed {
        /// What failed.
        reason: String,
    },
    /// An earlier failure stopped all writing.
    #[error("writing stopped after a failure ({reason}); check the disk and restart the server")]
    Poisoned {
        /// The failure.
        reason: String,
    },
    /// The batch may or may not have been written.
    #[error("the outcome is unknown ({reason}); after the server is back, try again with the same ids")]
    UnknownOutcome {
        /// The failure.
        reason: String,
    },
    /// The text is not a schema, or uses something that is not supported.
    #[error(transparent)]
    BadSchema(#[from] BadSchema),
    /// A payload does not fit the topic's schema.
    #[error(transparent)]
    SchemaRejected(#[from] Box<SchemaRejected>),
    /// Checking a payload against the topic's schema takes too long.
    #[error(
        "checking this payload against schema version {version} of topic `{topic}` takes too long; make the payload smaller, or the schema simpler: fewer alternatives in `anyOf` and `oneOf`"
    )]
    SchemaTooCostly {
        /// The topic.
        topic: TopicName,
        /// The version.
        version: u32,
    },
    /// A new schema version is not compatible with the versions before.
    #[error(transparent)]
    SchemaIncompatible(#[from] Box<Incompatible>),
    /// The topic has no such version.
    #[error("topic `{topic}` has no schema version {version}; {}", known(latest))]
    UnknownSchema {
        /// The topic.
        topic: TopicName,
        /// The version asked for, exactly as it was given.
        version: String,
        /// The latest one there is.
        latest: Option<u32>,
    },
    /// The topic requires a schema and has none.
    #[error(
        "topic `{topic}` takes only events with a schema and has none; register one, or set `schema` to optional"
    )]
    SchemaRequired {
        /// The topic.
        topic: TopicName,
    },
    /// The topic has, or may have, events of this version.
    #[error(
        "schema version {version} of topic `{topic}` is in use: {reason}; register a further version instead"
    )]
    SchemaInUse {
        /// The topic.
        topic: TopicName,
        /// The version.
        version: u32,
        /// Why the version counts as in use.
        reason: &'static str,
    },
    /// The version number is not larger than that of the latest version.
    #[error("topic `{topic}` has schema version {latest} already; give a number above it, or none")]
    VersionTaken {
        /// The topic.
        topic: TopicName,
        /// The version that was given.
        given: u32,
        /// The latest one there is.
        latest: u32,
    },
    /// The number of schema versions of the topic is at its limit.
    #[error("topic `{topic}` has {max} schema versions already; use a new topic")]
    TooManySchemas {
        /// The topic.
        topic: TopicName,
        /// The limit.
        max: usize,
    },
    /// A downcaster could not make the old version of an event for dual-write.
    #[error(
        "the event has no form of version {version} for `{topic}.v{version}`: {reason}; repair the downcaster or the event"
    )]
    DowncastFailed {
        /// The topic.
        topic: TopicName,
        /// The old version.
        version: u32,
        /// What went wrong.
        reason: String,
    },
    /// The server has too much work of one kind; the request may succeed later.
    #[error("the server is busy with {what}; try again")]
    Busy {
        /// The work that there is too much of.
        what: &'static str,
    },
    /// The bus is shutting down.
    #[error("the server is shutting down; connect again")]
    Closed,
    /// An error of the store that has no variant here; with the store's code and message.
    #[error("{message}")]
    Store {
        /// The store's error code.
        code: &'static str,
        /// The store's message.
        message: String,
    },
}

fn at(offset: Option<Offset>) -> String {
    offset.map_or_else(|| "none".to_owned(), |offset| format!("at offset {offset}"))
}

fn known(latest: &Option<u32>) -> String {
    latest.map_or_else(|| "register one first".to_owned(), |latest| format!("the latest is {latest}"))
}
