//! Groups, topics and dead letters as JSON.

use promethean_bus::dead_letters::LetterInfo;
use promethean_bus::dead_letters::reason_word;
use promethean_bus::groups::{GroupInfo, GroupProgress};
use promethean_bus::rows::GroupOptions;
use promethean_bus::{StoredEvent, TopicInfo};
use promethean_delivery::{BlockedKey, CoordinatorView};
use promethean_model::{EventId, GroupName, Offset, TopicName, TopicSettings};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::events;
use crate::refusal::Refusal;

/// A group.
#[derive(Debug, Serialize)]
pub(super) struct GroupView {
    group: GroupName,
    topic: String,
    paused: bool,
    created: i64,
    options: GroupOptions,
    topics: Vec<ProgressView>,
    /// The topic to go on after, if the group of a pattern may have more topics than are shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_topic: Option<TopicName>,
    /// The members of a partitioned group and what they own.
    #[serde(skip_serializing_if = "Option::is_none")]
    partitions: Option<CoordinatorView>,
}

impl GroupView {
    pub(super) fn new(info: GroupInfo, partitions: Option<CoordinatorView>) -> Self {
        let GroupInfo { group, subject, row, topics, next_topic } = info;
        Self {
            group,
            topic: subject.to_string(),
            paused: row.paused,
            created: row.created,
            options: row.options,
            topics: topics.into_iter().map(ProgressView::new).collect(),
            next_topic,
            partitions,
        }
    }
}

/// The progress of a group on a topic.
#[derive(Debug, Serialize)]
pub(super) struct ProgressView {
    pub(super) topic: TopicName,
    pub(super) floor: Offset,
    pub(super) end: Offset,
    pub(super) lag: u64,
    in_flight: usize,
    members: usize,
    /// `delivering`, or why not.
    reason: &'static str,
    expired: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    blocked_keys: Vec<BlockedKeyView>,
    /// Whether the store failed the group's last commit or read. The server's log says why.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    failing: bool,
}

impl ProgressView {
    pub(super) fn new(progress: GroupProgress) -> Self {
        Self {
            topic: progress.topic,
            floor: progress.floor,
            end: progress.end,
            lag: progress.lag,
            in_flight: progress.in_flight,
            members: progress.members,
            reason: progress.reason.map_or("delivering", |reason| reason.as_str()),
            expired: progress.expired,
            blocked_keys: progress.blocked_keys.iter().map(BlockedKeyView::new).collect(),
            failing: progress.failure.is_some(),
        }
    }
}

#[derive(Debug, Serialize)]
struct BlockedKeyView {
    /// XXH3-64 of the key, in hexadecimal.
    key_hash: String,
    /// The event that the others of the key wait for.
    offset: Offset,
    waiting: usize,
}

impl BlockedKeyView {
    fn new(key: &BlockedKey) -> Self {
        Self { key_hash: format!("{:016x}", key.key), offset: key.offset, waiting: key.waiting }
    }
}

/// A topic.
#[derive(Debug, Serialize)]
pub(super) struct TopicView {
    topic: TopicName,
    earliest: Offset,
    end: Offset,
    bytes: u64,
    /// Events that retention keeps only because a projector has still to read them.
    #[serde(skip_serializing_if = "is_zero")]
    held: u64,
    settings: TopicSettings,
}

const fn is_zero(held: &u64) -> bool {
    *held == 0
}

impl TopicView {
    pub(super) fn new(info: TopicInfo, settings: TopicSettings) -> Self {
        let TopicInfo { name: topic, earliest, end, bytes, held } = info;
        Self { topic, earliest, end, bytes, held, settings }
    }
}

/// An open dead letter.
#[derive(Debug, Serialize)]
pub(super) struct LetterView {
    offset: Offset,
    event: Option<Box<RawValue>>,
    in_topic: bool,
    reason: &'static str,
    attempts: u32,
    first_ts: i64,
    last_ts: i64,
    redrives: u32,
    redriving: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    letter: Option<EventId>,
}

impl LetterView {
    pub(super) fn new(info: &LetterInfo) -> Result<Self, Refusal> {
        let row = &info.row;
        Ok(Self {
            offset: info.offset,
            event: info.event.as_ref().map(event).transpose()?,
            in_topic: info.in_topic,
            reason: reason_word(row.reason),
            attempts: row.attempts,
            first_ts: row.first_ms,
            last_ts: row.last_ms,
            redrives: row.redrives,
            redriving: row.redriving,
            letter: row.letter,
        })
    }
}

/// An event as a part of other JSON.
pub(super) fn event(event: &StoredEvent) -> Result<Box<RawValue>, Refusal> {
    let mut out = Vec::with_capacity(event.bytes() + events::EVENT_BYTES);
    events::write(&mut out, event)?;
    let text = String::from_utf8(out).map_err(|_| Refusal::internal())?;
    RawValue::from_string(text).map_err(|_| Refusal::internal())
}
