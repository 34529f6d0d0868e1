//! Why the bus did not do what it was asked. Messages are for people and say what to do; `code()` is for programs.

use promethean_delivery::DeliveryError;
use promethean_model::json::JsonError;
use promethean_model::{
    EventId, GroupName, LimitError, NameError, Offset, OffsetRange, SettingsError, TopicName,
};
use thiserror::Error;

use promethean_schema::{BadSchema, Incompatible, SchemaRejected};

mod code;
mod from_store;

/// Every refusal of the bus.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BusError {
    /// A name that cannot be, or is kept for the system.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Something is over its cap.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// Settings of a topic that cannot work.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The payload is not JSON.
    #[error("the payload is not valid JSON: {0}")]
    InvalidJson(#[from] JsonError),
    /// A header's name or value, or a session id, that could break a line of a protocol or of a log.
    #[error("{what} has a control character; remove it")]
    ControlCharacter {
        /// Which text.
        what: String,
    },
    /// A label outside the topic's partitions.
    #[error("partition {given} is not one of the topic's; give a number below {partitions}, or none")]
    BadPartition {
        /// What was given.
        given: u32,
        /// How many there are.
        partitions: u32,
    },
    /// A key is needed: the topic is compacted.
    #[error("topic `{topic}` is compacted; give the event a key")]
    KeyRequired {
        /// The topic.
        topic: TopicName,
    },
    /// A key is needed: the publisher expects something of it.
    #[error("`expected_key_offset` was given without a key; give the key it is about")]
    ExpectationWithoutKey,
    /// The id is taken by another event.
    #[error("topic `{topic}` already has a different event with id {id}, at offset {offset}; use a new id")]
    IdConflict {
        /// The topic.
        topic: TopicName,
        /// The id.
        id: EventId,
        /// Where the other event is.
        offset: Offset,
    },
    /// The topic is not where the publisher expected it.
    #[error("topic `{topic}` is at offset {actual}, not {expected}; read what was added and try again")]
    Conflict {
        /// The topic.
        topic: TopicName,
        /// What its next offset was expected to be.
        expected: Offset,
        /// What it is.
        actual: Offset,
    },
    /// The key's latest event is not the one the publisher expected.
    #[error(
        "the latest event of the key in topic `{topic}` is {}, not {}; read it and try again",
        at(*actual),
        at(*expected)
    )]
    KeyConflict {
        /// The topic.
        topic: TopicName,
        /// What was expected.
        expected: Option<Offset>,
        /// What it is.
        actual: Option<Offset>,
    },
    /// The group exists with another option.
    #[error(
        "group `{group}` has `{option}` = {actual}, not {asked}; leave the option out to keep it, or use another group"
    )]
    GroupConflict {
        /// The group.
        group: GroupName,
        /// The option.
        option: &'static str,
        /// What was asked for.
        asked: String,
        /// What the group was created with.
        actual: String,
    },
    /// An option of a group or member that cannot work.
    #[error("`{option}` is {given}; {fix}")]
    BadOption {
        /// The option.
        option: &'static str,
        /// What was given.
        given: String,
        /// What to give.
        fix: &'static str,
    },
    /// Too fast.
    #[error("too many events in too short a time; try again in {retry_after_ms} ms")]
    RateLimited {
        /// When the same request will be let through, if nothing else is.
        retry_after_ms: u64,
    },
    /// More at once than the rate limit ever lets through.
    #[error("{asked} events at once, but the rate limit lets at most {burst} through; send smaller batches")]
    OverBurst {
        /// How many were asked for.
        asked: u32,
        /// How many there can ever be at once.
        burst: u32,
    },
    /// No such topic.
    #[error("topic `{topic}` does not exist; publish to it first, or check the spelling")]
    UnknownTopic {
        /// The name asked for.
        topic: TopicName,
    },
    /// No such group.
    #[error("group `{group}` does not exist on `{subject}`; subscribe with it first, or check the spelling")]
    UnknownGroup {
        /// The name asked for.
        group: GroupName,
        /// The topic or pattern.
        subject: String,
    },
    /// No such event.
    #[error("topic `{topic}` has no event with id {id}; it may have expired, use an offset or a time")]
    UnknownEvent {
        /// The topic.
        topic: TopicName,
        /// The id asked for.
        id: EventId,
    },
    /// The group has no such dead letter.
    #[error("the group has no open dead letter for offset {offset} of topic `{topic}`; list them again")]
    UnknownLetter {
        /// The topic.
        topic: TopicName,
        /// The offset asked for.
        offset: Offset,
    },
    /// A place to start or go on from that makes no sense.
    #[error("cannot seek there: {reason}")]
    BadSeek {
        /// What is wrong and what to change.
        reason: String,
    },
    /// A place behind the end of the topic.
    #[error(
        "group `{group}` cannot be at offset {floor} of topic `{topic}`, which ends at {end}; use at most {end}"
    )]
    BeyondEnd {
        /// The group.
        group: GroupName,
        /// The topic.
        topic: TopicName,
        /// What was asked for.
        floor: Offset,
        /// The topic's durable end.
        end: Offset,
    },
    /// A filter, a pattern or a request about partitions and their members was refused.
    #[error(transparent)]
    Delivery(#[from] DeliveryError),
    /// The group is the server's own.
    #[error(
        "group `{group}` belongs to a projector, which alone moves it; use another group, or rebuild the projector"
    )]
    ProjectorGroup {
        /// The group.
        group: GroupName,
    },
    /// The group is in use.
    #[error("group `{group}` has {members} members; stop them first")]
    GroupBusy {
        /// The group.
        group: GroupName,
        /// How many members it has.
        members: usize,
    },
    /// As many topics as there may be.
    #[error("there are already {max} topics; delete some or raise `topics_max`")]
    TooManyTopics {
        /// The limit.
        max: u64,
    },
    /// Topics are not created on first use.
    #[error("topic `{topic}` does not exist and `topics.auto_create` is off; create it first")]
    AutoCreateOff {
        /// The name asked for.
        topic: TopicName,
    },
    /// The topic is being deleted.
    #[error("topic `{topic}` was deleted meanwhile; try again to create it anew")]
    TopicDeleted {
        /// The topic.
        topic: TopicName,
    },
    /// The store has a cap of its own.
    #[error("{what} has {size}; the limit is {max}")]
    TooLarge {
        /// What.
        what: &'static str,
        /// Its size.
        size: u64,
        /// The limit.
        max: u64,
    },
    /// Someone else owns the cursor now.
    #[error("group `{group}` on topic `{topic}` is served by another owner now; subscribe again")]
    Fenced {
        /// The group.
        group: GroupName,
        /// The topic.
        topic: TopicName,
    },
    /// Stored events do not match their checksums.
    #[error("events {range} of topic `{topic}` are damaged; restore from a backup, or read on from {}", range.end)]
    CorruptRange {
        /// The topic.
        topic: TopicName,
        /// The offsets concerned.
        range: OffsetRange,
    },
    /// The disk is nearly full.
    #[error(
        "storage is full ({free} bytes free, {reserve} kept in reserve); free some space or add retention, then try again"
    )]
    StorageFull {
        /// Bytes left.
        free: u64,
        /// Bytes kept back.
        reserve: u64,
    },
    /// Disk or engine failed.
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
    /// It may or may not have been written.
    #[error("the outcome is unknown ({reason}); after the server is back, try again with the same ids")]
    UnknownOutcome {
        /// The failure.
        reason: String,
    },
    /// A text that is no schema, or none that is taken.
    #[error(transparent)]
    BadSchema(#[from] BadSchema),
    /// A payload that does not fit.
    #[error(transparent)]
    SchemaRejected(#[from] Box<SchemaRejected>),
    /// A new version that does not fit the versions before.
    #[error(transparent)]
    SchemaIncompatible(#[from] Box<Incompatible>),
    /// The topic has no such version.
    #[error("topic `{topic}` has no schema version {version}; {}", known(latest))]
    UnknownSchema {
        /// The topic.
        topic: TopicName,
        /// What was asked for, as it was.
        version: String,
        /// The latest one there is.
        latest: Option<u32>,
    },
    /// The topic wants a schema and has none.
    #[error(
        "topic `{topic}` takes only events with a schema and has none; register one, or set `schema` to optional"
    )]
    SchemaRequired {
        /// The topic.
        topic: TopicName,
    },
    /// Events of this version are there, or may be.
    #[error(
        "schema version {version} of topic `{topic}` is in use: {reason}; register a further version instead"
    )]
    SchemaInUse {
        /// The topic.
        topic: TopicName,
        /// The version.
        version: u32,
        /// Why it is taken to be.
        reason: &'static str,
    },
    /// The number is not above that of the latest version.
    #[error("topic `{topic}` has schema version {latest} already; give a number above it, or none")]
    VersionTaken {
        /// The topic.
        topic: TopicName,
        /// What was given.
        given: u32,
        /// The latest one there is.
        latest: u32,
    },
    /// As many versions as there may be.
    #[error("topic `{topic}` has {max} schema versions already; use a new topic")]
    TooManySchemas {
        /// The topic.
        topic: TopicName,
        /// The limit.
        max: usize,
    },
    /// The old form of an event, for those who still read it, could not be made.
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
    /// Nothing is wrong, but there is too much to do.
    #[error("the server is busy with {what}; try again")]
    Busy {
        /// What there is too much of.
        what: &'static str,
    },
    /// The bus is shutting down.
    #[error("the server is shutting down; connect again")]
    Closed,
    /// A refusal of the store that is not about publishing or groups, in its own words.
    #[error("{message}")]
    Store {
        /// Its stable word.
        code: &'static str,
        /// Its message.
        message: String,
    },
}

fn at(offset: Option<Offset>) -> String {
    offset.map_or_else(|| "none".to_owned(), |offset| format!("at offset {offset}"))
}

fn known(latest: &Option<u32>) -> String {
    latest.map_or_else(|| "register one first".to_owned(), |latest| format!("the latest is {latest}"))
}
