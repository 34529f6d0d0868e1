//! The journal: the only files that are synced before an ack.

mod forward_reader;
pub(crate) mod frame;
pub(crate) mod reader;
mod renewal;
pub(crate) mod survey;
pub(crate) mod writer;

use crate::bytes::Fields;

pub(crate) const DIR: &str = "journal";
/// The position of the first frame. The header has the first sector for itself, so that it is written whole
/// or not at all.
pub(crate) const FRAMES_AT: u64 = 512;

/// The suffix of a file that is still being made.
pub(crate) const UNFINISHED: &str = ".new";

const MAGIC: &[u8; 8] = b"PJRNL001";
const HEADER_BYTES: usize = 36;

pub(crate) fn file_name(number: u32) -> String {
    format!("{DIR}/{number:08x}.jrn")
}

pub(crate) fn file_number(name: &str) -> Option<u32> {
    u32::from_str_radix(name.strip_suffix(".jrn")?, 16).ok()
}

/// The header of a journal file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileHeader {
    /// Grows with every use of any file; salts the frames.
    pub(crate) sequence: u64,
    /// LSN of the first frame.
    pub(crate) base_lsn: u64,
    /// The length of the file when it was made.
    pub(crate) file_bytes: u64,
}

impl FileHeader {
    /// The header's bytes: a whole sector, so that no byte of an earlier header remains.
    pub(crate) fn encode(&self) -> [u8; FRAMES_AT as usize] {
        let mut sector = [0; FRAMES_AT as usize];
        sector[0..8].copy_from_slice(MAGIC);
        sector[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        sector[16..24].copy_from_slice(&self.base_lsn.to_le_bytes());
        sector[24..32].copy_from_slice(&self.file_bytes.to_le_bytes());
        let crc = crc32c::crc32c(&sector[0..32]);
        sector[32..36].copy_from_slice(&crc.to_le_bytes());
        sector
    }

    /// Reads a header; `None` if the sector holds no valid one.
    pub(crate) fn decode(sector: &[u8]) -> Option<FileHeader> {
        let header = sector.first_chunk::<HEADER_BYTES>()?;
        let mut fields = Fields(header);
        if &fields.array::<8>()? != MAGIC {
            return None;
        }
        let decoded =
            FileHeader { sequence: fields.u64()?, base_lsn: fields.u64()?, file_bytes: fields.u64()? };
        (fields.u32()? == crc32c::crc32c(&header[0..32])).then_some(decoded)
    }
}
