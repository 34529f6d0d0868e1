//! The records of one topic, from its segments and the journal: whole segments stay as they are, all other
//! records that verify go to new segments.

use std::collections::BTreeMap;
use std::ops::Range;

use promethean_model::EventId;

use super::files::RepairFiles;
use super::journal_fold::JournalFold;
use super::report::{LogRepairReport, LostEvents};
use super::salvage::{count_whole, find_records};
use crate::error::LogOpenError;
use crate::manifest::{ManifestSnapshot, TopicItem};
use crate::record;
use crate::segment::{HEADER_BYTES, SAMPLE_EVERY, Sample, SegmentId, SegmentMeta};

/// The size at which a new segment is closed.
const SEGMENT_BYTES: u64 = 64 * 1024 * 1024;
/// The most ranges of lost events that are listed for one topic; the last one then covers the rest.
const RANGES_MAX: usize = 1000;

/// Gives a name to every topic of these that has none: `recovered.` and its number.
pub(super) fn name_unknown(
    snapshot: &mut ManifestSnapshot,
    topics: impl Iterator<Item = u32>,
    report: &mut LogRepairReport,
) {
    for id in topics {
        if snapshot.topics.contains_key(&id) {
            continue;
        }
        let Ok(name) = format!("recovered.{id:08x}").parse() else { continue };
        report.notes.push(format!("the name of topic {id} is lost: its events are served as `{name}`"));
        snapshot.topics.insert(id, TopicItem { id, name, next_offset: 0, earliest: 0, last_stamp: 0 });
        snapshot.next_topic = snapshot.next_topic.max(id.saturating_add(1));
    }
}

/// Leaves a name to the newest topic that has it. Where the edit that dropped a topic is lost, the topic comes
/// back beside one that was made later under the same name; it is forgotten if it has no events.
pub(super) fn separate_names(
    snapshot: &mut ManifestSnapshot,
    has_events: impl Fn(u32) -> bool,
    report: &mut LogRepairReport,
) {
    let newest: BTreeMap<_, u32> =
        snapshot.topics.values().map(|item| (item.name.clone(), item.id)).collect();
    let older = snapshot.topics.values().filter(|item| newest.get(&item.name) != Some(&item.id));
    let older: Vec<u32> = older.map(|item| item.id).collect();
    for id in older {
        let Some(mut item) = snapshot.topics.remove(&id) else { continue };
        if !has_events(id) {
            snapshot.segments.retain(|(of, _), _| *of != id);
            continue;
        }
        let Ok(name) = format!("recovered.{id:08x}").parse() else { continue };
        report.notes.push(format!(
            "topic `{}` was probably deleted and made again: its earlier events are served as `{name}`",
            item.name
        ));
        item.name = name;
        snapshot.topics.insert(id, item);
    }
}

/// The repair of one topic.
pub(super) struct TopicRepair {
    pub(super) item: TopicItem,
    /// The segment files that are there.
    pub(super) there: Vec<SegmentId>,
    /// Whether the manifest or the journal is damaged: then all files and the journal are taken together.
    pub(super) fold: bool,
    pub(super) now_ms: i64,
}

/// What the repair of a topic has found so far.
#[derive(Default)]
struct TopicFindings {
    /// Whole segments.
    kept: Vec<SegmentMeta>,
    /// Segments that the manifest names and that are not whole.
    broken: Vec<SegmentMeta>,
    /// Records that are in no kept segment, by offset.
    extra: BTreeMap<u64, Vec<u8>>,
    /// The ids of damaged records.
    damaged: BTreeMap<u64, EventId>,
    /// Offsets of compacted segments that may have had an event.
    uncertain: Vec<Range<u64>>,
    /// Files to be set aside.
    set_aside: Vec<String>,
}

impl TopicRepair {
    /// Writes new segments where they are needed, and names them in `snapshot`. Returns the files that they
    /// replace.
    pub(super) fn run(
        mut self,
        files: &RepairFiles,
        journal: &JournalFold<'_>,
        snapshot: &mut ManifestSnapshot,
        report: &mut LogRepairReport,
    ) -> Result<Vec<String>, LogOpenError> {
        let id = self.item.id;
        let range = (id, 0)..=(id, u64::MAX);
        let named: Vec<SegmentMeta> = snapshot.segments.range(range).map(|(_, meta)| *meta).collect();
        let mut found = TopicFindings::default();
        for meta in &named {
            self.look_at(files, meta.id, Some(meta), &mut found, report)?;
        }
        if self.fold {
            let mut unnamed: Vec<SegmentId> = self.there.clone();
            unnamed.retain(|id| !named.iter().any(|meta| meta.id == *id));
            unnamed.sort_unstable_by_key(|id| (id.generation, id.base));
            for id in unnamed {
                self.look_at(files, id, None, &mut found, report)?;
            }
        }
        self.take_from_journal(journal, &mut found);
        self.name_lost(journal, &found, report);
        if found.kept.len() == named.len() && found.extra.is_empty() && found.kept == named && !self.fold {
            return Ok(Vec::new());
        }
        let written = self.write_extra(files, &named, &found)?;
        if !written.is_empty() && !found.broken.is_empty() {
            let events: u64 = written.iter().map(|meta| meta.records).sum();
            let name = &self.item.name;
            report.steps.push(format!("write the {events} good events of topic `{name}` to new segments"));
        }
        self.finish_item(journal, &found, snapshot, written);
        Ok(found.set_aside)
    }

