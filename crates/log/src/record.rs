//! A record: one event as bytes, the same in journal and segment. `docs/disk-format.md` draws it.

use promethean_model::EventId;

use crate::bytes::{Fields, put};
use crate::planted::{self, Bug};

/// Bytes before the body.
pub(crate) const HEADER_BYTES: usize = 56;

const AT_HEADER_CRC: usize = 4;
const AT_OFFSET: usize = 16;
const AT_TS: usize = 24;

const HAS_KEY: u16 = 1;
const SERVER_STAMPED: u16 = 2;
const TOMBSTONE: u16 = 4;

/// An event to append.
#[derive(Debug, Clone, Copy)]
pub struct NewEvent<'a> {
    /// The event's id, and whether it can be in the log already.
    pub id: NewId,
    /// Milliseconds since the epoch; `None` takes the log's stamp, which never decreases within a topic.
    pub ts: Option<i64>,
    /// The key, if the event has one.
    pub key: Option<&'a [u8]>,
    /// Opaque to the log.
    pub meta: &'a [u8],
    /// The event's content.
    pub payload: &'a [u8],
    /// Whether the payload deletes the key.
    pub tombstone: bool,
}

/// Where an event's id comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewId {
    /// Minted for this event just now: it is not looked up.
    Minted(EventId),
    /// Given by the publisher: an event with this id may be in the log already.
    Given(EventId),
}

impl NewId {
    /// The id itself.
    pub fn id(&self) -> EventId {
        match self {
            NewId::Minted(id) | NewId::Given(id) => *id,
        }
    }
}

/// A checked record, borrowed from a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordView<'a> {
    /// Position in the topic.
    pub offset: u64,
    /// Milliseconds since the epoch.
    pub ts: i64,
    /// The event's id.
    pub id: EventId,
    /// The key, if the event has one.
    pub key: Option<&'a [u8]>,
    /// Opaque to the log.
    pub meta: &'a [u8],
    /// The event's content.
    pub payload: &'a [u8],
    /// Key, meta and payload, one after the other.
    pub body: &'a [u8],
    /// Whether the payload deletes the key.
    pub tombstone: bool,
    /// Whether `ts` is the log's own stamp.
    pub server_stamped: bool,
    pub(crate) topic: u32,
    pub(crate) len: usize,
}

/// A checked record that owns its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    bytes: Vec<u8>,
}

impl Record {
    /// The record's fields.
    pub fn view(&self) -> RecordView<'_> {
        view_checked(&self.bytes)
    }
}

impl RecordView<'_> {
    /// Copies the record out of its buffer; `bytes` must be what the view was parsed from.
    pub(crate) fn to_record(self, bytes: &[u8]) -> Record {
        Record { bytes: bytes.get(..self.len).unwrap_or(bytes).to_vec() }
    }

    /// The hash of key and payload, which must be equal for a repeated id to be a duplicate.
    pub(crate) fn content_hash(&self) -> u64 {
        content_hash(self.key, self.payload)
    }
}

pub(crate) fn content_hash(key: Option<&[u8]>, payload: &[u8]) -> u64 {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    hash.update(&key.map_or(u32::MAX, |key| key.len() as u32).to_le_bytes());
    hash.update(key.unwrap_or_default());
    hash.update(payload);
    hash.digest()
}

/// Why bytes are not a valid record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadRecord {
    /// More bytes are needed: the record is this long (or at least a header).
    Short(usize),
    /// The header does not verify, so its length means nothing.
    Header,
    /// The header verifies and the body does not: the next record starts after `len`.
    Body { len: usize, offset: u64 },
}

/// Appends a record without its offset; `place` completes it.
pub(crate) fn encode(out: &mut Vec<u8>, topic: u32, event: &NewEvent<'_>) {
    let key = event.key.unwrap_or_default();
    let len = HEADER_BYTES + key.len() + event.meta.len() + event.payload.len();
    let mut flags = 0;
    for (flag, set) in
        [(HAS_KEY, event.key.is_some()), (SERVER_STAMPED, event.ts.is_none()), (TOMBSTONE, event.tombstone)]
    {
        if set {
            flags |= flag;
        }
    }
    let body_crc =
        crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(key), event.meta), event.payload);
    out.reserve(len);
    out.extend_from_slice(&(len as u32).to_le_bytes());
    out.extend_from_slice(&0u32.to_le_bytes());
    out.extend_from_slice(&body_crc.to_le_bytes());
    out.extend_from_slice(&topic.to_le_bytes());
    out.extend_from_slice(&0u64.to_le_bytes());
    out.extend_from_slice(&event.ts.unwrap_or(0).to_le_bytes());
    out.extend_from_slice(event.id.id().as_bytes());
    out.extend_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(&(key.len() as u16).to_le_bytes());
    out.extend_from_slice(&(event.meta.len() as u32).to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(event.meta);
    out.extend_from_slice(event.payload);
}

