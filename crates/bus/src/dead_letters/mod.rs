//! Dead letters: events that a group gave up, and their way back.
//!
//! Open dead letters are rows of a table; `<topic>.dlq` is their history. Groups open letters and close them in the commits
//! of their progress; redriving and dropping are here.
//!
//! | module | holds |
//! | --- | --- |
//! | `letter` | the event in `<topic>.dlq` that tells of a given-up event |
//! | `row` | the bytes of an open letter |
//! | `counts` | how many letters are open, and the locks of their groups |
//! | `originals` | the events that letters are about |
//! | `choice` | the letters that a user names |
//! | `redrive` | delivering letters again and dropping them, a batch at a time |

mod choice;
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
pub(crate) use self::letter::post_because;
pub use self::letter::{Letter, letter_id, post, reason_word, redrive_id};
pub(crate) use self::originals::Originals;
pub(crate) use self::redrive::{Redrive, RedriveAction};
pub use self::row::LetterRow;
use crate::error::BusError;
use crate::rows::{EventKey, topic_prefix};

/// Letters of a page, at most.
const PAGE_LETTERS_MAX: usize = 1000;
/// Bytes of events after which a page ends early.
const PAGE_BYTES: usize = 4 << 20;

/// An open dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetterInfo {
    /// The place of its event in the topic.
    pub offset: Offset,
    /// Why and when the event was given up, how often it was redriven, and whether it is being redriven now.
    pub row: LetterRow,
    /// Its event, whole: from the topic, or from the letter if the topic no longer has it; `None` if neither does.
    pub event: Option<StoredEvent>,
    /// Whether the topic still has the event. If not, it cannot be redriven to the group.
    pub in_topic: bool,
}

/// Letters in offset order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetterPage {
    /// The letters.
    pub letters: Vec<LetterInfo>,
    /// The offset to go on after, if there may be more.
    pub next: Option<Offset>,
}

/// Which open letters of a group on a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LetterChoice {
    /// All that are open when they are come to.
    All,
    /// Those about these events, or those with these ids in the dead-letter topic.
    Ids(Vec<EventId>),
    /// Those about the events at these offsets.
    Offsets(Vec<Offset>),
    /// Those about events that pass. An event that neither the topic nor the letter has does not.
    Filter(Filter),
}

/// Where a redrive goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedriveTo {
    /// The group is given the event again, with all its attempts; nobody else is. The letter is closed when the event
    /// is acked.
    Group,
    /// A copy is published, for every group of the topic, and the letter closed.
    Topic,
}

/// What became of the letters that were chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LetterReport {
    /// Open letters that were chosen: those redriven, dropped, gone and already redriving.
    pub selected: u64,
    /// Redriven now.
    pub redriven: u64,
    /// Dropped now.
    pub dropped: u64,
    /// Left open because their event is gone: from the topic for a redrive to the group, from the dead-letter topic
    /// too for one to the topic.
    pub gone: u64,
    /// Left as they are because they are being delivered to the group again at this moment.
    pub already_redriving: u64,
    /// Named, but not open. An error instead if none of those named is.
    pub unknown: u64,
}

impl DeadLetters {
    /// Open dead letters of a group on a topic after an offset, at most `limit` and 1,000.
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

/// Rows of letters, in offset order.
fn decode(rows: Vec<Row>) -> Result<Vec<(Offset, LetterRow)>, BusError> {
    let letter = |row: Row| {
        let key = EventKey::decode(&row.key, "DeadLetters")?;
        Ok((key.offset, LetterRow::decode(&row.value)?))
    };
    rows.into_iter().map(letter).collect()
}
