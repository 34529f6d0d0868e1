//! The journal files of the state engine, checked before the engine opens them.
//!
//! The engine syncs its journal only when it is told to. After a power cut, what was written since the last sync may be any
//! mixture of old and new sectors. The engine itself cuts a batch that is not there whole, but it refuses a batch that is
//! there and wrong. All that was written since the last sync is in the log's journal, or is derived; so a torn tail is
//! cut here, and redo goes on from there. Damage before the last sync cannot be redone: it is left as it is and refused.
//!
//! ```text
//! file   batches, then zeros
//! batch  01 | number of items u32 | seqno u64,  items,  03 | xxh3 of the items u64 | "FJL" 03
//! item   02 | kind u8 | compression u8 | keyspace u64 | key length u16 | value length u32 | stored length u32 | key | value
//!        04 | keyspace u64
//! ```
//!
//! Integers are little-endian. Sequence numbers grow from batch to batch.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use super::sync_mark::SyncMark;
use crate::state::keys::counter::{self, StateCounter};

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const TRAILER: &[u8] = b"FJL\x03";
/// The engine counts in 63 bits.
const SEQNO_MAX: u64 = 1 << 62;
/// How far after the last whole batch a torn tail is looked for: sectors of one write are not further apart.
const LOOK_AHEAD: u64 = 8 << 20;
/// The ending of a journal with a torn tail, until the engine has opened what is left of it.
const ASIDE: &str = "torn";

/// Why a journal of the engine cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum JournalFault {
    #[error("the engine's journal {file} is damaged after byte {at}, in a part that was synced")]
    Damaged { file: String, at: u64 },
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A journal whose torn tail is cut. The whole file is kept aside until [`TornTail::settle`].
#[derive(Debug)]
pub(super) struct TornTail {
    pub(super) journal: PathBuf,
    aside: PathBuf,
    /// Where the cut is.
    pub(super) at: u64,
    last_seqno: Option<u64>,
}

impl TornTail {
    /// Removes the file that was kept aside, after the engine has opened what is left. `persisted` is the highest sequence
    /// number in the engine's tables: the engine syncs its journal before it writes a table, so a cut below that number
    /// took synced batches.
    pub(super) fn settle(self, persisted: Option<u64>) -> Result<(), JournalFault> {
        if self.last_seqno.zip(persisted).is_some_and(|(last, persisted)| persisted > last) {
            return Err(damaged(&self.journal, self.at));
        }
        Ok(fs::remove_file(&self.aside)?)
    }
}

/// Checks all journals in the engine's folder, and cuts the torn tail of the newest.
pub(super) fn mend(folder: &Path, synced: Option<SyncMark>) -> Result<Option<TornTail>, JournalFault> {
    put_back(folder)?;
    let mut journals = journals(folder)?;
    let Some((newest, path)) = journals.pop() else { return Ok(None) };
    let mut last_seqno = None;
    for (_, path) in &journals {
        let scan = JournalScan::of(path, last_seqno)?;
        // The engine syncs a journal before it begins the next.
        if scan.has_bytes_after(path, u64::MAX)? {
            return Err(damaged(path, scan.end));
        }
        last_seqno = scan.last_seqno;
    }
    let scan = JournalScan::of(&path, last_seqno)?;
    let reaches_mark = |mark: SyncMark| mark.journal < newest || scan.last_mark >= Some(mark.number);
    if !synced.is_none_or(reaches_mark) && scan.has_bytes_after(&path, u64::MAX)? {
        return Err(damaged(&path, scan.end));
    }
    match scan.has_bytes_after(&path, LOOK_AHEAD)? {
        true => Ok(Some(cut(path, &scan)?)),
        false => Ok(None),
    }
}

/// Whether the newest journal has the last sync mark, and so everything that was synced. A journal that was cut between
/// two batches looks whole without it.
pub(super) fn has_mark(folder: &Path, synced: Option<SyncMark>) -> Result<bool, JournalFault> {
    let newest = journals(folder)?.pop();
    let (Some(mark), Some((newest, path))) = (synced, newest) else { return Ok(false) };
    Ok(mark.journal == newest && JournalScan::of(&path, None)?.last_mark >= Some(mark.number))
}

