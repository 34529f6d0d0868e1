//! A segment: one file of one topic, with its header, its offsets and its samples.

use crate::bytes::Fields;

pub(crate) const DIR: &str = "segments";
pub(crate) const HEADER_BYTES: u64 = 32;
pub(crate) const SAMPLE_BYTES: usize = 24;
/// About one sample for this many bytes of records.
pub(crate) const SAMPLE_EVERY: u64 = 4096;

const MAGIC: &[u8; 8] = b"PSEGM001";

/// The identity of a segment, which names its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SegmentId {
    pub(crate) topic: u32,
    pub(crate) base: u64,
    pub(crate) generation: u32,
}

impl SegmentId {
    pub(crate) fn path(&self) -> String {
        self.with_suffix("seg")
    }

    pub(crate) fn samples_path(&self) -> String {
        self.with_suffix("idx")
    }

    fn with_suffix(&self, suffix: &str) -> String {
        format!("{DIR}/{:08x}-{:016x}-{:x}.{suffix}", self.topic, self.base, self.generation)
    }

    /// Reads the file name of a segment; `None` for other files.
    pub(crate) fn from_name(name: &str) -> Option<SegmentId> {
        let stem = name.strip_suffix(".seg").or_else(|| name.strip_suffix(".idx"))?;
        let mut parts = stem.split('-');
        let topic = u32::from_str_radix(parts.next()?, 16).ok()?;
        let base = u64::from_str_radix(parts.next()?, 16).ok()?;
        let generation = u32::from_str_radix(parts.next()?, 16).ok()?;
        parts.next().is_none().then_some(SegmentId { topic, base, generation })
    }

    pub(crate) fn encode_header(&self) -> [u8; HEADER_BYTES as usize] {
        let mut header = [0; HEADER_BYTES as usize];
        header[0..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&self.topic.to_le_bytes());
        header[12..16].copy_from_slice(&self.generation.to_le_bytes());
        header[16..24].copy_from_slice(&self.base.to_le_bytes());
        let crc = crc32c::crc32c(&header[0..24]);
        header[24..28].copy_from_slice(&crc.to_le_bytes());
        header
    }
}

/// A position from which records can be scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) offset: u64,
    /// Highest `ts` of all records before this one in the segment.
    pub(crate) max_ts: i64,
    pub(crate) pos: u32,
}

impl Sample {
    pub(crate) fn encode(&self, topic: u32) -> [u8; SAMPLE_BYTES] {
        let mut bytes = [0; SAMPLE_BYTES];
        bytes[0..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.max_ts.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.pos.to_le_bytes());
        let crc = sample_crc(&bytes, topic);
        bytes[20..24].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a sample; `None` if the bytes are not a sample of this topic.
    pub(crate) fn decode(bytes: &[u8], topic: u32) -> Option<Sample> {
        let bytes = bytes.first_chunk::<SAMPLE_BYTES>()?;
        let mut fields = Fields(bytes);
        let sample = Sample { offset: fields.u64()?, max_ts: fields.i64()?, pos: fields.u32()? };
        (fields.u32()? == sample_crc(bytes, topic)).then_some(sample)
    }
}

fn sample_crc(bytes: &[u8; SAMPLE_BYTES], topic: u32) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[0..20]), &topic.to_le_bytes())
}

/// The facts of a segment that the manifest keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentMeta {
    pub(crate) id: SegmentId,
    /// First offset after the segment.
    pub(crate) end: u64,
    /// The length with the header, including records that are still in the tail.
    pub(crate) bytes: u64,
    /// The number of samples in the `.idx` file.
    pub(crate) samples: u32,
    pub(crate) min_ts: i64,
    pub(crate) max_ts: i64,
    pub(crate) first_append: i64,
    pub(crate) last_append: i64,
    pub(crate) records: u64,
}

impl SegmentMeta {
    pub(crate) fn new(id: SegmentId, now: i64) -> SegmentMeta {
        SegmentMeta {
            id,
            end: id.base,
            bytes: HEADER_BYTES,
            samples: 0,
            min_ts: i64::MAX,
            max_ts: i64::MIN,
            first_append: now,
            last_append: now,
            records: 0,
        }
    }

    /// Whether it has or had records; compaction may have left none.
    pub(crate) fn is_started(&self) -> bool {
        self.records > 0 || self.id.generation > 0
    }

    /// Accounts for one more record.
    pub(crate) fn add(&mut self, offset: u64, len: usize, ts: i64, now: i64) {
        self.end = offset + 1;
        self.bytes += len as u64;
        self.min_ts = self.min_ts.min(ts);
        self.max_ts = self.max_ts.max(ts);
        self.last_append = self.last_append.max(now);
        self.records += 1;
    }
}
