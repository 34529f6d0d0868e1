//! What a journal says about topics: their events, their births and ends, and how many offsets it lost.

use std::collections::{BTreeMap, BTreeSet};

use promethean_model::{EventId, TopicName};

use super::report::LogRepairReport;
use super::salvage::find_records;
use crate::journal::frame::{self, Control};
use crate::journal::survey::{FrameSpot, JournalSurvey, MissingFrames};
use crate::manifest::{ManifestSnapshot, TopicItem};
use crate::record;

/// The events and topics of a journal.
#[derive(Debug, Default)]
pub(super) struct JournalFold<'a> {
    /// The bytes of valid records, by topic and offset.
    pub(super) records: BTreeMap<(u32, u64), &'a [u8]>,
    /// The ids of damaged records whose header verifies.
    pub(super) damaged: BTreeMap<(u32, u64), EventId>,
    created: BTreeMap<u32, TopicName>,
    deleted: BTreeSet<u32>,
    /// Topics with events after the checkpoint.
    alive: BTreeSet<u32>,
    /// The most events that missing frames can have had, all together so far.
    missing: u64,
    /// That number when an event of the topic was last seen.
    missing_at: BTreeMap<u32, u64>,
}

impl<'a> JournalFold<'a> {
    /// The records that the journal has beside the segments.
    pub(super) fn copies(survey: &'a JournalSurvey) -> JournalFold<'a> {
        let mut fold = JournalFold::default();
        survey.older.values().for_each(|spot| fold.add_frame(survey, spot, false));
        fold
    }

    /// All that the journal has, in the order of its frames. `snapshot` is the state at the checkpoint.
    pub(super) fn of(survey: &'a JournalSurvey, snapshot: &ManifestSnapshot) -> JournalFold<'a> {
        let mut fold = JournalFold::copies(survey);
        let mut missing = survey.missing.iter().peekable();
        for (lsn, spot) in &survey.frames {
            while let Some(gap) = missing.next_if(|gap| gap.lsns.start < *lsn) {
                fold.add_gap(survey, gap, snapshot);
            }
            fold.add_frame(survey, spot, true);
        }
        missing.for_each(|gap| fold.add_gap(survey, gap, snapshot));
        fold
    }

    /// The most events that a topic can have lost after its last known one.
    pub(super) fn unknown_after(&self, topic: u32) -> u64 {
        self.missing - self.missing_at.get(&topic).copied().unwrap_or(0)
    }

    /// Whether the journal deletes the topic.
    pub(super) fn has_deleted(&self, topic: u32) -> bool {
        self.deleted.contains(&topic)
    }

    /// The records of one topic.
    pub(super) fn of_topic(&self, topic: u32) -> impl Iterator<Item = (u64, &'a [u8])> {
        self.records.range((topic, 0)..=(topic, u64::MAX)).map(|((_, offset), bytes)| (*offset, *bytes))
    }

    fn add_frame(&mut self, survey: &'a JournalSurvey, spot: &FrameSpot, controls: bool) {
        let Some(view) = survey.view(spot) else { return };
        for control in view.controls().filter(|_| controls) {
            self.add_control(&control);
        }
        let mut rest = view.records;
        while let Ok(found) = record::parse(rest) {
            let bytes = rest.get(..found.len).unwrap_or_default();
            self.records.insert((found.topic, found.offset), bytes);
            self.missing_at.insert(found.topic, self.missing);
            if controls {
                self.alive.insert(found.topic);
            }
            rest = rest.get(found.len..).unwrap_or_default();
        }
    }

    fn add_control(&mut self, control: &Control<'_>) {
        match control {
            Control::Create { topic, name } => {
                if let Ok(name) = name.parse() {
                    self.created.insert(*topic, name);
                    self.missing_at.insert(*topic, self.missing);
                }
            }
            Control::Delete { topic } => {
                self.deleted.insert(*topic);
            }
        }
    }

    /// Takes what can be read of missing frames. Files are used again and again, so only events that can come
    /// after the checkpoint are taken.
    fn add_gap(&mut self, survey: &'a JournalSurvey, gap: &'a MissingFrames, snapshot: &ManifestSnapshot) {
        let created: BTreeSet<u32> = self.created.keys().chain(&self.alive).copied().collect();
        let known = |topic: u32, offset: u64| match snapshot.topics.get(&topic) {
            Some(item) => offset >= item.next_offset,
            None => topic >= snapshot.next_topic || created.contains(&topic),
        };
        let mut found_events = 0;
        for bytes in survey.remains(gap) {
            let found = find_records(bytes, 0, known);
            found_events += (found.records.len() + found.damaged.len()) as u64;
            if frame::claims_more_events(bytes, found.records.len()) {
                // These bytes do not verify, so no topic is deleted because of them.
                let creates = |control: &Control<'_>| matches!(control, Control::Create { .. });
                frame::claimed_controls(bytes).filter(creates).for_each(|control| self.add_control(&control));
            }
            self.alive.extend(found.records.keys().map(|(topic, _)| *topic));
            self.damaged.extend(found.damaged);
            let records = found.records.into_iter();
            self.records.extend(records.map(|(place, range)| (place, bytes.get(range).unwrap_or_default())));
        }
        self.missing += gap.events_max.saturating_sub(found_events);
    }

    /// Adds the topics that the journal created, and removes the topics that it deleted.
    pub(super) fn add_topics(&self, snapshot: &mut ManifestSnapshot, report: &mut LogRepairReport) {
        for (id, name) in &self.created {
            let fresh = TopicItem { id: *id, name: name.clone(), next_offset: 0, earliest: 0, last_stamp: 0 };
            snapshot.topics.entry(*id).or_insert(fresh);
            snapshot.next_topic = snapshot.next_topic.max(id.saturating_add(1));
        }
        for topic in &self.deleted {
            snapshot.topics.remove(topic);
            snapshot.segments.retain(|(of, _), _| of != topic);
        }
        super::topics::name_unknown(snapshot, self.alive.difference(&self.deleted).copied(), report);
    }
}
