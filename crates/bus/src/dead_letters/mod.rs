//! Dead letters: events that a group gave up, and their redrive.
//!
//! Open dead letters are rows of a table; `<topic>.dlq` is their history. Groups open and close letters in
//! the commits of their progress. This module redrives and drops letters.
//!
//! | module | holds |
//! | --- | --- |
//! | `letter` | the event in `<topic>.dlq` that records a given-up event |
//! | `row` | the bytes of an open letter |
//! | `closed_block` | which events of followers had letters that are closed |
//! | `counts` | how many letters are open, and the locks of their groups |
//! | `originals` | the events that letters are about |
//! | `choice` | finds the letters that a user names |
//! | `redrive` | redrives and drops letters, a batch at a time |

mod choice;
mod closed_block;
mod counts;
mod letter;
mod originals;
mod redrive;
mod row;

use promethean_delivery::Filter;
use promethean_model::{EventId, GroupName, Offset, TopicName};
use promethean_store::port::{Row, StoredEvent, Table};
use serde::Serialize;

pub(crate) use self::counts::DeadLetters;
pub use self::letter::{Letter, letter_id, post, reason_word, redrive_id};
pub(crate) use self::originals::Originals;
pub(crate) use self::redrive::{Redrive, RedriveAction};
pub use self::row::LetterRow;
use crate::error::BusError;
use crate::rows::{EventKey, topic_prefix};

/// The most letters of a page.
const PAGE_LETTERS_MAX: usize = 1000;
/// Bytes of events after which a page ends early.
const PAGE_BYTES: usize = 4 << 20;

/// An open dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetterInfo {
    /// The offset of its event in the topic.
    pub offset: Offset,
    /// Why and when the event was given up, how often it was redriven, and whether it is being redriven now.
    pub row: LetterRow,
    /// Its whole event: from the topic, or from the letter if the topic no longer has it; `None` if neither
    /// has it.
    pub event: Option<StoredEvent>,
    /// Whether the topic still has the event. If not, it cannot be redriven to the group.
    pub in_topic: bool,
}

/// A page of letters, in offset order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetterPage {
    /// The letters.
    pub letters: Vec<LetterInfo>,
    /// The offset after which the next page starts, if there may be more letters.
    pub next: Option<Offset>,
}

/// Selects open letters of a group on a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LetterChoice {
    /// All letters that are open when the redrive reaches them.
    All,
    /// The letters of the events with these ids, or the letters with these ids in the dead-letter topic.
    Ids(Vec<EventId>),
    /// The letters of the events at these offsets.
    Offsets(Vec<Offset>),
    /// The letters of events that pass the filter. If neither the topic nor the letter has the event, it does
    /// not pass.
    Filter(Filter),
}

/// The target of a redrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedriveTo {
    /// Only the group gets the event again, with a full number of attempts. The letter is closed when the
    /// event is acked.
    Group,
    /// A copy of the event is published, for every group of the topic, and the letter is closed.
    Topic,
}

/// The result of a redrive or drop: counts of the selected letters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LetterReport {
    /// Open letters that were selected: the sum of redriven, dropped, gone and already redriving.
    pub selected: u64,
    /// Letters that were redriven now.
    pub redriven: u64,
    /// Letters that were dropped now.
    pub dropped: u64,
    /// Letters that stay open because their event is gone: for a redrive to the group, gone from the topic;
    /// for a redrive to the topic, gone from the dead-letter topic too.
    pub gone: u64,
    /// Letters that were left alone because the group is getting their event again at this moment.
    pub already_redriving: u64,
    /// Named letters that are not open. If no named letter is open, the request is an error instead.
    pub unknown: u64,
}

impl DeadLetters {
    /// The open dead letters of a group on a topic after an offset: at most `limit`, and never more than
    /// 1,000.
    pub(crate) async fn page(
        &self,
        topic: &TopicName,
        group: &GroupName,
        after: Option<Offset>,
        limit: usize,
    ) -> Result<LetterPage, BusError> {
        let limit = limit.clamp(1, PAGE_LETTERS_MAX);
        let prefix = topic_prefix(group, topic);
        let after = after.map(|after| EventKey::encode(group, topic, after));
        let rows = self.base.store.rows(Table::DeadLetters, &prefix, after.as_deref(), limit).await?;
        let full = rows.len() == limit;
        let rows = decode(rows)?;
        let offsets = rows.iter().map(|(offset, _)| *offset).collect();
        let mut originals = Originals::new(&self.base, topic, offsets);
        let (mut letters, mut bytes) = (Vec::with_capacity(rows.len()), 0);
        let count = rows.len();
        for (offset, row) in rows {
            let event = originals.find(offset, &row).await?;
            let in_topic = originals.in_topic(offset).await?.is_some();
            bytes += event.as_ref().map_or(0, StoredEvent::bytes);
            letters.push(LetterInfo { offset, row, event, in_topic });
            if bytes >= PAGE_BYTES {
                break;
            }
        }
        let more = full || letters.len() < count;
        let next = letters.last().map(|letter| letter.offset).filter(|_| more);
        Ok(LetterPage { letters, next })
    }
}

/// Decodes the rows of letters, in their order.
fn decode(rows: Vec<Row>) -> Result<Vec<(Offset, LetterRow)>, BusError> {
    let letter = |row: Row| {
        let key = EventKey::decode(&row.key, "DeadLetters")?;
        Ok((key.offset, LetterRow::decode(&row.value)?))
    };
    rows.into_iter().map(letter).collect()
}