    /// Looks at a file: keeps it, or takes its records.
    fn look_at(
        &self,
        files: &RepairFiles,
        id: SegmentId,
        named: Option<&SegmentMeta>,
        found: &mut TopicFindings,
        report: &mut LogRepairReport,
    ) -> Result<(), LogOpenError> {
        let path = id.path();
        let Some(bytes) = files.read_if_there(&path)? else {
            report.faults.push(format!("{path} is missing (topic `{}`)", self.item.name));
            found.broken.extend(named);
            return Ok(());
        };
        let whole = self.whole(&bytes, id, named);
        let overlaps = |meta: &SegmentMeta| {
            found.kept.iter().any(|kept| kept.id.base < meta.end && meta.id.base < kept.end)
        };
        if let Some(meta) = whole.filter(|meta| meta.records == 0 || !overlaps(meta)) {
            if self.fold && (meta.bytes as usize) < bytes.len() {
                self.take_records(&bytes, meta.bytes as usize, found);
            }
            found.kept.push(meta);
            return Ok(());
        }
        if let Some(meta) = named {
            report.faults.push(format!("{path} is damaged (topic `{}`)", self.item.name));
            found.broken.push(*meta);
        }
        found.set_aside.extend([path, id.samples_path()]);
        let positions = self.take_records(&bytes, 0, found);
        let last = positions.iter().map(|(_, _, offset)| offset + 1).max().unwrap_or(id.base);
        let unnamed = SegmentMeta { end: last + 1, bytes: bytes.len() as u64, ..SegmentMeta::new(id, 0) };
        if let Some(meta) = named.or(Some(&unnamed)).filter(|meta| meta.id.generation > 0 || named.is_none())
        {
            found.uncertain.extend(gaps_between(&positions, meta));
        }
        Ok(())
    }

    /// The facts of a segment file that is whole; `None` if it is not. A file may be longer than the manifest
    /// says; a fold takes it as it is, if all of it verifies.
    fn whole(&self, bytes: &[u8], id: SegmentId, named: Option<&SegmentMeta>) -> Option<SegmentMeta> {
        if bytes.get(..HEADER_BYTES as usize) != Some(&id.encode_header()) {
            return None;
        }
        let count = |to: usize, end: u64| {
            let mut next = id.base;
            count_whole(bytes, HEADER_BYTES as usize, to, |topic, offset| {
                let fits = offset == next || (id.generation > 0 && offset > next);
                next = offset + 1;
                topic == id.topic && fits && offset < end
            })
        };
        let as_named = named.filter(|meta| count(meta.bytes as usize, meta.end) == Some(meta.records));
        if !self.fold || (named.is_some() && as_named.is_none()) {
            return as_named.copied();
        }
        if as_named.is_some_and(|meta| meta.bytes == bytes.len() as u64)
            || count(bytes.len(), u64::MAX).is_none()
        {
            return as_named.copied();
        }
        let start = as_named.copied().unwrap_or_else(|| SegmentMeta::new(id, self.now_ms));
        let mut meta = SegmentMeta { samples: 0, ..start };
        let mut rest = bytes.get(start.bytes as usize..).unwrap_or_default();
        while let Ok(view) = record::parse(rest) {
            meta.add(view.offset, view.len, view.ts, self.now_ms);
            rest = rest.get(view.len..).unwrap_or_default();
        }
        meta.samples = start.samples;
        Some(meta)
    }

