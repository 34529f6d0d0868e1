//! Groups, topics and dead letters as JSON.

use promethean_bus::dead_letters::LetterInfo;
use promethean_bus::groups::{GroupInfo, GroupProgress, MemberStatus};
use promethean_bus::rows::GroupOptions;
use promethean_bus::{Bus, StoredEvent, TopicInfo};
use promethean_delivery::{BlockedKey, CoordinatorView, MemberNo};
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
    pub(super) async fn read(
        reads: &mut BlockerReads<'_>,
        info: GroupInfo,
        partitions: Option<CoordinatorView>,
    ) -> Self {
        let GroupInfo { group, subject, row, topics: of_topics, next_topic } = info;
        let mut topics = Vec::with_capacity(of_topics.len());
        for progress in of_topics {
            topics.push(ProgressView::read(reads, progress).await);
        }
        Self {
            group,
            topic: subject.to_string(),
            paused: row.paused,
            created: row.created,
            options: row.options,
            topics,
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
    /// The members by name, at most 100.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    member_list: Vec<TopicMemberView>,
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
    pub(super) async fn read(reads: &mut BlockerReads<'_>, progress: GroupProgress) -> Self {
        let mut blocked_keys = Vec::with_capacity(progress.blocked_keys.len());
        for key in &progress.blocked_keys {
            let event = reads.event(&progress.topic, key.offset).await;
            let member = key.member.map(|member| shown_name(&progress.member_list, member));
            blocked_keys.push(BlockedKeyView::new(key, event, member));
        }
        let member = |status: &MemberStatus| TopicMemberView {
            member: shown_name(&progress.member_list, status.number),
            in_flight: status.in_flight,
        };
        Self {
            member_list: progress.member_list.iter().map(member).collect(),
            topic: progress.topic,
            floor: progress.floor,
            end: progress.end,
            lag: progress.lag,
            in_flight: progress.in_flight,
            members: progress.members,
            reason: progress.reason.map_or("delivering", |reason| reason.as_str()),
            expired: progress.expired,
            blocked_keys,
            failing: progress.failure.is_some(),
        }
    }
}

/// Reads the events that block keys, at most [`BlockerReads::MAX`] for one answer.
pub(super) struct BlockerReads<'a> {
    bus: &'a Bus,
    left: usize,
}

impl<'a> BlockerReads<'a> {
    /// The most events read for one answer. Keys beyond are shown by their hashes alone.
    const MAX: usize = 100;

    pub(super) const fn new(bus: &'a Bus) -> Self {
        Self { bus, left: Self::MAX }
    }

    /// The event at an offset. An event that cannot be read is left out: the rest of the answer is of use without it.
    async fn event(&mut self, topic: &TopicName, offset: Offset) -> Option<StoredEvent> {
        self.left = self.left.checked_sub(1)?;
        self.bus.event_at(topic, offset).await.ok().flatten()
    }
}

/// A member of a group on a topic.
#[derive(Debug, Serialize)]
struct TopicMemberView {
    member: String,
    in_flight: usize,
}

/// The name of a member: its `memberId`, or the name of its token, or else `#` and its number.
fn shown_name(members: &[MemberStatus], number: MemberNo) -> String {
    let named = members.iter().find(|member| member.number == number).and_then(|member| member.name.as_ref());
    named.map_or_else(|| format!("#{}", number.0), |name| name.to_string())
}

#[derive(Debug, Serialize)]
struct BlockedKeyView {
    /// XXH3-64 of the key, in hexadecimal.
    key_hash: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// The event that the others of the key wait for.
    offset: Offset,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<EventId>,
    /// The member that has the event, if it is in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<String>,
    waiting: usize,
}

impl BlockedKeyView {
    fn new(blocked: &BlockedKey, event: Option<StoredEvent>, member: Option<String>) -> Self {
        let (id, key) = event.map_or((None, None), |event| (Some(event.id), event.key().map(str::to_owned)));
        Self {
            key_hash: format!("{:016x}", blocked.key),
            key,
            offset: blocked.offset,
            id,
            member,
            waiting: blocked.waiting,
        }
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
    /// What the one who gave the event back said, or else a word for how the last attempt failed.
    reason: String,
    /// The name of the one who said it.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    /// What was said when an earlier attempt failed, if nothing was said for the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
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
            reason: row.reason_text().to_owned(),
            by: row.note.as_ref().and_then(|note| note.by()).map(str::to_owned),
            last_error: row.last_error().map(str::to_owned),
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
