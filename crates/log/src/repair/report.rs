//! What a repair does, and what is lost.

use std::fmt;

use promethean_model::EventId;

/// The most ids that are listed for one range.
const IDS_MAX: usize = 100;

/// Events that a repair cannot bring back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostEvents {
    /// The topic.
    pub topic: String,
    /// The first lost offset.
    pub from_offset: u64,
    /// The first offset after the range.
    pub to_offset: u64,
    /// Whether every offset of the range had an event. Otherwise some had one, or none.
    pub is_certain: bool,
    /// The ids that can still be read; at most 100.
    pub ids: Vec<EventId>,
}

impl LostEvents {
    pub(super) fn new(topic: &str, from_offset: u64, to_offset: u64, is_certain: bool) -> LostEvents {
        LostEvents { topic: topic.to_owned(), from_offset, to_offset, is_certain, ids: Vec::new() }
    }

    pub(super) fn with_ids(mut self, known: impl Iterator<Item = (u64, EventId)>) -> LostEvents {
        let range = self.from_offset..self.to_offset;
        let inside = known.filter(|(offset, _)| range.contains(offset)).map(|(_, id)| id);
        self.ids = inside.take(IDS_MAX).collect();
        self
    }
}

impl fmt::Display for LostEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.is_certain { "" } else { "any that were at " };
        write!(f, "topic `{}`: {word}offsets {}..{}", self.topic, self.from_offset, self.to_offset)?;
        for (index, id) in self.ids.iter().enumerate() {
            write!(f, "{} {id}", if index == 0 { ", ids" } else { "," })?;
        }
        Ok(())
    }
}

/// What a repair found, does and loses. A clean report means that nothing was to be done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogRepairReport {
    /// The damage that was found, in words.
    pub faults: Vec<String>,
    /// What the repair does, in words.
    pub steps: Vec<String>,
    /// The files that are set aside, as `from` and `to` inside the directory.
    pub set_aside: Vec<(String, String)>,
    /// The events that are lost.
    pub lost: Vec<LostEvents>,
    /// Other consequences, in words.
    pub notes: Vec<String>,
}

impl LogRepairReport {
    /// Whether nothing is damaged.
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty() && self.steps.is_empty()
    }
}