/// Rewrites every journal of an engine with its whole batches only. Returns how many bytes that are not zero were
/// left out.
pub(super) fn drop_damage(folder: &Path) -> io::Result<u64> {
    put_back(folder)?;
    let (mut dropped, mut last_seqno) = (0, None);
    for (_, path) in journals(folder)? {
        let bytes = fs::read(&path)?;
        let mut kept = Vec::with_capacity(bytes.len());
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let mut reader = BatchReader { left: rest.len() as u64, file: rest, at: 0 };
            let batch = if rest.starts_with(&[START]) { reader.batch()? } else { None };
            let in_order = |batch: &ReadBatch| {
                batch.seqno <= SEQNO_MAX && last_seqno.is_none_or(|last| batch.seqno > last)
            };
            match batch.filter(in_order) {
                Some(batch) => {
                    let len = reader.at as usize;
                    kept.extend_from_slice(rest.get(..len).unwrap_or_default());
                    last_seqno = Some(batch.seqno);
                    at += len;
                }
                None => {
                    dropped += u64::from(rest.first() != Some(&0));
                    at += 1;
                }
            }
        }
        fs::write(&path, kept)?;
    }
    Ok(dropped)
}

/// The number of the newest journal in the engine's folder.
pub(super) fn newest(folder: &Path) -> io::Result<Option<u64>> {
    Ok(journals(folder)?.last().map(|(number, _)| *number))
}

fn damaged(path: &Path, at: u64) -> JournalFault {
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    JournalFault::Damaged { file, at }
}

/// The journals in a folder, oldest first.
fn journals(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(number) = name.strip_suffix(".jnl").and_then(|number| number.parse().ok()) {
            found.push((number, path));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Puts journals back that an open cut and did not settle.
fn put_back(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let aside = entry?.path();
        if aside.extension().is_some_and(|ending| ending == ASIDE) {
            fs::rename(&aside, aside.with_extension(""))?;
        }
    }
    Ok(())
}

/// Puts the whole batches of a journal in its place, and keeps the journal itself aside.
fn cut(journal: PathBuf, scan: &JournalScan) -> io::Result<TornTail> {
    let (aside, new) = (journal.with_extension("jnl.torn"), journal.with_extension("jnl.new"));
    let mut whole = File::open(&journal)?.take(scan.end);
    let mut options = OpenOptions::new();
    let mut kept = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    io::copy(&mut whole, &mut kept)?;
    kept.sync_all()?;
    fs::rename(&journal, &aside)?;
    fs::rename(&new, &journal)?;
    if let Some(folder) = journal.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(TornTail { journal, aside, at: scan.end, last_seqno: scan.last_seqno })
}

/// The whole batches at the beginning of a journal.
#[derive(Debug)]
struct JournalScan {
    /// Where the last whole batch ends.
    end: u64,
    last_seqno: Option<u64>,
    /// The highest sync mark in a whole batch.
    last_mark: Option<u64>,
}

impl JournalScan {
    /// `last_seqno`: the last sequence number of the journal before.
    fn of(path: &Path, last_seqno: Option<u64>) -> io::Result<Self> {
        let file = File::open(path)?;
        let mut reader = BatchReader { left: file.metadata()?.len(), file: BufReader::new(file), at: 0 };
        let mut scan = Self { end: 0, last_seqno, last_mark: None };
        while let Some(batch) = reader.batch()? {
            // A sector with the head of a batch may be an old one: the checksum does not cover the head.
            if batch.seqno > SEQNO_MAX || scan.last_seqno.is_some_and(|last| batch.seqno <= last) {
                break;
            }
            scan.end = reader.at;
            scan.last_seqno = Some(batch.seqno);
            scan.last_mark = scan.last_mark.max(batch.mark);
        }
        Ok(scan)
    }

    /// Whether there is anything but zeros in so many bytes after the last whole batch.
    fn has_bytes_after(&self, path: &Path, within: u64) -> io::Result<bool> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(self.end))?;
        let mut rest = file.take(within);
        let mut buffer = vec![0; 64 << 10];
        loop {
            match rest.read(&mut buffer)? {
                0 => return Ok(false),
                count if buffer.iter().take(count).any(|byte| *byte != 0) => return Ok(true),
                _ => {}
            }
        }
    }
}

