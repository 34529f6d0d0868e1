//! The checkpoint on disk: which topics, segments and runs exist, and where the journal starts.

mod edit;
mod salvage;

use std::io;
use std::sync::Arc;

pub(crate) use edit::{Edit, ManifestSnapshot, RunItem, TopicItem};
pub(crate) use salvage::ManifestSalvage;

use crate::bytes::Fields;
use crate::disk::{Disk, DiskFile};
use crate::error::{LogBackupError, LogDamage, LogOpenError, open_io};
use crate::file_io::{WriteFailed, write_all_at};
use crate::planted::{self, Bug};

pub(crate) const PATH: &str = "manifest";
const TMP: &str = "manifest.tmp";
const MAGIC: &[u8; 8] = b"PMANI001";
const EDIT_MAGIC: [u8; 4] = *b"PEDT";
const EDIT_HEADER_BYTES: usize = 20;
/// A smaller manifest is not worth a rewrite.
const REWRITE_BYTES_MIN: u64 = 256 * 1024;

/// The manifest file, to which edits are appended.
#[derive(Debug)]
pub(crate) struct Manifest {
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    sequence: u64,
    len: u64,
    first_len: u64,
}

impl Manifest {
    /// Writes a new manifest that holds only `edit`, in place of an older manifest.
    pub(crate) fn write_new(
        disk: &Arc<dyn Disk>,
        sequence: u64,
        edit: &Edit,
    ) -> Result<Manifest, WriteFailed> {
        match disk.remove(TMP) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(WriteFailed::writing(error));
            }
            _ => {}
        }
        let file = disk.create(TMP).map_err(WriteFailed::writing)?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&frame_edit(edit, sequence));
        write_all_at(&*file, &bytes, 0).map_err(WriteFailed::writing)?;
        file.sync().map_err(WriteFailed::syncing)?;
        disk.rename(TMP, PATH).map_err(WriteFailed::writing)?;
        if !planted::is(Bug::SkipDirSync) {
            // The name may be the new file's already, so no error of this step is tried again.
            let synced = disk.sync_dir("").map_err(io::Error::other);
            synced.map_err(WriteFailed::syncing)?;
        }
        let len = bytes.len() as u64;
        Ok(Manifest { disk: Arc::clone(disk), file, sequence, len, first_len: len })
    }

    /// Reads the manifest; `None` if there is none.
    pub(crate) fn open(disk: &Arc<dyn Disk>) -> Result<Option<(Manifest, ManifestSnapshot)>, LogOpenError> {
        let file = match disk.open(PATH) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(open_io("open", PATH))?,
        };
        let size = file.len().map_err(open_io("stat", PATH))?;
        let bytes = file.read_vec_at(0, size as usize).map_err(open_io("read", PATH))?;
        if bytes.get(..MAGIC.len()) != Some(MAGIC) {
            return Err(damage(0, MAGIC.len(), "the manifest does not start as one"));
        }
        let mut snapshot = ManifestSnapshot::default();
        let mut sequence = 0;
        let mut at = MAGIC.len();
        let mut first_len = 0;
        while let Some((number, edit, len)) = bytes.get(at..).and_then(parse_edit) {
            if sequence != 0 && number != sequence + 1 {
                break;
            }
            snapshot.apply(edit);
            sequence = number;
            at += len;
            if first_len == 0 {
                first_len = at as u64;
            }
        }
        if sequence == 0 {
            return Err(damage(MAGIC.len(), bytes.len(), "the manifest's first edit does not verify"));
        }
        if let Some(later) = later_edit(&bytes, at, sequence) {
            return Err(damage(at, later, "a manifest edit does not verify and later ones do"));
        }
        // The bytes may be only in the page cache, and must be durable before anything relies on them. They
        // are written again, because after a failed sync no later sync writes the same pages.
        write_all_at(&*file, bytes.get(..at).unwrap_or_default(), 0).map_err(open_io("write", PATH))?;
        file.sync().map_err(open_io("sync", PATH))?;
        let manifest = Manifest { disk: Arc::clone(disk), file, sequence, len: at as u64, first_len };
        Ok(Some((manifest, snapshot)))
    }

    /// The bytes of the manifest, and what they say.
    pub(crate) fn image(&self) -> Result<(Vec<u8>, ManifestSnapshot), LogBackupError> {
        let failed = |source| LogBackupError::Io { action: "read", file: PATH.to_owned(), source };
        let bytes = self.file.read_vec_at(0, self.len as usize).map_err(failed)?;
        let mut snapshot = ManifestSnapshot::default();
        let mut at = MAGIC.len();
        while let Some((_, edit, len)) = bytes.get(at..).and_then(parse_edit) {
            snapshot.apply(edit);
            at += len;
        }
        if at as u64 != self.len {
            return Err(LogBackupError::Short { file: PATH.to_owned() });
        }
        Ok((bytes, snapshot))
    }

    /// Whether the next checkpoint should rewrite the manifest.
    pub(crate) fn wants_rewrite(&self) -> bool {
        self.len > (self.first_len * 2).max(REWRITE_BYTES_MIN)
    }

    /// Makes an edit durable. An edit that was only partly written is not valid, and the next edit is written
    /// over it.
    pub(crate) fn append(&mut self, edit: &Edit) -> Result<(), WriteFailed> {
        let bytes = frame_edit(edit, self.sequence + 1);
        write_all_at(&*self.file, &bytes, self.len).map_err(WriteFailed::writing)?;
        self.file.sync().map_err(WriteFailed::syncing)?;
        self.sequence += 1;
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Replaces the file by one that holds only `everything`.
    pub(crate) fn rewrite(&mut self, everything: &Edit) -> Result<(), WriteFailed> {
        *self = Manifest::write_new(&self.disk, self.sequence + 1, everything)?;
        Ok(())
    }
}

fn frame_edit(edit: &Edit, sequence: u64) -> Vec<u8> {
    let body = edit.encode();
    let mut out = Vec::with_capacity(EDIT_HEADER_BYTES + body.len());
    out.extend_from_slice(&EDIT_MAGIC);
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&edit_crc(sequence, &body).to_le_bytes());
    out.extend_from_slice(&sequence.to_le_bytes());
    out.extend_from_slice(&body);
    out
}

fn edit_crc(sequence: u64, body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&sequence.to_le_bytes()), body)
}

fn parse_edit(bytes: &[u8]) -> Option<(u64, Edit, usize)> {
    let mut fields = Fields(bytes);
    if fields.array::<4>()? != EDIT_MAGIC {
        return None;
    }
    let len = fields.u32()? as usize;
    let crc = fields.u32()?;
    let sequence = fields.u64()?;
    let body = fields.bytes(len)?;
    if crc != edit_crc(sequence, body) {
        return None;
    }
    Some((sequence, Edit::decode(body)?, EDIT_HEADER_BYTES + len))
}

fn later_edit(bytes: &[u8], from: usize, sequence: u64) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let starts = rest.windows(EDIT_MAGIC.len()).enumerate().filter(|(_, window)| *window == EDIT_MAGIC);
    for (skip, _) in starts {
        let found = rest.get(skip..).and_then(parse_edit);
        if found.is_some_and(|(number, ..)| number > sequence) {
            return Some(from + skip);
        }
    }
    None
}

fn damage(from: usize, to: usize, what: &'static str) -> LogOpenError {
    LogOpenError::CorruptRange(LogDamage {
        topic: None,
        file: PATH.to_owned(),
        from_byte: from as u64,
        to_byte: to.max(from) as u64,
        from_offset: 0,
        to_offset: 0,
        what,
    })
}