    /// Takes the records of this topic that no kept segment has. Returns their places.
    fn take_records(&self, bytes: &[u8], from: usize, found: &mut TopicFindings) -> Vec<(usize, usize, u64)> {
        let salvaged =
            find_records(bytes, from, |topic, offset| topic == self.item.id && offset >= self.item.earliest);
        found.damaged.extend(salvaged.damaged.into_iter().map(|((_, offset), id)| (offset, id)));
        let mut positions = Vec::with_capacity(salvaged.records.len());
        for ((_, offset), range) in salvaged.records {
            positions.push((range.start, range.end, offset));
            let record = bytes.get(range).unwrap_or_default();
            found.extra.entry(offset).or_insert_with(|| record.to_vec());
        }
        positions.sort_unstable();
        positions
    }

    /// Takes records of the journal: all of them in a fold, otherwise the records that broken segments lost.
    fn take_from_journal(&self, journal: &JournalFold<'_>, found: &mut TopicFindings) {
        for (offset, bytes) in journal.of_topic(self.item.id) {
            let wanted =
                self.fold || found.broken.iter().any(|meta| meta.id.base <= offset && offset < meta.end);
            if wanted && offset >= self.item.earliest {
                found.extra.entry(offset).or_insert_with(|| bytes.to_vec());
            }
        }
        let kept = std::mem::take(&mut found.kept);
        let within = |of: &[SegmentMeta], offset: u64| {
            of.iter().any(|meta| meta.id.base <= offset && offset < meta.end)
        };
        // Without a fold the journal repeats what came after the checkpoint.
        let wanted = |offset: u64| self.fold || within(&found.broken, offset);
        found.extra.retain(|offset, _| wanted(*offset) && !within(&kept, *offset));
        found.kept = kept;
        let damaged = journal.damaged.range((self.item.id, 0)..=(self.item.id, u64::MAX));
        found.damaged.extend(damaged.map(|((_, offset), id)| (*offset, *id)));
    }

    /// The first offset after all events that are known to have been there.
    fn known_end(&self, found: &TopicFindings) -> u64 {
        let ends = [
            Some(self.item.next_offset),
            found.kept.iter().map(|meta| meta.end).max(),
            found.extra.keys().next_back().map(|offset| offset + 1),
            found.damaged.keys().next_back().map(|offset| offset + 1),
        ];
        ends.into_iter().flatten().max().unwrap_or(0)
    }

    fn name_lost(&self, journal: &JournalFold<'_>, found: &TopicFindings, report: &mut LogRepairReport) {
        let mut lost = Vec::new();
        for meta in &found.broken {
            if meta.id.generation == 0 {
                let range = meta.id.base.max(self.item.earliest)..meta.end;
                // A manifest that lost its last edits may name segments that compaction has replaced.
                let is_certain =
                    self.there.contains(&meta.id) || self.there.iter().all(|id| id.generation == 0);
                lost.extend(missing_in(range, found).map(|range| (range, is_certain)));
            } else if !self.there.contains(&meta.id) {
                lost.push((meta.id.base..meta.end, false));
            }
        }
        let recovered = |range: &Range<u64>| missing_in(range.clone(), found).next();
        lost.extend(found.uncertain.iter().filter_map(recovered).map(|range| (range, false)));
        if self.fold {
            let end = self.known_end(found);
            lost.extend(missing_in(self.item.next_offset..end, found).map(|range| (range, true)));
            let unknown = journal.unknown_after(self.item.id);
            if unknown > 0 {
                lost.push((end..end + unknown, false));
            }
        }
        if let Some((rest, _)) = lost.get(RANGES_MAX).cloned() {
            let end = lost.iter().map(|(range, _)| range.end).max().unwrap_or(rest.end);
            lost.truncate(RANGES_MAX);
            lost.push((rest.start..end, false));
        }
        for (range, is_certain) in lost {
            let ids = found.damaged.iter().map(|(offset, id)| (*offset, *id));
            let name = self.item.name.as_str();
            report.lost.push(LostEvents::new(name, range.start, range.end, is_certain).with_ids(ids));
        }
    }

    /// Writes the extra records to new segments, none of which spans a kept one.
    fn write_extra(
        &self,
        files: &RepairFiles,
        named: &[SegmentMeta],
        found: &TopicFindings,
    ) -> Result<Vec<SegmentMeta>, LogOpenError> {
        let generations =
            self.there.iter().map(|id| id.generation).chain(named.iter().map(|meta| meta.id.generation));
        let generation = generations.max().unwrap_or(0) + 1;
        let mut written = Vec::new();
        let mut open: Option<NewSegment> = None;
        for (offset, bytes) in &found.extra {
            let spans = |segment: &NewSegment| {
                found.kept.iter().any(|kept| segment.meta.end <= kept.id.base && kept.id.base <= *offset)
            };
            let ends = |segment: &NewSegment| {
                spans(segment) || segment.meta.bytes + bytes.len() as u64 > SEGMENT_BYTES
            };
            if let Some(done) = open.take_if(|segment| ends(segment)) {
                written.push(done.write(files)?);
            }
            let original = named.iter().find(|meta| meta.id.base <= *offset && *offset < meta.end);
            let id = SegmentId { topic: self.item.id, base: *offset, generation };
            let segment = open.get_or_insert_with(|| {
                NewSegment::new(id, original.map_or(self.now_ms, |meta| meta.first_append))
            });
            segment.add(*offset, bytes, original.map_or(self.now_ms, |meta| meta.last_append));
        }
        if let Some(last) = open {
            written.push(last.write(files)?);
        }
        Ok(written)
    }

