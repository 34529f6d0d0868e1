//! A frame: one durable batch as bytes.

use crate::bytes::{Fields, put};
use crate::planted::{self, Bug};

pub(crate) const HEADER_BYTES: usize = 48;
pub(crate) const MAGIC: [u8; 4] = *b"PJFR";

const AT_HEADER_CRC: usize = 4;
const AT_DURABLE_MARK: usize = 24;

const CREATE_TOPIC: u8 = 1;
const DELETE_TOPIC: u8 = 2;

/// A change of the set of topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control<'a> {
    Create { topic: u32, name: &'a str },
    Delete { topic: u32 },
}

impl Control<'_> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (kind, topic, name) = match self {
            Control::Create { topic, name } => (CREATE_TOPIC, topic, *name),
            Control::Delete { topic } => (DELETE_TOPIC, topic, ""),
        };
        out.push(kind);
        out.extend_from_slice(&topic.to_le_bytes());
        out.extend_from_slice(&(name.len() as u16).to_le_bytes());
        out.extend_from_slice(name.as_bytes());
    }

    fn encoded_len(&self) -> usize {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        bytes.len()
    }

    fn decode<'a>(fields: &mut Fields<'a>) -> Option<Control<'a>> {
        let kind = fields.u8()?;
        let topic = fields.u32()?;
        let len = fields.u16()? as usize;
        let name = std::str::from_utf8(fields.bytes(len)?).ok()?;
        match kind {
            CREATE_TOPIC => Some(Control::Create { topic, name }),
            DELETE_TOPIC => Some(Control::Delete { topic }),
            _ => None,
        }
    }
}

/// The LSN of a frame, and the lengths of the parts of its body.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FrameParts {
    pub(crate) lsn: u64,
    pub(crate) events: u32,
    pub(crate) control_bytes: u32,
    pub(crate) redo_bytes: u32,
}

/// Fills in the header of a frame, except for the fields that `seal` writes.
pub(crate) fn finish(frame: &mut [u8], parts: FrameParts) {
    let Some((header, body)) = frame.split_first_chunk_mut::<HEADER_BYTES>() else { return };
    let body_crc = crc32c::crc32c(body);
    header[0..4].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&(body.len() as u32).to_le_bytes());
    header[12..16].copy_from_slice(&body_crc.to_le_bytes());
    header[16..24].copy_from_slice(&parts.lsn.to_le_bytes());
    header[32..36].copy_from_slice(&parts.events.to_le_bytes());
    header[36..40].copy_from_slice(&parts.control_bytes.to_le_bytes());
    header[40..44].copy_from_slice(&parts.redo_bytes.to_le_bytes());
    header[44..48].copy_from_slice(&[0; 4]);
}

/// Completes a frame for its file: writes the durable mark and the header's checksum.
pub(crate) fn seal(frame: &mut [u8], durable_mark: u64, salt: u32) {
    put(frame, AT_DURABLE_MARK, &durable_mark.to_le_bytes());
    if let Some(header) = frame.first_chunk::<HEADER_BYTES>() {
        let crc = crc32c::crc32c(&header[8..HEADER_BYTES]) ^ salt;
        put(frame, AT_HEADER_CRC, &crc.to_le_bytes());
    }
}

/// The salt of a file's frames. Because of it, frames of an earlier use of the file do not verify.
pub(crate) fn salt(sequence: u64) -> u32 {
    xxhash_rust::xxh3::xxh3_64(&sequence.to_le_bytes()) as u32
}

/// A checked frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameView<'a> {
    pub(crate) lsn: u64,
    pub(crate) durable_mark: u64,
    pub(crate) events: u32,
    pub(crate) control: &'a [u8],
    pub(crate) records: &'a [u8],
    pub(crate) redo: &'a [u8],
    pub(crate) len: usize,
}

impl<'a> FrameView<'a> {
    pub(crate) fn controls(&self) -> impl Iterator<Item = Control<'a>> + use<'a> {
        let mut fields = Fields(self.control);
        std::iter::from_fn(move || if fields.is_empty() { None } else { Control::decode(&mut fields) })
    }

    /// Whether the parts of the body are what the header says they are.
    fn parts_fit(&self) -> bool {
        let controls: usize = self.controls().map(|control| control.encoded_len()).sum();
        let mut rest = self.records;
        let mut events = 0;
        while let Ok(view) = crate::record::parse(rest) {
            events += 1;
            rest = rest.get(view.len..).unwrap_or_default();
        }
        controls == self.control.len() && rest.is_empty() && events == self.events
    }
}

