//! One change of the manifest as bytes, and the snapshot that all changes add up to.

use std::collections::BTreeMap;

use promethean_model::TopicName;

use crate::bytes::Fields;
use crate::segment::{SegmentId, SegmentMeta};

const TOPIC: u8 = 1;
const SEGMENT: u8 = 2;
const DROP_SEGMENT: u8 = 3;
const DROP_TOPIC: u8 = 4;
const RUN: u8 = 5;
const DROP_RUN: u8 = 6;
/// The checksum of the topic item right before it, so that the item can be trusted in an edit that does not
/// verify.
const TOPIC_SEAL: u8 = 7;

/// One change of the manifest. Drops are applied before additions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) checkpoint_lsn: u64,
    /// Sequence of the oldest journal file that is needed; 0 before the first file was used.
    pub(crate) journal_sequence: u64,
    pub(crate) state_lsn: u64,
    pub(crate) next_topic: u32,
    pub(crate) next_run: u64,
    pub(crate) dropped_topics: Vec<u32>,
    pub(crate) dropped_segments: Vec<SegmentId>,
    pub(crate) dropped_runs: Vec<u64>,
    pub(crate) topics: Vec<TopicItem>,
    pub(crate) segments: Vec<SegmentMeta>,
    pub(crate) runs: Vec<RunItem>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicItem {
    pub(crate) id: u32,
    pub(crate) name: TopicName,
    pub(crate) next_offset: u64,
    pub(crate) earliest: u64,
    pub(crate) last_stamp: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunItem {
    pub(crate) number: u64,
    pub(crate) kind: u8,
    pub(crate) level: u8,
}

impl Edit {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for value in [self.checkpoint_lsn, self.journal_sequence, self.state_lsn] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&self.next_topic.to_le_bytes());
        out.extend_from_slice(&self.next_run.to_le_bytes());
        for topic in &self.dropped_topics {
            out.push(DROP_TOPIC);
            out.extend_from_slice(&topic.to_le_bytes());
        }
        for id in &self.dropped_segments {
            out.push(DROP_SEGMENT);
            encode_segment_id(&mut out, id);
        }
        for number in &self.dropped_runs {
            out.push(DROP_RUN);
            out.extend_from_slice(&number.to_le_bytes());
        }
        for topic in &self.topics {
            encode_topic(&mut out, topic);
        }
        for segment in &self.segments {
            encode_segment(&mut out, segment);
        }
        for run in &self.runs {
            out.push(RUN);
            out.extend_from_slice(&run.number.to_le_bytes());
            out.extend_from_slice(&[run.kind, run.level]);
        }
        out
    }

    pub(crate) fn decode(body: &[u8]) -> Option<Edit> {
        let mut fields = Fields(body);
        let mut edit = Edit {
            checkpoint_lsn: fields.u64()?,
            journal_sequence: fields.u64()?,
            state_lsn: fields.u64()?,
            next_topic: fields.u32()?,
            next_run: fields.u64()?,
            ..Edit::default()
        };
        while !fields.is_empty() {
            match fields.u8()? {
                TOPIC => edit.topics.push(decode_topic(&mut fields)?),
                SEGMENT => edit.segments.push(decode_segment(&mut fields)?),
                DROP_SEGMENT => edit.dropped_segments.push(decode_segment_id(&mut fields)?),
                DROP_TOPIC => edit.dropped_topics.push(fields.u32()?),
                RUN => {
                    edit.runs.push(RunItem {
                        number: fields.u64()?,
                        kind: fields.u8()?,
                        level: fields.u8()?,
                    });
                }
                DROP_RUN => edit.dropped_runs.push(fields.u64()?),
                TOPIC_SEAL => {
                    fields.u32()?;
                }
                _ => return None,
            }
        }
        Some(edit)
    }
}

/// The topics, segments and runs that exist after the last durable edit.
#[derive(Debug, Clone, Default)]
pub(crate) struct ManifestSnapshot {
    pub(crate) checkpoint_lsn: u64,
    pub(crate) journal_sequence: u64,
    pub(crate) state_lsn: u64,
    pub(crate) next_topic: u32,
    pub(crate) next_run: u64,
    pub(crate) topics: BTreeMap<u32, TopicItem>,
    /// Segments by topic and base offset: a new generation replaces the old one.
    pub(crate) segments: BTreeMap<(u32, u64), SegmentMeta>,
    pub(crate) runs: BTreeMap<u64, RunItem>,
}