    /// Puts the topic and its segments into the manifest.
    fn finish_item(
        &mut self,
        journal: &JournalFold<'_>,
        found: &TopicFindings,
        snapshot: &mut ManifestSnapshot,
        written: Vec<SegmentMeta>,
    ) {
        let id = self.item.id;
        let is_new = self.item.next_offset == 0;
        let stamps = found.extra.values().filter_map(|bytes| record::parse(bytes).ok());
        let stamps = stamps.filter(|view| view.server_stamped).map(|view| view.ts);
        self.item.last_stamp = stamps.fold(self.item.last_stamp, i64::max);
        if self.fold {
            self.item.next_offset = self.known_end(found) + journal.unknown_after(id);
        }
        snapshot.segments.retain(|(of, _), _| *of != id);
        for meta in found.kept.iter().chain(&written) {
            if is_new {
                self.item.last_stamp = self.item.last_stamp.max(meta.max_ts);
            }
            snapshot.segments.insert((id, meta.id.base), *meta);
        }
        snapshot.topics.insert(id, self.item.clone());
    }
}

/// The offsets of a range that have no event in kept segments or among the extra records.
fn missing_in(range: Range<u64>, found: &TopicFindings) -> impl Iterator<Item = Range<u64>> {
    let range = range.start.min(range.end)..range.end;
    let mut present: Vec<Range<u64>> = found.kept.iter().map(|meta| meta.id.base..meta.end).collect();
    present.extend(found.extra.range(range.clone()).map(|(offset, _)| *offset..offset + 1));
    present.sort_unstable_by_key(|range| range.start);
    let mut next = range.start;
    present.push(range.end..range.end);
    present.into_iter().filter_map(move |present| {
        let gap = next..present.start.min(range.end);
        next = next.max(present.end);
        (gap.start < gap.end).then_some(gap)
    })
}

/// The offsets between records that do not follow each other in a file.
fn gaps_between(positions: &[(usize, usize, u64)], meta: &SegmentMeta) -> Vec<Range<u64>> {
    let mut gaps = Vec::new();
    let (mut at, mut next) = (HEADER_BYTES as usize, meta.id.base);
    for (start, end, offset) in positions {
        if *start != at && next < *offset {
            gaps.push(next..*offset);
        }
        (at, next) = (*end, offset + 1);
    }
    if (at as u64) < meta.bytes && next < meta.end {
        gaps.push(next..meta.end);
    }
    gaps
}

/// A segment that a repair makes.
struct NewSegment {
    meta: SegmentMeta,
    bytes: Vec<u8>,
    samples: Vec<u8>,
    sampled_at: u64,
}

impl NewSegment {
    fn new(id: SegmentId, first_append: i64) -> NewSegment {
        let meta = SegmentMeta::new(id, first_append);
        NewSegment { meta, bytes: id.encode_header().to_vec(), samples: Vec::new(), sampled_at: HEADER_BYTES }
    }

    fn add(&mut self, offset: u64, record: &[u8], appended: i64) {
        let ts = record::parse(record).map_or(appended, |view| view.ts);
        let pos = self.meta.bytes;
        if pos >= self.sampled_at + SAMPLE_EVERY {
            let sample = Sample { offset, max_ts: self.meta.max_ts, pos: pos as u32 };
            self.samples.extend_from_slice(&sample.encode(self.meta.id.topic));
            self.meta.samples += 1;
            self.sampled_at = pos;
        }
        self.meta.add(offset, record.len(), ts, appended);
        self.bytes.extend_from_slice(record);
    }

    fn write(self, files: &RepairFiles) -> Result<SegmentMeta, LogOpenError> {
        let (path, samples_path) = (self.meta.id.path(), self.meta.id.samples_path());
        if self.meta.samples > 0 {
            files.write_new(&samples_path, &format!("{samples_path}.new"), &self.samples)?;
        }
        files.write_new(&path, &format!("{path}.new"), &self.bytes)?;
        Ok(self.meta)
    }
}