/// Reads the frame at the start of `bytes`, if there is a valid one.
pub(crate) fn parse(bytes: &[u8], salt: u32) -> Option<FrameView<'_>> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    let mut fields = Fields(header);
    if fields.array::<4>()? != MAGIC {
        return None;
    }
    let trusting = planted::is(Bug::IgnoreCrc);
    if fields.u32()? != crc32c::crc32c(&header[8..HEADER_BYTES]) ^ salt && !trusting {
        return None;
    }
    let body_bytes = fields.u32()? as usize;
    let body_crc = fields.u32()?;
    let lsn = fields.u64()?;
    let durable_mark = fields.u64()?;
    let events = fields.u32()?;
    let control_bytes = fields.u32()? as usize;
    let redo_bytes = fields.u32()? as usize;
    let body = bytes.get(HEADER_BYTES..HEADER_BYTES.checked_add(body_bytes)?)?;
    if crc32c::crc32c(body) != body_crc && !trusting {
        return None;
    }
    let (control, rest) = body.split_at_checked(control_bytes)?;
    let (records, redo) = rest.split_at_checked(rest.len().checked_sub(redo_bytes)?)?;
    Some(FrameView { lsn, durable_mark, events, control, records, redo, len: HEADER_BYTES + body_bytes })
}

/// Reads the frame at the start of `bytes` whose header does not verify, if its body does. The LSN is the one
/// in the header, and may be wrong.
pub(crate) fn parse_headless(bytes: &[u8]) -> Option<FrameView<'_>> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    let mut fields = Fields(header);
    let _magic_and_crc = fields.u64()?;
    let body_bytes = fields.u32()? as usize;
    let body_crc = fields.u32()?;
    let (lsn, durable_mark, events) = (fields.u64()?, fields.u64()?, fields.u32()?);
    let (control_bytes, redo_bytes) = (fields.u32()? as usize, fields.u32()? as usize);
    let body = bytes.get(HEADER_BYTES..HEADER_BYTES.checked_add(body_bytes)?)?;
    if body.is_empty() || crc32c::crc32c(body) != body_crc {
        return None;
    }
    let (control, rest) = body.split_at_checked(control_bytes)?;
    let (records, redo) = rest.split_at_checked(rest.len().checked_sub(redo_bytes)?)?;
    let view =
        FrameView { lsn, durable_mark, events, control, records, redo, len: HEADER_BYTES + body_bytes };
    view.parts_fit().then_some(view)
}

/// A checked frame header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameHeader {
    pub(crate) lsn: u64,
    pub(crate) durable_mark: u64,
    pub(crate) events: u32,
    pub(crate) len: usize,
}

/// Reads the header at the start of `bytes`, if there is a valid one.
pub(crate) fn header(bytes: &[u8], salt: u32) -> Option<FrameHeader> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    let mut fields = Fields(header);
    let (magic, crc, body_bytes) = (fields.array::<4>()?, fields.u32()?, fields.u32()? as usize);
    let verifies = crc == crc32c::crc32c(&header[8..HEADER_BYTES]) ^ salt || planted::is(Bug::IgnoreCrc);
    let _body_crc = fields.u32()?;
    let (lsn, durable_mark, events) = (fields.u64()?, fields.u64()?, fields.u32()?);
    let len = HEADER_BYTES.saturating_add(body_bytes);
    (magic == MAGIC && verifies).then_some(FrameHeader { lsn, durable_mark, events, len })
}

/// Whether the bytes begin with the header of a frame that names more events than `found`: then the damage is
/// in its records.
pub(crate) fn claims_more_events(bytes: &[u8], found: usize) -> bool {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return false };
    let events = u32::from_le_bytes([header[32], header[33], header[34], header[35]]);
    header.starts_with(&MAGIC) && events as usize > found
}

/// The controls that a frame with a damaged body claims to have.
pub(crate) fn claimed_controls(bytes: &[u8]) -> impl Iterator<Item = Control<'_>> {
    let control_bytes = bytes
        .first_chunk::<HEADER_BYTES>()
        .map_or(0, |header| u32::from_le_bytes([header[36], header[37], header[38], header[39]]) as usize);
    let controls = bytes.get(HEADER_BYTES..).and_then(|body| body.get(..control_bytes));
    let mut fields = Fields(controls.unwrap_or_default());
    std::iter::from_fn(move || if fields.is_empty() { None } else { Control::decode(&mut fields) })
}

/// The end of a frame by its header, if the header verifies; the body is not checked. Headers of an earlier
/// use of the file do not verify.
pub(crate) fn claimed_end(bytes: &[u8], at: usize, salt: u32) -> Option<usize> {
    let header = bytes.get(at..)?.first_chunk::<HEADER_BYTES>()?;
    let mut fields = Fields(header);
    let (_magic, crc, body_bytes) = (fields.u32()?, fields.u32()?, fields.u32()? as usize);
    (crc == crc32c::crc32c(&header[8..HEADER_BYTES]) ^ salt).then_some(at + HEADER_BYTES + body_bytes)
}
