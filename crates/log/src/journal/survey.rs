//! A survey of a journal that may be damaged: which frames it still has, and which are missing. It writes
//! nothing.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use memchr::memmem;

use super::frame::{self, FrameView};
use super::{DIR, FRAMES_AT, FileHeader, HEADER_BYTES, UNFINISHED, file_name, file_number};
use crate::disk::Disk;

/// How many sequences are tried for a file whose header is damaged.
const SEQUENCES_TRIED: u64 = 64;

/// The position of a valid frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameSpot {
    /// The index of its file in [`JournalSurvey::files`].
    file: usize,
    at: usize,
    len: usize,
    /// Whether its body verifies and its header does not.
    headless: bool,
}

/// Frames that were synced and cannot be read.
#[derive(Debug, Clone)]
pub(crate) struct MissingFrames {
    /// Their LSNs; empty if only their bytes are known to be lost.
    pub(crate) lsns: Range<u64>,
    /// The bytes that may hold parts of them, as index of the file and range.
    regions: Vec<(usize, Range<usize>)>,
    /// The most events that the frames can have had.
    pub(crate) events_max: u64,
}

/// A file of the journal.
#[derive(Debug)]
pub(crate) struct SurveyedFile {
    pub(crate) path: String,
    bytes: Arc<Vec<u8>>,
    sequence: u64,
    /// `None` if the header is damaged.
    base_lsn: Option<u64>,
    /// The length of the file when it was made; its length now if the header is damaged.
    made_bytes: u64,
    /// The end of the last valid frame.
    end: usize,
    /// The highest durable mark in it.
    mark: u64,
}

/// What a journal still has.
#[derive(Debug, Default)]
pub(crate) struct JournalSurvey {
    /// The files in use, oldest first.
    pub(crate) files: Vec<SurveyedFile>,
    /// Valid frames above the checkpoint, by LSN.
    pub(crate) frames: BTreeMap<u64, FrameSpot>,
    /// Valid frames at or below the checkpoint, whose records are also in segments.
    pub(crate) older: BTreeMap<u64, FrameSpot>,
    /// Further copies of valid frames, with their LSNs.
    copies: Vec<(u64, FrameSpot)>,
    pub(crate) missing: Vec<MissingFrames>,
    /// The LSN of the last frame that was acknowledged.
    pub(crate) last_lsn: u64,
    /// The highest sequence of any file.
    pub(crate) sequence_max: u64,
    pub(crate) next_number: u32,
    /// Why the journal cannot be used as it is; empty if it can.
    pub(crate) faults: Vec<String>,
}

/// The place in the journal from which frames are needed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SurveyStart {
    pub(crate) checkpoint_lsn: u64,
    /// The oldest file that is needed; 0 if that is not known.
    pub(crate) first_sequence: u64,
    /// The last LSN that the state has applied: all up to it was synced.
    pub(crate) applied_lsn: u64,
}

impl JournalSurvey {
    /// Reads all files of the journal.
    pub(crate) fn read(disk: &dyn Disk, start: SurveyStart) -> io::Result<JournalSurvey> {
        let mut survey = JournalSurvey::default();
        let headless = survey.list(disk, start)?;
        survey.adopt_headless(headless, start);
        survey.files.sort_by_key(|file| file.sequence);
        survey.check_files(start);
        survey.collect_frames(start);
        survey.find_missing(start);
        Ok(survey)
    }

    /// Whether the journal can be used as it is.
    pub(crate) fn is_whole(&self) -> bool {
        self.faults.is_empty()
    }

    /// Whether the files follow each other.
    pub(crate) fn has_no_gap(&self) -> bool {
        self.files
            .iter()
            .zip(self.files.iter().skip(1))
            .all(|(file, next)| next.sequence == file.sequence + 1)
    }

    /// The LSN of the first frame in the last files that follow each other, if the first of them says it.
    pub(crate) fn last_stretch_base(&self) -> Option<u64> {
        let mut stretch = self.files.last()?;
        for file in self.files.iter().rev().skip(1) {
            if file.sequence + 1 != stretch.sequence {
                break;
            }
            stretch = file;
        }
        stretch.base_lsn
    }

    /// The LSN of the first frame, if the first file says it.
    fn base_lsn(&self) -> Option<u64> {
        self.files.first().and_then(|file| file.base_lsn)
    }