impl ManifestSnapshot {
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

fn encode_topic(out: &mut Vec<u8>, topic: &TopicItem) {
    let start = out.len();
    out.push(TOPIC);
    out.extend_from_slice(&topic.id.to_le_bytes());
    let name = topic.name.as_str();
    out.extend_from_slice(&(name.len() as u16).to_le_bytes());
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(&topic.next_offset.to_le_bytes());
    out.extend_from_slice(&topic.earliest.to_le_bytes());
    out.extend_from_slice(&topic.last_stamp.to_le_bytes());
    let seal = crc32c::crc32c(out.get(start..).unwrap_or_default());
    out.push(TOPIC_SEAL);
    out.extend_from_slice(&seal.to_le_bytes());
}

/// Finds the sealed topic items in bytes that are no valid edit.
pub(super) fn sealed_topics(bytes: &[u8]) -> Vec<TopicItem> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while let Some((tag, after)) = rest.split_first() {
        let mut fields = Fields(after);
        let item = if *tag == TOPIC { decode_topic(&mut fields) } else { None };
        let item_bytes = rest.get(..rest.len() - fields.0.len()).unwrap_or_default();
        let sealed = item
            .filter(|_| fields.u8() == Some(TOPIC_SEAL) && fields.u32() == Some(crc32c::crc32c(item_bytes)));
        match sealed {
            Some(item) => {
                found.push(item);
                rest = fields.0;
            }
            None => rest = after,
        }
    }
    found
}

fn decode_topic(fields: &mut Fields<'_>) -> Option<TopicItem> {
    let id = fields.u32()?;
    let len = fields.u16()? as usize;
    let name = std::str::from_utf8(fields.bytes(len)?).ok()?.parse().ok()?;
    Some(TopicItem {
        id,
        name,
        next_offset: fields.u64()?,
        earliest: fields.u64()?,
        last_stamp: fields.i64()?,
    })
}

fn encode_segment_id(out: &mut Vec<u8>, id: &SegmentId) {
    out.extend_from_slice(&id.topic.to_le_bytes());
    out.extend_from_slice(&id.base.to_le_bytes());
    out.extend_from_slice(&id.generation.to_le_bytes());
}

fn decode_segment_id(fields: &mut Fields<'_>) -> Option<SegmentId> {
    Some(SegmentId { topic: fields.u32()?, base: fields.u64()?, generation: fields.u32()? })
}

fn encode_segment(out: &mut Vec<u8>, segment: &SegmentMeta) {
    out.push(SEGMENT);
    encode_segment_id(out, &segment.id);
    out.extend_from_slice(&segment.end.to_le_bytes());
    out.extend_from_slice(&segment.bytes.to_le_bytes());
    out.extend_from_slice(&segment.samples.to_le_bytes());
    for value in [segment.min_ts, segment.max_ts, segment.first_append, segment.last_append] {
        out.extend_from_slice(&value.to_le_bytes());
    }
    out.extend_from_slice(&segment.records.to_le_bytes());
}

fn decode_segment(fields: &mut Fields<'_>) -> Option<SegmentMeta> {
    Some(SegmentMeta {
        id: decode_segment_id(fields)?,
        end: fields.u64()?,
        bytes: fields.u64()?,
        samples: fields.u32()?,
        min_ts: fields.i64()?,
        max_ts: fields.i64()?,
        first_append: fields.i64()?,
        last_append: fields.i64()?,
        records: fields.u64()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_survives_encoding() {
        let id = SegmentId { topic: 7, base: 100, generation: 2 };
        let mut segment = SegmentMeta::new(id, 5);
        segment.add(100, 64, -3, 9);
        let edit = Edit {
            checkpoint_lsn: 1,
            journal_sequence: 2,
            state_lsn: 3,
            next_topic: 4,
            next_run: 5,
            dropped_topics: vec![6],
            dropped_segments: vec![id],
            dropped_runs: vec![8],
            topics: vec![TopicItem {
                id: 7,
                name: "a.b".parse().unwrap(),
                next_offset: 101,
                earliest: 4,
                last_stamp: -1,
            }],
            segments: vec![segment],
            runs: vec![RunItem { number: 9, kind: 1, level: 3 }],
        };
        let bytes = edit.encode();
        assert_eq!(sealed_topics(&bytes[30..]), edit.topics);
        let mut misnamed = bytes.clone();
        let at = bytes.windows(3).position(|window| window == b"a.b").unwrap();
        misnamed[at] ^= 2;
        assert_eq!(sealed_topics(&misnamed), []);
        assert_eq!(Edit::decode(&bytes), Some(edit));
        for len in 0..bytes.len() {
            let _ = Edit::decode(&bytes[..len]);
        }
    }
}