/// Writes offset and `ts` into an encoded record, and the checksum of its header.
pub(crate) fn place(record: &mut [u8], offset: u64, ts: i64) {
    put(record, AT_OFFSET, &offset.to_le_bytes());
    put(record, AT_TS, &ts.to_le_bytes());
    if let Some(header) = record.first_chunk::<HEADER_BYTES>() {
        let crc = header_crc(header);
        put(record, AT_HEADER_CRC, &crc.to_le_bytes());
    }
}

/// Checks and reads the record at the start of `bytes`.
pub(crate) fn parse(bytes: &[u8]) -> Result<RecordView<'_>, BadRecord> {
    let header = bytes.first_chunk::<HEADER_BYTES>().ok_or(BadRecord::Short(HEADER_BYTES))?;
    let mut fields = Fields(header);
    let len = fields.u32().unwrap_or(0) as usize;
    let stored = fields.u32().unwrap_or(0);
    let lengths_fit = lengths_fit(header, len);
    if !lengths_fit || (stored != header_crc(header) && !planted::is(Bug::IgnoreCrc)) {
        return Err(BadRecord::Header);
    }
    let whole = bytes.get(..len).ok_or(BadRecord::Short(len))?;
    let body_crc = fields.u32().unwrap_or(0);
    let body = whole.get(HEADER_BYTES..).unwrap_or_default();
    if crc32c::crc32c(body) != body_crc && !planted::is(Bug::IgnoreCrc) {
        return Err(BadRecord::Body { len, offset: offset_of(header) });
    }
    Ok(view_checked(whole))
}

fn lengths_fit(header: &[u8; HEADER_BYTES], len: usize) -> bool {
    let key_len = u16::from_le_bytes([header[50], header[51]]) as usize;
    let meta_len = u32::from_le_bytes([header[52], header[53], header[54], header[55]]) as usize;
    len >= HEADER_BYTES + key_len + meta_len
}

fn header_crc(header: &[u8; HEADER_BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[0..4]), &header[8..HEADER_BYTES])
}

/// The topic, the offset and the length that the bytes would have as a record; nothing is checked but that
/// the lengths fit. A quick look before `parse`.
pub(crate) fn peek(bytes: &[u8]) -> Option<(u32, u64, usize)> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    let mut fields = Fields(header);
    let len = fields.u32()? as usize;
    let _crcs = fields.u64()?;
    lengths_fit(header, len).then_some((fields.u32()?, fields.u64()?, len))
}

/// The offset of a record whose header verifies.
pub(crate) fn offset_of(record: &[u8]) -> u64 {
    record.get(AT_OFFSET..).and_then(|rest| Fields(rest).u64()).unwrap_or(0)
}

/// The key and the payload of a record that `encode` made and `place` has not completed.
pub(crate) fn split_unplaced(record: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    record.first_chunk::<HEADER_BYTES>()?;
    let view = view_checked(record);
    Some((view.key, view.payload))
}

/// The fields of a record that `parse` accepted before, without another check.
pub(crate) fn view_checked(bytes: &[u8]) -> RecordView<'_> {
    let mut fields = Fields(bytes);
    let len = fields.u32().unwrap_or(0) as usize;
    let _crcs = fields.u64();
    let topic = fields.u32().unwrap_or(0);
    let offset = fields.u64().unwrap_or(0);
    let ts = fields.i64().unwrap_or(0);
    let id = EventId::from_bytes(fields.array().unwrap_or_default());
    let flags = fields.u16().unwrap_or(0);
    let key_len = fields.u16().unwrap_or(0) as usize;
    let meta_len = fields.u32().unwrap_or(0) as usize;
    let body = fields.0;
    let key = fields.bytes(key_len).unwrap_or_default();
    let meta = fields.bytes(meta_len).unwrap_or_default();
    RecordView {
        offset,
        ts,
        id,
        key: (flags & HAS_KEY != 0).then_some(key),
        meta,
        payload: fields.0,
        body,
        tombstone: flags & TOMBSTONE != 0,
        server_stamped: flags & SERVER_STAMPED != 0,
        topic,
        len,
    }
}
