//! Open dead letters of a group on a topic: looking at them, delivering them again, dropping them.
//!
//! | module | does |
//! | --- | --- |
//! | `originals` | finds the event that a letter is about |
//! | `choose` | finds the letters that are named |
//! | `work` | redrives or drops them, a batch at a time |

mod choose;
mod originals;
mod work;

use std::sync::Arc;

use promethean_delivery::Filter;
use promethean_model::{EventId, GroupName, Offset, TopicName};
use promethean_store::port::{StoredEvent, Table};
use serde::Serialize;
use tokio::sync::oneshot;

pub(crate) use self::originals::Originals;
use self::work::{Action, Work};
use super::find::group_on;
use crate::bus::Bus;
use crate::error::BusError;
use crate::group::Wanted;
use crate::rows::{EventKey, LetterRow, topic_prefix};

/// Most letters of a page.
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

impl Bus {
    /// Open dead letters of a group on a topic after an offset, at most `limit` and 1,000.
    pub async fn dead_letters(
        &self,
        topic: &TopicName,
        group: &GroupName,
        after: Option<Offset>,
        limit: usize,
    ) -> Result<LetterPage, BusError> {
        let core = &self.core;
        group_on(core, group, topic).await?;
        let limit = limit.clamp(1, PAGE_LETTERS_MAX);
        let prefix = topic_prefix(group, topic);
        let after = after.map(|after| EventKey::encode(group, topic, after));
        let rows = core.store.rows(Table::DeadLetters, &prefix, after.as_deref(), limit).await?;
        let full = rows.len() == limit;
        let rows = work::decode(rows)?;
        let mut originals = Originals::new(core, topic, rows.iter().map(|(offset, _)| *offset).collect());
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

    /// Delivers dead letters again. Many are done in several commits: if it fails or the server dies between two of
    /// them, those before are done and doing it again does the rest.
    pub async fn redrive(
        &self,
        topic: &TopicName,
        group: &GroupName,
        which: LetterChoice,
        to: RedriveTo,
    ) -> Result<LetterReport, BusError> {
        let action = match to {
            RedriveTo::Group => Action::ToGroup,
            RedriveTo::Topic => Action::ToTopic,
        };
        self.work_on(topic, group, which, action).await
    }

    /// Closes dead letters. What is in the dead-letter topic stays. One that is being redriven is left: it is closed
    /// when its event is acked, and open again if the event fails again.
    pub async fn drop_letters(
        &self,
        topic: &TopicName,
        group: &GroupName,
        which: LetterChoice,
    ) -> Result<LetterReport, BusError> {
        self.work_on(topic, group, which, Action::Drop).await
    }

    async fn work_on(
        &self,
        topic: &TopicName,
        group: &GroupName,
        which: LetterChoice,
        action: Action,
    ) -> Result<LetterReport, BusError> {
        let core = &self.core;
        if core.is_closed() {
            return Err(BusError::Closed);
        }
        if let LetterChoice::Filter(filter) = &which {
            filter.validate()?;
        }
        let (_, row) = group_on(core, group, topic).await?;
        if action == Action::ToGroup {
            row.open_to_consumers(group)?;
        }
        let wanted = Wanted { topic: topic.clone(), group: group.clone(), row };
        self.run(Work::new(Arc::clone(core), wanted, action), which).await
    }

    async fn run(&self, work: Work, which: LetterChoice) -> Result<LetterReport, BusError> {
        let (answer, answered) = oneshot::channel();
        // On a task of its own: a caller that goes away must not come between a commit and the owner's hearing of it.
        self.core.tasks.spawn(async move {
            let report = work.run(which, || answer.is_closed()).await;
            // Whoever asked may have gone away.
            let _ = answer.send(report);
        });
        answered.await.unwrap_or(Err(BusError::Closed))
    }
}
