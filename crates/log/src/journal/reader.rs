//! The reader of the journal at an open. It tells a torn tail from damage.

use std::io;
use std::sync::Arc;

use memchr::memmem;

use super::forward_reader::ForwardReader;
use super::frame::{self, FrameView};
use super::renewal::renew;
use super::writer::{FullFile, JournalFiles, SpareFile};
use super::{DIR, FRAMES_AT, FileHeader, UNFINISHED, file_name, file_number};
use crate::disk::{Disk, DiskFile};
use crate::error::{LogDamage, LogOpenError, open_io};
use crate::planted::{self, Bug};

/// One journal file with a valid header.
#[derive(Debug)]
struct SourceFile {
    number: u32,
    header: FileHeader,
    file: Arc<dyn DiskFile>,
}

/// The result of reading the journal, beside the frames.
#[derive(Debug, Default)]
pub(crate) struct JournalEnd {
    /// LSN of the last frame, or of the checkpoint if no frame is above it.
    pub(crate) last_lsn: u64,
    /// Bytes of the torn tail, which was dropped.
    pub(crate) torn_bytes: u64,
    /// Files for the writer.
    pub(crate) found: JournalFiles,
}

/// The start of the journal, from the manifest and the options.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JournalStart {
    pub(crate) checkpoint_lsn: u64,
    /// Oldest file that the checkpoint needs; 0 if no file was ever used.
    pub(crate) first_sequence: u64,
    /// Size of the files that can be used again.
    pub(crate) file_bytes: u64,
}

/// Reads frames above `checkpoint_lsn` in order and hands each to `visit`. Syncs each file before it is read:
/// frames must be durable before they are served.
pub(crate) fn read_journal(
    disk: &dyn Disk,
    start: JournalStart,
    visit: &mut dyn FnMut(&FrameView<'_>) -> Result<(), LogOpenError>,
) -> Result<JournalEnd, LogOpenError> {
    let JournalStart { checkpoint_lsn, first_sequence, file_bytes } = start;
    let listing = list_files(disk, first_sequence, file_bytes)?;
    let mut end = JournalEnd { last_lsn: checkpoint_lsn, ..JournalEnd::default() };
    end.found.next_number = listing.next_number;
    end.found.next_sequence = first_sequence.max(1);
    end.found.spares = listing.spares;
    let mut files = listing.live.into_iter().peekable();
    check_start(files.peek(), &start, &listing.headless)?;
    let mut window = Vec::new();
    while let Some(source) = files.next() {
        let next_base = files.peek().map(|next| next.header.base_lsn);
        check_successor(&source, files.peek())?;
        let path = file_name(source.number);
        let mut forward = ForwardReader::new(&*source.file, &mut window).map_err(open_io("stat", &path))?;
        // First of all: a frame that is only in the page cache is not durable.
        if !planted::is(Bug::ServeUnsynced) {
            source.make_durable(&mut forward, next_base.is_none())?;
        }
        let reading = FileReading { source: &source, path, next_base, checkpoint_lsn };
        reading.run(&mut forward, &mut end, visit)?;
        end.found.next_sequence = source.header.sequence + 1;
        let (number, sequence) = (source.number, source.header.sequence);
        end.found.full.push_back(FullFile {
            number,
            sequence,
            last_lsn: end.last_lsn,
            file_bytes: source.header.file_bytes,
            file: Arc::clone(&source.file),
        });
    }
    reject_headless(disk, &listing.headless, &mut end)?;
    reject_erased(&end)?;
    Ok(end)
}

struct Listing {
    live: Vec<SourceFile>,
    spares: Vec<SpareFile>,
    /// Files whose header is neither valid nor empty.
    headless: Vec<u32>,
    next_number: u32,
}

fn list_files(disk: &dyn Disk, first_sequence: u64, file_bytes: u64) -> Result<Listing, LogOpenError> {
    let mut listing = Listing { live: Vec::new(), spares: Vec::new(), headless: Vec::new(), next_number: 0 };
    for name in disk.list(DIR).map_err(open_io("list", DIR))? {
        if name.ends_with(UNFINISHED) {
            let path = format!("{DIR}/{name}");
            disk.remove(&path).map_err(open_io("remove", &path))?;
            continue;
        }
        let Some(number) = file_number(&name) else { continue };
        listing.next_number = listing.next_number.max(number + 1);
        let path = file_name(number);
        let file = disk.open(&path).map_err(open_io("open", &path))?;
        let sector = file.read_vec_at(0, FRAMES_AT as usize).map_err(open_io("read", &path))?;
        match FileHeader::decode(&sector) {
            None if sector.len() < FRAMES_AT as usize => {
                return Err(header_damage(path, "the file is shorter than it was made"));
            }
            Some(header) if header.sequence >= first_sequence => {
                listing.live.push(SourceFile { number, header, file });
            }
            None if sector.iter().any(|byte| *byte != 0) => listing.headless.push(number),
            // The file is used up, or was never used.
            _ if file.len().map_err(open_io("stat", &path))? == file_bytes => {
                listing.spares.push(SpareFile { number, file });
            }
            _ => disk.remove(&path).map_err(open_io("remove", &path))?,
        }
    }
    listing.live.sort_by_key(|source| source.header.sequence);
    Ok(listing)
}

fn check_start(
    first: Option<&SourceFile>,
    start: &JournalStart,
    headless: &[u32],
) -> Result<(), LogOpenError> {
    match first {
        None if start.first_sequence == 0 => Ok(()),
        Some(first)
            if (first.header.sequence == start.first_sequence || start.first_sequence == 0)
                && first.header.base_lsn <= start.checkpoint_lsn + 1 =>
        {
            Ok(())
        }
        Some(first) => {
            Err(whole_file_damage(first, "the journal does not start where the checkpoint needs it"))
        }
        None => {
            let file = headless.first().map_or_else(|| format!("{DIR}/"), |number| file_name(*number));
            let what = "the journal file that the checkpoint needs is missing or has a damaged header";
            Err(header_damage(file, what))
        }
    }
}

fn check_successor(source: &SourceFile, next: Option<&SourceFile>) -> Result<(), LogOpenError> {
    let gap = next.is_some_and(|next| next.header.sequence != source.header.sequence + 1);
    if gap {
        return Err(whole_file_damage(
            source,
            "the journal file after this one is missing or has a damaged header",
        ));
    }
    Ok(())
}

impl SourceFile {
    fn make_durable(&self, forward: &mut ForwardReader<'_>, is_last: bool) -> Result<(), LogOpenError> {
        let path = file_name(self.number);
        if is_last {
            let salt = frame::salt(self.header.sequence);
            renew(&*self.file, forward, self.header.base_lsn, salt).map_err(open_io("write", &path))?;
            // The page cache may have lost bytes since they were read, so they are read again.
            forward.forget();
        }
        self.file.sync().map_err(open_io("sync", &path))
    }
}

struct FileReading<'a> {
    source: &'a SourceFile,
    path: String,
    next_base: Option<u64>,
    checkpoint_lsn: u64,
}

