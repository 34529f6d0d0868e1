//! The footer of a run file: the facts of the run, and where its pages are.

use super::entry::{EntryKind, KEY_LEN};
use super::page::{BODY_LEN, PAGE_LEN};

/// Bytes of the footer.
pub(crate) const FOOTER_LEN: usize = 80;
/// First keys of data pages in one fence page.
pub(crate) const FENCE_KEYS: usize = BODY_LEN / KEY_LEN;

const MAGIC: &[u8; 8] = b"PRUN0001";

/// The path of the run with this number.
pub(crate) fn run_path(number: u64) -> String {
    format!("index/{number:016x}.run")
}

/// Reads the number of a run from its file name (without folder); `None` for other files.
pub(crate) fn run_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".run").filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok().filter(|number| name == format!("{number:016x}.run"))
}

/// The facts of a run. All but `level` are in its footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunMeta {
    /// The run's number, which names its file.
    pub(crate) number: u64,
    /// The kind of its entries.
    pub(crate) kind: EntryKind,
    /// How often its entries were merged; only the manifest keeps it.
    pub(crate) level: u8,
    /// The number of its entries, at least one.
    pub(crate) entries: u64,
    /// The age of the oldest memory table that it has entries of. The age intervals of one kind's runs never
    /// overlap.
    pub(crate) age_from: u64,
    /// The age of the newest memory table that it has entries of.
    pub(crate) age_to: u64,
    /// Smallest time in a version 7 id among its ids; above `id_ms_max` if there is none.
    pub(crate) id_ms_min: u64,
    /// Largest time in a version 7 id among its ids.
    pub(crate) id_ms_max: u64,
    /// When the last of its events was appended, in ms.
    pub(crate) appended_max: u64,
}

impl RunMeta {
    /// Whether an id with this time can be in the run. Ids without a time can be in any run.
    pub(crate) fn may_hold(&self, id_ms: Option<u64>) -> bool {
        self.kind != EntryKind::Id || id_ms.is_none_or(|ms| (self.id_ms_min..=self.id_ms_max).contains(&ms))
    }

    /// Length of the run's file.
    pub(crate) fn file_bytes(&self) -> u64 {
        RunShape::new(self.kind, self.entries).file_len()
    }

    /// The footer's bytes.
    pub(crate) fn encode(&self, top_crc: u32) -> [u8; FOOTER_LEN] {
        let mut raw = [0; FOOTER_LEN];
        raw[0..8].copy_from_slice(MAGIC);
        raw[8] = self.kind as u8;
        raw[12..16].copy_from_slice(&(self.kind.entry_len() as u32).to_le_bytes());
        raw[16..24].copy_from_slice(&self.entries.to_le_bytes());
        raw[24..32].copy_from_slice(&self.number.to_le_bytes());
        raw[32..40].copy_from_slice(&self.age_from.to_le_bytes());
        raw[40..48].copy_from_slice(&self.age_to.to_le_bytes());
        raw[48..56].copy_from_slice(&self.id_ms_min.to_le_bytes());
        raw[56..64].copy_from_slice(&self.id_ms_max.to_le_bytes());
        raw[64..72].copy_from_slice(&self.appended_max.to_le_bytes());
        raw[72..76].copy_from_slice(&top_crc.to_le_bytes());
        let crc = crc32c::crc32c(&raw[..76]);
        raw[76..80].copy_from_slice(&crc.to_le_bytes());
        raw
    }

    /// Reads a footer. Returns the facts, at level 0, and the top's checksum, or what is wrong with the
    /// footer.
    pub(crate) fn decode(raw: &[u8; FOOTER_LEN]) -> Result<(RunMeta, u32), &'static str> {
        if raw[0..8] != *MAGIC || le32(&raw[76..]) != crc32c::crc32c(&raw[..76]) {
            return Err("no footer, or a damaged one");
        }
        let kind = EntryKind::from_byte(raw[8]).ok_or("unknown kind of run")?;
        let meta = RunMeta {
            number: le64(&raw[24..]),
            kind,
            level: 0,
            entries: le64(&raw[16..]),
            age_from: le64(&raw[32..]),
            age_to: le64(&raw[40..]),
            id_ms_min: le64(&raw[48..]),
            id_ms_max: le64(&raw[56..]),
            appended_max: le64(&raw[64..]),
        };
        if le32(&raw[12..]) as usize != kind.entry_len() || meta.entries == 0 || meta.age_from > meta.age_to {
            return Err("footer says what no run has");
        }
        Ok((meta, le32(&raw[72..])))
    }
}

/// The positions of a run's pages. Every data page but the last is full, and every fence page follows the
/// `FENCE_KEYS` data pages whose first keys it holds, so all positions follow from the number of entries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunShape {
    entries: u64,
    per_page: u64,
    /// The number of data pages.
    pub(crate) data_pages: u64,
    /// The number of fence pages.
    pub(crate) fence_pages: u64,
}

impl RunShape {
    /// The shape of a run with this many entries.
    pub(crate) fn new(kind: EntryKind, entries: u64) -> RunShape {
        let per_page = (BODY_LEN / kind.entry_len()) as u64;
        let data_pages = entries.div_ceil(per_page);
        RunShape { entries, per_page, data_pages, fence_pages: data_pages.div_ceil(FENCE_KEYS as u64) }
    }

    /// The number in the file of this data page.
    pub(crate) fn data_at(&self, data: u64) -> u64 {
        data + data / FENCE_KEYS as u64
    }

    /// The number in the file of this fence page.
    pub(crate) fn fence_at(&self, fence: u64) -> u64 {
        fence + self.data_pages.min((fence + 1) * FENCE_KEYS as u64)
    }

    /// The number of entries in this data page.
    pub(crate) fn data_count(&self, data: u64) -> usize {
        self.per_page.min(self.entries.saturating_sub(data * self.per_page)) as usize
    }

    /// The number of keys in this fence page.
    pub(crate) fn fence_count(&self, fence: u64) -> usize {
        (self.data_pages.saturating_sub(fence * FENCE_KEYS as u64) as usize).min(FENCE_KEYS)
    }

    /// The position of the top in the file: after all pages.
    pub(crate) fn top_at(&self) -> u64 {
        (self.data_pages + self.fence_pages) * PAGE_LEN as u64
    }

    /// Bytes of the top.
    pub(crate) fn top_len(&self) -> usize {
        self.fence_pages as usize * KEY_LEN
    }

    /// Bytes of the whole file.
    pub(crate) fn file_len(&self) -> u64 {
        self.top_at() + (self.top_len() + FOOTER_LEN) as u64
    }
}

fn le32(raw: &[u8]) -> u32 {
    raw.first_chunk().map_or(0, |raw| u32::from_le_bytes(*raw))
}

fn le64(raw: &[u8]) -> u64 {
    raw.first_chunk().map_or(0, |raw| u64::from_le_bytes(*raw))
}
