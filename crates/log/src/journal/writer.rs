//! The writer of the journal: appends groups of frames to files, and recycles files that are no longer
//! needed.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{DIR, FRAMES_AT, FileHeader, UNFINISHED, file_name, frame};
use crate::disk::{Disk, DiskFile};
use crate::file_io::write_all_at;
use crate::planted::{self, Bug};
use crate::room::JournalRoom;

const ZEROS_BYTES: usize = 1024 * 1024;

/// The position of a frame in a group's buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameSpan {
    pub(crate) at: usize,
    pub(crate) len: usize,
    pub(crate) lsn: u64,
}

/// Owns the journal's files. Used by one thread at a time.
#[derive(Debug)]
pub(crate) struct JournalWriter {
    disk: Arc<dyn Disk>,
    file_bytes: u64,
    current: Option<CurrentFile>,
    /// Full files, oldest first, until a checkpoint frees them.
    full: VecDeque<FullFile>,
    /// Empty files, open already: starting one needs neither space nor a descriptor.
    spares: Vec<SpareFile>,
    next_number: u32,
    next_sequence: u64,
    /// Bytes in files that are not free. Atomic, so that `health` need not wait for a write or a sync.
    live_bytes: Arc<AtomicU64>,
}

#[derive(Debug)]
struct CurrentFile {
    number: u32,
    file: Arc<dyn DiskFile>,
    header: FileHeader,
    salt: u32,
    pos: u64,
    last_lsn: u64,
}

/// A full file. It stays open, so that it can be used again when no descriptor is left.
#[derive(Debug)]
pub(crate) struct FullFile {
    pub(crate) number: u32,
    pub(crate) sequence: u64,
    pub(crate) last_lsn: u64,
    pub(crate) file_bytes: u64,
    pub(crate) file: Arc<dyn DiskFile>,
}

/// The bytes of a file that frames were written to.
#[derive(Debug)]
pub(crate) struct JournalExtent {
    pub(crate) number: u32,
    pub(crate) file: Arc<dyn DiskFile>,
    /// The end of the last frame; the length of the file if it is full.
    pub(crate) used: u64,
    pub(crate) file_bytes: u64,
}

/// A file that can be written from its start.
#[derive(Debug)]
pub(crate) struct SpareFile {
    pub(crate) number: u32,
    pub(crate) file: Arc<dyn DiskFile>,
}