impl FileReading<'_> {
    fn run(
        &self,
        forward: &mut ForwardReader<'_>,
        end: &mut JournalEnd,
        visit: &mut dyn FnMut(&FrameView<'_>) -> Result<(), LogOpenError>,
    ) -> Result<(), LogOpenError> {
        let salt = frame::salt(self.source.header.sequence);
        let mut at = FRAMES_AT as usize;
        let mut expected = self.source.header.base_lsn;
        while self.next_base.is_none_or(|next| expected < next) {
            let parsed = forward.frame(at, salt).map_err(open_io("read", &self.path))?;
            match parsed.filter(|view| view.lsn == expected || planted::is(Bug::IgnoreCrc)) {
                Some(view) => {
                    if view.lsn > self.checkpoint_lsn {
                        visit(&view)?;
                        end.last_lsn = view.lsn;
                    }
                    at += view.len;
                    expected = view.lsn + 1;
                }
                None => {
                    self.judge(forward, (at, expected), salt, end)?;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Decides what an invalid frame at `at` is: the end of the journal, or damage, which stops the open.
    fn judge(
        &self,
        forward: &mut ForwardReader<'_>,
        (at, lsn): (usize, u64),
        salt: u32,
        end: &mut JournalEnd,
    ) -> Result<(), LogOpenError> {
        let failed = || open_io("read", &self.path);
        let later = later_frames(forward, at, salt, lsn).map_err(failed())?;
        let promised = self.next_base.map_or(later.durable_mark, |next| next - 1);
        let shortened = (forward.len() as u64) < self.source.header.file_bytes;
        if promised < lsn && !shortened {
            let header = forward.from(at, frame::HEADER_BYTES).map_err(failed())?;
            let torn = || frame::claimed_end(header, 0, salt).map(|len| at + len);
            let torn_end = later.last_end.or_else(torn);
            end.torn_bytes = torn_end.map_or(0, |torn_end| torn_end.saturating_sub(at) as u64);
            return Ok(());
        }
        let to = later.first.map_or(forward.len(), |(next_at, _)| next_at);
        let what =
            if shortened { "the file is shorter than it was made" } else { "a synced frame does not verify" };
        Err(LogOpenError::CorruptRange(LogDamage {
            topic: None,
            file: self.path.clone(),
            from_byte: at as u64,
            to_byte: to as u64,
            from_offset: 0,
            to_offset: 0,
            what,
        }))
    }
}

#[derive(Default)]
struct LaterFrames {
    first: Option<(usize, u64)>,
    last_end: Option<usize>,
    durable_mark: u64,
}

/// Finds valid frames of this file anywhere after `at`, with LSNs from `lsn` on.
fn later_frames(forward: &mut ForwardReader<'_>, at: usize, salt: u32, lsn: u64) -> io::Result<LaterFrames> {
    let magic = memmem::Finder::new(&frame::MAGIC);
    let mut later = LaterFrames::default();
    let mut pos = at;
    loop {
        let rest = forward.from(pos, frame::MAGIC.len())?;
        if rest.len() < frame::MAGIC.len() {
            return Ok(later);
        }
        let Some(skip) = magic.find(rest) else {
            // A magic may begin in this window and end in the next.
            pos += rest.len() - (frame::MAGIC.len() - 1);
            continue;
        };
        pos += skip;
        match forward.frame(pos, salt)?.filter(|view| view.lsn >= lsn) {
            Some(view) => {
                later.first.get_or_insert((pos, view.lsn));
                later.last_end = Some(pos + view.len);
                later.durable_mark = later.durable_mark.max(view.durable_mark);
                pos += view.len;
            }
            None => {
                // The header of a torn frame still tells the durable mark when it was written.
                if let Some(header) = forward.header(pos, salt)?.filter(|header| header.lsn >= lsn) {
                    later.durable_mark = later.durable_mark.max(header.durable_mark);
                }
                pos += 1;
            }
        }
    }
}

/// Removes files with a broken header. A file that holds frames of the next sequence was in use: that is
/// damage.
fn reject_headless(disk: &dyn Disk, headless: &[u32], end: &mut JournalEnd) -> Result<(), LogOpenError> {
    for number in headless {
        let path = file_name(*number);
        let file = disk.open(&path).map_err(open_io("open", &path))?;
        let mut window = Vec::new();
        let mut forward = ForwardReader::new(&*file, &mut window).map_err(open_io("stat", &path))?;
        let salt = frame::salt(end.found.next_sequence);
        let found = later_frames(&mut forward, FRAMES_AT as usize, salt, end.last_lsn + 1);
        if found.map_err(open_io("read", &path))?.first.is_some() {
            return Err(header_damage(path, "the header of a journal file in use does not verify"));
        }
        disk.remove(&path).map_err(open_io("remove", &path))?;
    }
    Ok(())
}

fn whole_file_damage(source: &SourceFile, what: &'static str) -> LogOpenError {
    LogOpenError::CorruptRange(LogDamage {
        topic: None,
        file: file_name(source.number),
        from_byte: 0,
        to_byte: source.header.file_bytes,
        from_offset: 0,
        to_offset: 0,
        what,
    })
}

fn header_damage(file: String, what: &'static str) -> LogOpenError {
    LogOpenError::CorruptRange(LogDamage {
        topic: None,
        file,
        from_byte: 0,
        to_byte: FRAMES_AT,
        from_offset: 0,
        to_offset: 0,
        what,
    })
}

/// Refuses a spare that holds the first frame of the next sequence: the file was in use and its header was
/// erased.
fn reject_erased(end: &JournalEnd) -> Result<(), LogOpenError> {
    let salt = frame::salt(end.found.next_sequence);
    for SpareFile { number, file } in &end.found.spares {
        let path = file_name(*number);
        let first = file.read_vec_at(FRAMES_AT, frame::HEADER_BYTES).map_err(open_io("read", &path))?;
        if frame::claimed_end(&first, 0, salt).is_some() {
            return Err(header_damage(path, "the header of a journal file in use was erased"));
        }
    }
    Ok(())
}