    /// The sequence of the first file.
    pub(crate) fn first_sequence(&self) -> Option<u64> {
        self.files.first().map(|file| file.sequence)
    }

    /// The bytes of a frame.
    pub(crate) fn bytes(&self, spot: &FrameSpot) -> &[u8] {
        let file = self.files.get(spot.file).map(|file| file.bytes.as_slice());
        file.and_then(|bytes| bytes.get(spot.at..spot.at + spot.len)).unwrap_or_default()
    }

    /// The parts of a frame.
    pub(crate) fn view(&self, spot: &FrameSpot) -> Option<FrameView<'_>> {
        if spot.headless {
            return frame::parse_headless(self.bytes(spot));
        }
        frame::parse(self.bytes(spot), frame::salt(self.files.get(spot.file)?.sequence))
    }

    /// The bytes that may hold parts of missing frames.
    pub(crate) fn remains<'a>(&'a self, missing: &'a MissingFrames) -> impl Iterator<Item = &'a [u8]> {
        missing.regions.iter().filter_map(|(file, range)| self.files.get(*file)?.bytes.get(range.clone()))
    }

    /// Reads the files with valid headers. Returns the others, with the bytes of each.
    fn list(&mut self, disk: &dyn Disk, start: SurveyStart) -> io::Result<Vec<(String, Vec<u8>)>> {
        let mut headless = Vec::new();
        for name in disk.list(DIR)? {
            let Some(number) = file_number(&name).filter(|_| !name.ends_with(UNFINISHED)) else { continue };
            self.next_number = self.next_number.max(number + 1);
            let path = file_name(number);
            let file = disk.open(&path)?;
            let header = FileHeader::decode(&file.read_vec_at(0, FRAMES_AT as usize)?);
            if let Some(header) = header {
                self.sequence_max = self.sequence_max.max(header.sequence);
            }
            match header {
                Some(header) if header.sequence < start.first_sequence => {}
                Some(header) => {
                    let bytes = file.read_vec_at(0, file.len()? as usize)?;
                    self.add_file(path, bytes, header.sequence, Some(header));
                }
                None => headless.push((path, file.read_vec_at(0, file.len()? as usize)?)),
            }
        }
        Ok(headless)
    }

    fn add_file(&mut self, path: String, bytes: Vec<u8>, sequence: u64, header: Option<FileHeader>) {
        self.sequence_max = self.sequence_max.max(sequence);
        self.files.push(SurveyedFile {
            path,
            sequence,
            base_lsn: header.map(|header| header.base_lsn),
            made_bytes: header.map_or(bytes.len() as u64, |header| header.file_bytes),
            end: FRAMES_AT as usize,
            mark: 0,
            bytes: Arc::new(bytes),
        });
    }

    /// Finds out which files without a valid header are in use: their frames verify under a sequence that no
    /// other file has.
    fn adopt_headless(&mut self, headless: Vec<(String, Vec<u8>)>, start: SurveyStart) {
        let known: Vec<u64> = self.files.iter().map(|file| file.sequence).collect();
        let highest = known.iter().copied().max().unwrap_or(start.first_sequence).max(start.first_sequence);
        let lowest = start.first_sequence.max((highest + 2).saturating_sub(SEQUENCES_TRIED)).max(1);
        for (path, bytes) in headless {
            let mut sequences = (lowest..=highest + 1).filter(|sequence| !known.contains(sequence));
            let in_use = sequences.find(|sequence| next_frame(&bytes, 0, frame::salt(*sequence)).is_some());
            match in_use {
                Some(sequence) => {
                    self.faults.push(format!("{path} has a damaged header"));
                    self.add_file(path, bytes, sequence, None);
                }
                // Every file is made whole before it is used, and its header is written in one sector.
                None if bytes.len() < FRAMES_AT as usize => {
                    self.faults.push(format!("{path} is shorter than it was made"));
                    self.add_file(path, bytes, highest + 1, None);
                }
                None => {}
            }
        }
    }

    fn check_files(&mut self, start: SurveyStart) {
        let Some(first) = self.files.first() else {
            if start.first_sequence > 0 {
                self.faults.push("the journal file that the checkpoint needs is missing".to_owned());
            }
            return;
        };
        let known = start.first_sequence > 0;
        let late = first.base_lsn.is_some_and(|base| base > start.checkpoint_lsn + 1);
        if (known && first.sequence != start.first_sequence) || late {
            self.faults.push("the journal does not start where the checkpoint needs it".to_owned());
        }
        for (file, next) in self.files.iter().zip(self.files.iter().skip(1)) {
            if next.sequence != file.sequence + 1 {
                self.faults.push(format!("the journal file after {} is missing", file.path));
            }
        }
        for file in &self.files {
            if (file.bytes.len() as u64) < file.made_bytes {
                self.faults.push(format!("{} is shorter than it was made", file.path));
            }
        }
    }

    fn collect_frames(&mut self, start: SurveyStart) {
        let bases: Vec<Option<u64>> = self.files.iter().map(|file| file.base_lsn).collect();
        for (index, file) in self.files.iter_mut().enumerate() {
            let salt = frame::salt(file.sequence);
            let below = bases.iter().skip(index + 1).find_map(|base| *base).unwrap_or(u64::MAX);
            // In a file without a header, frames may begin anywhere: bytes before them may be missing.
            let mut at = if file.base_lsn.is_some() { FRAMES_AT as usize } else { 0 };
            while let Some(next) = next_frame(&file.bytes, at, salt) {
                let Some(view) = file.bytes.get(next..).and_then(|rest| frame::parse(rest, salt)) else {
                    break;
                };
                at = next + view.len;
                file.end = at;
                file.mark = file.mark.max(view.durable_mark);
                if view.lsn >= below {
                    continue;
                }
                let spot = FrameSpot { file: index, at: next, len: view.len, headless: false };
                let above = view.lsn > start.checkpoint_lsn;
                match if above { &mut self.frames } else { &mut self.older }.entry(view.lsn) {
                    Entry::Vacant(first) => drop(first.insert(spot)),
                    Entry::Occupied(_) => self.copies.push((view.lsn, spot)),
                }
            }
            file.mark = file.mark.max(mark_after(&file.bytes, file.end, salt));
        }
    }

    /// Finds the LSNs that were synced and have no frame. Frames after a torn one are dropped.
    fn find_missing(&mut self, start: SurveyStart) {
        let before_last = self.files.iter().rev().find_map(|file| file.base_lsn).unwrap_or(1) - 1;
        let mark = self.files.iter().map(|file| file.mark).max().unwrap_or(0);
        let promised = before_last.max(mark).max(start.applied_lsn);
        let first = self.base_lsn().unwrap_or(start.checkpoint_lsn + 1);
        if (first..=start.checkpoint_lsn).any(|lsn| !self.older.contains_key(&lsn)) {
            self.faults.push("frames that are also in segments do not verify".to_owned());
        }
        let mut next = start.checkpoint_lsn + 1;
        loop {
            let found = self.frames.range(next..).next().map(|(lsn, _)| *lsn);
            match found {
                Some(lsn) if lsn == next => next += 1,
                _ if next > promised => break,
                Some(lsn) => {
                    self.add_missing(next..lsn);
                    next = lsn;
                }
                None => {
                    self.add_missing(next..promised + 1);
                    next = promised + 1;
                    break;
                }
            }
        }
        let _after_a_torn_frame = self.frames.split_off(&next);
        self.last_lsn = next - 1;
        self.check_places();
        if let Some((index, file)) = self.files.iter().enumerate().next_back()
            && (file.bytes.len() as u64) < file.made_bytes
        {
            let events_max = (file.made_bytes - file.end as u64) / crate::record::HEADER_BYTES as u64 + 1;
            let regions = vec![(index, file.end..file.bytes.len())];
            self.missing.push(MissingFrames { lsns: next..next, regions, events_max });
        }
    }

    /// Notes bytes between frames that follow each other, which stop the reader of the journal.
    fn check_places(&mut self) {
        let mut before: Option<FrameSpot> = None;
        for spot in self.older.values().chain(self.frames.values()) {
            let expected = match before.filter(|before| before.file == spot.file) {
                Some(before) => before.at + before.len,
                None => FRAMES_AT as usize,
            };
            if spot.at != expected {
                self.faults.push("there are bytes between frames that belong to none".to_owned());
                return;
            }
            before = Some(*spot);
        }
    }

    /// Notes missing frames, except those whose bodies verify where a frame must begin.
    fn add_missing(&mut self, lsns: Range<u64>) {
        let mut lsns = lsns;
        while let Some((file, mut range)) = self.regions(&lsns).first().cloned() {
            range.start = range.start.max(FRAMES_AT as usize);
            let bytes = self.files.get(file).and_then(|file| file.bytes.get(range.clone()));
            // Files are used again and again: a frame of an earlier use has another number.
            let is_it = |view: &frame::FrameView<'_>| view.lsn == lsns.start;
            let Some(view) = bytes.and_then(frame::parse_headless).filter(is_it) else { break };
            let spot = FrameSpot { file, at: range.start, len: view.len, headless: true };
            self.faults.push(format!("the header of frame {} does not verify", lsns.start));
            self.frames.insert(lsns.start, spot);
            lsns.start += 1;
            if lsns.is_empty() {
                return;
            }
        }
        let regions = self.regions(&lsns);
        let bytes: usize = regions.iter().map(|(_, range)| range.len()).sum();
        let mut events_max = (bytes / crate::record::HEADER_BYTES) as u64 + 1;
        if let ([(file, range)], 1) = (regions.as_slice(), lsns.end - lsns.start)
            && let Some(file) = self.files.get(*file)
            && let Some(header) =
                file.bytes.get(range.start..).and_then(|rest| frame::header(rest, frame::salt(file.sequence)))
        {
            events_max = u64::from(header.events);
        }
        self.faults.push(format!("frames {}..{} do not verify", lsns.start, lsns.end));
        self.missing.push(MissingFrames { lsns, regions, events_max });
    }

    /// The bytes between the frames before and after missing ones. Where a frame is there twice, one of its copies may
    /// have been inserted into a missing frame: the bytes begin after the first copy and end before the last.
    fn regions(&self, lsns: &Range<u64>) -> Vec<(usize, Range<usize>)> {
        let all = || self.older.iter().chain(&self.frames);
        let before = all().rev().find(|(lsn, _)| **lsn < lsns.start);
        let after = self.frames.range(lsns.end..).next();
        let first_end = |(lsn, spot)| self.spots(lsn, spot).map(|spot| (spot.file, spot.at + spot.len)).min();
        let last_start = |(lsn, spot)| self.spots(lsn, spot).map(|spot| (spot.file, spot.at)).max();
        let (first, from) = before.and_then(first_end).unwrap_or((0, HEADER_BYTES));
        let after = after.and_then(last_start);
        let last = after.map_or(self.files.len().saturating_sub(1), |(file, _)| file);
        let mut regions = Vec::new();
        for (index, file) in self.files.iter().enumerate().skip(first).take(last.saturating_sub(first) + 1) {
            // Where bytes are missing, frames may begin right after the header.
            let start = if index == first { from } else { HEADER_BYTES };
            let end = match after {
                Some((file, at)) if file == index => at,
                _ => used_end(&file.bytes),
            };
            if start < end {
                regions.push((index, start..end));
            }
        }
        regions
    }

    /// All places of a frame, of which `spot` is the first.
    fn spots<'a>(&'a self, lsn: &'a u64, spot: &'a FrameSpot) -> impl Iterator<Item = &'a FrameSpot> {
        let copies = self.copies.iter().filter(move |(of, _)| of == lsn).map(|(_, spot)| spot);
        std::iter::once(spot).chain(copies)
    }
}

/// The position after the last byte that is not zero.
fn used_end(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// The position of the first valid frame at or after `from`.
fn next_frame(bytes: &[u8], from: usize, salt: u32) -> Option<usize> {
    let rest = bytes.get(from..)?;
    // The usual case: the next frame is right there.
    if frame::parse(rest, salt).is_some() {
        return Some(from);
    }
    let mut starts = memmem::find_iter(rest, &frame::MAGIC);
    starts
        .find(|at| rest.get(*at..).is_some_and(|rest| frame::parse(rest, salt).is_some()))
        .map(|at| from + at)
}

/// The highest durable mark in headers of frames at or after `from`, whose bodies may be torn.
fn mark_after(bytes: &[u8], from: usize, salt: u32) -> u64 {
    let rest = bytes.get(from..).unwrap_or_default();
    let headers = memmem::find_iter(rest, &frame::MAGIC)
        .filter_map(|at| rest.get(at..).and_then(|rest| frame::header(rest, salt)));
    headers.map(|header| header.durable_mark).max().unwrap_or(0)
}