impl JournalWriter {
    /// Makes a writer that starts a new file at its first frame.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        file_bytes: u64,
        found: JournalFiles,
        live_bytes: Arc<AtomicU64>,
    ) -> JournalWriter {
        JournalWriter {
            disk,
            file_bytes,
            current: None,
            full: found.full,
            spares: found.spares,
            next_number: found.next_number,
            next_sequence: found.next_sequence,
            live_bytes,
        }
    }

    /// The largest frame that fits into a file.
    pub(crate) fn frame_bytes_max(file_bytes: u64) -> u64 {
        file_bytes - FRAMES_AT
    }

    /// Writes the frames, with one write per file. Does not sync the last file.
    pub(crate) fn write(
        &mut self,
        bytes: &mut [u8],
        frames: &[FrameSpan],
        durable_mark: u64,
    ) -> io::Result<()> {
        let mut rest = frames;
        while let Some(first) = rest.first() {
            let room = self.current.as_ref().map_or(0, |current| self.file_bytes - current.pos);
            let count = frames_that_fit(rest, room);
            if count == 0 {
                self.roll(first.lsn)?;
                continue;
            }
            let (now, later) = rest.split_at(count);
            self.write_run(bytes, now, durable_mark)?;
            rest = later;
        }
        Ok(())
    }

    fn write_run(&mut self, bytes: &mut [u8], frames: &[FrameSpan], durable_mark: u64) -> io::Result<()> {
        let (Some(current), Some(first), Some(last)) = (&mut self.current, frames.first(), frames.last())
        else {
            return Ok(());
        };
        for span in frames {
            if let Some(frame) = bytes.get_mut(span.at..span.at + span.len) {
                frame::seal(frame, durable_mark, current.salt);
            }
        }
        let run = bytes.get(first.at..last.at + last.len).unwrap_or_default();
        write_all_at(&*current.file, run, current.pos)?;
        current.pos += run.len() as u64;
        current.last_lsn = last.lsn;
        self.note_live_bytes();
        Ok(())
    }

    /// Makes all written frames durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        match &self.current {
            Some(current) if !planted::is(Bug::SkipSync) => current.file.sync(),
            _ => Ok(()),
        }
    }

    /// Starts a new file. The old file is synced first, so that a file with a successor is complete.
    pub(crate) fn roll(&mut self, base_lsn: u64) -> io::Result<()> {
        self.sync()?;
        let SpareFile { number, file } = match self.spares.pop() {
            Some(spare) => spare,
            None => self.make_file()?,
        };
        let header = FileHeader { sequence: self.next_sequence, base_lsn, file_bytes: self.file_bytes };
        write_all_at(&*file, &header.encode(), 0)?;
        // A checkpoint may name this file as the journal's start before its first frame is synced.
        file.sync()?;
        self.next_sequence += 1;
        let salt = frame::salt(header.sequence);
        let next =
            CurrentFile { number, file, header, salt, pos: FRAMES_AT, last_lsn: base_lsn.saturating_sub(1) };
        if let Some(old) = self.current.replace(next) {
            self.full.push_back(FullFile {
                number: old.number,
                sequence: old.header.sequence,
                last_lsn: old.last_lsn,
                file_bytes: old.header.file_bytes,
                file: old.file,
            });
        }
        self.note_live_bytes();
        Ok(())
    }

    /// Whether there is no spare, so that the next roll would have to make a file.
    pub(crate) fn needs_spare(&self) -> bool {
        self.spares.is_empty()
    }

    /// Reserves the number of a file that another thread makes without holding the writer.
    pub(crate) fn reserve_number(&mut self) -> u32 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    pub(crate) fn add_spare(&mut self, spare: SpareFile) {
        self.spares.push(spare);
    }

    /// The place for frames that come after the written ones.
    pub(crate) fn room(&self) -> JournalRoom {
        JournalRoom {
            left: self.current.as_ref().map_or(0, |current| self.file_bytes.saturating_sub(current.pos)),
            spares: self.spares.len() as u64,
            each: JournalWriter::frame_bytes_max(self.file_bytes),
        }
    }

    fn make_file(&mut self) -> io::Result<SpareFile> {
        let number = self.reserve_number();
        make_zeroed(&*self.disk, number, self.file_bytes)
    }

    /// The sequence of the oldest file that holds a frame above `lsn`, or of the next file if no file does.
    pub(crate) fn first_sequence_above(&self, lsn: u64) -> u64 {
        let full = self.full.iter().find(|file| file.last_lsn > lsn).map(|file| file.sequence);
        let current = self.current.as_ref().map(|current| current.header.sequence);
        full.or(current).unwrap_or(self.next_sequence)
    }

    /// The files with a sequence of at least `sequence`, oldest first.
    pub(crate) fn extents(&self, sequence: u64) -> Vec<JournalExtent> {
        let full = self.full.iter().filter(|file| file.sequence >= sequence).map(|full| JournalExtent {
            number: full.number,
            file: Arc::clone(&full.file),
            used: full.file_bytes,
            file_bytes: full.file_bytes,
        });
        let current = self.current.iter().map(|current| JournalExtent {
            number: current.number,
            file: Arc::clone(&current.file),
            used: current.pos,
            file_bytes: current.header.file_bytes,
        });
        full.chain(current).collect()
    }

    /// Recycles files with a sequence below `sequence`, the start of the journal in the durable manifest. The
    /// file that the manifest names stays, even if all its frames are below the checkpoint: recovery looks
    /// for it. Files beyond `spares_max` spares are removed. Returns how many spares were added.
    pub(crate) fn free_before(&mut self, sequence: u64, spares_max: usize) -> (u64, io::Result<()>) {
        let mut added = 0;
        while let Some(file) = self.full.pop_front_if(|file| file.sequence < sequence) {
            if self.spares.len() < spares_max && file.file_bytes == self.file_bytes {
                self.spares.push(SpareFile { number: file.number, file: file.file });
                added += 1;
            } else if let Err(error) = self.disk.remove(&file_name(file.number)) {
                self.full.push_front(file);
                return (added, Err(error));
            }
        }
        self.note_live_bytes();
        (added, Ok(()))
    }

    fn note_live_bytes(&self) {
        let full: u64 = self.full.iter().map(|file| file.file_bytes).sum();
        let current = self.current.as_ref().map_or(0, |current| current.pos);
        self.live_bytes.store(full + current, Ordering::Relaxed);
    }
}

/// The journal files that recovery found, for the writer.
#[derive(Debug, Default)]
pub(crate) struct JournalFiles {
    pub(crate) full: VecDeque<FullFile>,
    pub(crate) spares: Vec<SpareFile>,
    pub(crate) next_number: u32,
    pub(crate) next_sequence: u64,
}

/// Makes a zero-filled file and its name durable, so that later syncs of it change no metadata. The file gets
/// its name last, so that a journal file that is too short is known to be damaged.
pub(crate) fn make_zeroed(disk: &dyn Disk, number: u32, file_bytes: u64) -> io::Result<SpareFile> {
    let name = file_name(number);
    let unfinished = format!("{name}{UNFINISHED}");
    let result = fill_zeroed(disk, &unfinished, file_bytes).and_then(|file| {
        disk.rename(&unfinished, &name)?;
        if !planted::is(Bug::SkipDirSync) {
            disk.sync_dir(DIR)?;
        }
        Ok(SpareFile { number, file })
    });
    if result.is_err() {
        // If a file cannot be removed now, recovery removes it or uses it as a spare.
        let _ = (disk.remove(&unfinished), disk.remove(&name));
    }
    result
}

fn fill_zeroed(disk: &dyn Disk, name: &str, file_bytes: u64) -> io::Result<Arc<dyn DiskFile>> {
    let file = disk.create(name)?;
    let zeros = vec![0; ZEROS_BYTES.min(file_bytes as usize)];
    let mut at = 0;
    while at < file_bytes {
        let count = (file_bytes - at).min(zeros.len() as u64);
        write_all_at(&*file, zeros.get(..count as usize).unwrap_or_default(), at)?;
        at += count;
    }
    file.sync()?;
    Ok(file)
}

fn frames_that_fit(frames: &[FrameSpan], room: u64) -> usize {
    let Some(first) = frames.first() else { return 0 };
    frames.iter().take_while(|span| (span.at + span.len - first.at) as u64 <= room).count()
}
