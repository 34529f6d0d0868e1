//! The sum of a manifest's edits.

use std::collections::BTreeMap;

use super::edit::{Edit, RunItem, TopicItem};
use crate::segment::SegmentMeta;

/// What exists, as of the last durable edit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) checkpoint_lsn: u64,
    pub(crate) journal_sequence: u64,
    pub(crate) state_lsn: u64,
    pub(crate) next_topic: u32,
    pub(crate) next_run: u64,
    pub(crate) topics: BTreeMap<u32, TopicItem>,
    /// By topic and base offset: a new generation takes the place of the old.
    pub(crate) segments: BTreeMap<(u32, u64), SegmentMeta>,
    pub(crate) runs: BTreeMap<u64, RunItem>,
}

impl Snapshot {
    pub(crate) fn apply(&mut self, edit: Edit) {
        self.checkpoint_lsn = edit.checkpoint_lsn;
        self.journal_sequence = edit.journal_sequence;
        self.state_lsn = edit.state_lsn;
        self.next_topic = edit.next_topic;
        self.next_run = edit.next_run;
        for topic in edit.dropped_topics {
            self.topics.remove(&topic);
            self.segments.retain(|(of, _), _| *of != topic);
        }
        for id in edit.dropped_segments {
            let key = (id.topic, id.base);
            if self.segments.get(&key).is_some_and(|segment| segment.id == id) {
                self.segments.remove(&key);
            }
        }
        for number in edit.dropped_runs {
            self.runs.remove(&number);
        }
        self.topics.extend(edit.topics.into_iter().map(|topic| (topic.id, topic)));
        self.segments
            .extend(edit.segments.into_iter().map(|segment| ((segment.id.topic, segment.id.base), segment)));
        self.runs.extend(edit.runs.into_iter().map(|run| (run.number, run)));
    }
}