struct ReadBatch {
    seqno: u64,
    /// The sync mark that the batch writes.
    mark: Option<u64>,
}

struct BatchReader<R> {
    file: R,
    at: u64,
    /// Bytes up to the end of the file.
    left: u64,
}

impl<R: Read> BatchReader<R> {
    /// Reads one batch. `None` if the next bytes are not a whole batch.
    fn batch(&mut self) -> io::Result<Option<ReadBatch>> {
        if self.array::<1>()? != Some([START]) {
            return Ok(None);
        }
        let (Some(items), Some(seqno)) = (self.array()?, self.array()?) else { return Ok(None) };
        let mut batch = ReadBatch { seqno: u64::from_le_bytes(seqno), mark: None };
        let mut hash = Xxh3::new();
        for _ in 0..u32::from_le_bytes(items) {
            if !self.item(&mut hash, &mut batch)? {
                return Ok(None);
            }
        }
        if self.array::<1>()? != Some([END]) {
            return Ok(None);
        }
        let checksum = self.array::<8>()?.map(u64::from_le_bytes);
        let trailer = self.array::<4>()?;
        let is_whole =
            checksum == Some(hash.digest()) && trailer.as_ref().is_some_and(|found| found == TRAILER);
        Ok(is_whole.then_some(batch))
    }

    /// Reads one item of a batch. `false` if the next bytes are no item.
    fn item(&mut self, hash: &mut Xxh3, batch: &mut ReadBatch) -> io::Result<bool> {
        let Some([tag]) = self.array()? else { return Ok(false) };
        hash.update(&[tag]);
        if tag == CLEAR {
            let Some(keyspace) = self.array::<8>()? else { return Ok(false) };
            hash.update(&keyspace);
            return Ok(true);
        }
        // Kind, compression, keyspace, length of the key, of the value, and of the stored value.
        let Some(head) = self.array::<20>()?.filter(|_| tag == ITEM) else { return Ok(false) };
        hash.update(&head);
        let [_, _, _, _, _, _, _, _, _, _, k0, k1, _, _, _, _, v0, v1, v2, v3] = head;
        let key_len = usize::from(u16::from_le_bytes([k0, k1]));
        let value_len = u64::from(u32::from_le_bytes([v0, v1, v2, v3]));
        if key_len as u64 + value_len > self.left {
            return Ok(false);
        }
        let mut key = vec![0; key_len];
        self.read(&mut key)?;
        hash.update(&key);
        if value_len == 8 && key == counter::key(StateCounter::SyncMark) {
            let Some(mark) = self.array::<8>()? else { return Ok(false) };
            hash.update(&mark);
            batch.mark = Some(u64::from_be_bytes(mark));
            return Ok(true);
        }
        let mut left = value_len as usize;
        let mut buffer = [0; 4096];
        while left > 0 {
            let (piece, _) = buffer.split_at_mut(left.min(4096));
            self.read(piece)?;
            hash.update(piece);
            left -= piece.len();
        }
        Ok(true)
    }

    /// The next bytes; `None` if the file ends before.
    fn array<const N: usize>(&mut self) -> io::Result<Option<[u8; N]>> {
        let mut bytes = [0; N];
        if self.left < N as u64 {
            return Ok(None);
        }
        self.read(&mut bytes)?;
        Ok(Some(bytes))
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact(into)?;
        self.at += into.len() as u64;
        self.left -= into.len() as u64;
        Ok(())
    }
}
