//! Outbox rows, by sequence, by status and by id.
//!
//! ```text
//! key  07 | sequence u64              value  id 16 | status u8 | ts i64 | has key u8 | topic u16 len | key u16 len |
//!                                            meta u32 len | payload u32 len | has error u8 | error u16 len
//! key  08 | status u8 | sequence u64  value  nothing
//! key  09 | id 16                     value  sequence u64
//! ```

use promethean_model::EventId;

use super::super::codec::{Malformed, RowReader, put_long, put_short};
use super::tagged;
use crate::port::{OutboxRow, OutboxStatus};

pub(super) const TAG: u8 = 0x07;
pub(super) const TAG_STATUS: u8 = 0x08;
pub(super) const TAG_ID: u8 = 0x09;

/// The prefix of rows.
pub(crate) const PREFIX: [u8; 1] = [TAG];
/// The prefix of the list of rows by status.
pub(crate) const STATUS_PREFIX: [u8; 1] = [TAG_STATUS];
const FAMILY: &str = "outbox row";

pub(crate) fn key(seq: u64) -> Vec<u8> {
    tagged(TAG, &[&seq.to_be_bytes()])
}

/// The sequence number in the key of a row.
pub(crate) fn sequence_of(key: &[u8]) -> Result<u64, Malformed> {
    let mut reader = RowReader::new(key, "outbox row");
    if reader.u8()? != TAG {
        return Err(reader.malformed());
    }
    reader.u64()
}

pub(crate) fn status_prefix(status: OutboxStatus) -> Vec<u8> {
    tagged(TAG_STATUS, &[&[status_number(status)]])
}

pub(crate) fn status_key(status: OutboxStatus, seq: u64) -> Vec<u8> {
    tagged(TAG_STATUS, &[&[status_number(status)], &seq.to_be_bytes()])
}

pub(crate) fn decode_status_key(key: &[u8]) -> Result<u64, Malformed> {
    let mut reader = RowReader::new(key, FAMILY);
    reader.take(2)?;
    reader.u64()
}

pub(crate) fn id_key(id: EventId) -> Vec<u8> {
    tagged(TAG_ID, &[id.as_bytes()])
}

pub(crate) fn id_value(seq: u64) -> Vec<u8> {
    seq.to_be_bytes().to_vec()
}

pub(crate) fn decode_id_value(value: &[u8]) -> Result<u64, Malformed> {
    RowReader::new(value, FAMILY).u64()
}

pub(crate) fn value(row: &OutboxRow) -> Vec<u8> {
    let mut out = row.id.as_bytes().to_vec();
    out.push(status_number(row.status));
    out.extend(row.ts.to_be_bytes());
    out.push(u8::from(row.key.is_some()));
    put_short(&mut out, row.topic.as_str().as_bytes());
    put_short(&mut out, row.key.as_deref().unwrap_or_default().as_bytes());
    put_long(&mut out, &row.meta);
    put_long(&mut out, row.payload.as_bytes());
    out.push(u8::from(row.error.is_some()));
    put_short(&mut out, row.error.as_deref().unwrap_or_default().as_bytes());
    out
}

pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<OutboxRow, Malformed> {
    let mut reader = RowReader::new(key, FAMILY);
    reader.u8()?;
    let seq = reader.u64()?;
    let mut reader = RowReader::new(value, FAMILY);
    let id = EventId::from_bytes(reader.id()?);
    let status = match reader.u8()? {
        0 => OutboxStatus::Pending,
        1 => OutboxStatus::Sent,
        2 => OutboxStatus::Error,
        _ => return Err(reader.malformed()),
    };
    let ts = reader.i64()?;
    let has_key = reader.u8()? != 0;
    let topic = reader.short()?;
    let row_key = reader.short()?;
    let meta = reader.long()?.to_vec();
    let payload = reader.long()?;
    let has_error = reader.u8()? != 0;
    let error = reader.short()?;
    reader.end()?;
    Ok(OutboxRow {
        seq,
        id,
        status,
        ts,
        topic: reader.text(topic)?.parse().map_err(|_| reader.malformed())?,
        key: has_key.then(|| reader.text(row_key).map(str::to_owned)).transpose()?,
        meta,
        payload: reader.text(payload)?.to_owned(),
        error: has_error.then(|| reader.text(error).map(str::to_owned)).transpose()?,
    })
}

const fn status_number(status: OutboxStatus) -> u8 {
    match status {
        OutboxStatus::Pending => 0,
        OutboxStatus::Sent => 1,
        OutboxStatus::Error => 2,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn round_trips(
            seq: u64,
            id: [u8; 16],
            status in 0usize..3,
            ts: i64,
            row_key: Option<String>,
            meta: Vec<u8>,
            payload: String,
            error: Option<String>,
        ) {
            let row = OutboxRow {
                seq,
                id: EventId::from_bytes(id),
                status: OutboxStatus::ALL[status],
                ts,
                topic: "a.b".parse().unwrap(),
                key: row_key,
                meta,
                payload,
                error,
            };
            prop_assert_eq!(decode(&key(seq), &value(&row)).unwrap(), row.clone());
            let by_status = status_key(row.status, seq);
            prop_assert!(by_status.starts_with(&status_prefix(row.status)));
            prop_assert_eq!(decode_status_key(&by_status).unwrap(), seq);
            prop_assert_eq!(decode_id_value(&id_value(seq)).unwrap(), seq);
        }
    }
}
