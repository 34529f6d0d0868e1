//! The state changes of a batch as bytes in the journal.
//!
//! ```text
//! version u8 = 1 | ticket u64 | writes u32, each:
//!     space u8 | kind u8: 0 delete, 1 put | key u16 len, bytes | value u32 len, bytes (put only)
//! ```
//!
//! Redo holds puts and deletes, not operations: applying them does not read the state, so the result does not depend on
//! the rules of the release that wrote them. The ticket matters only to the process that wrote it.

use crate::state::codec::{Malformed, RowReader, put_long, put_short};
use crate::state::{StateSpace, Writes};

const VERSION: u8 = 1;
const FAMILY: &str = "redo";

pub(super) fn encode(ticket: u64, writes: &Writes) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.extend(ticket.to_be_bytes());
    out.extend(u32::try_from(writes.len()).unwrap_or(u32::MAX).to_be_bytes());
    for (space, key, value) in writes.iter() {
        out.extend([space as u8, u8::from(value.is_some())]);
        put_short(&mut out, key);
        if let Some(value) = value {
            put_long(&mut out, value);
        }
    }
    out
}

/// Adds the writes to `into`, over the writes of earlier frames, and returns the ticket.
pub(super) fn decode(bytes: &[u8], into: &mut Writes) -> Result<u64, Malformed> {
    let mut reader = RowReader::new(bytes, FAMILY);
    if reader.u8()? != VERSION {
        return Err(reader.malformed());
    }
    let ticket = reader.u64()?;
    for _ in 0..reader.u32()? {
        let space = StateSpace::of_number(reader.u8()?).ok_or_else(|| reader.malformed())?;
        let is_put = reader.u8()? != 0;
        let key = reader.short()?.to_vec();
        let value = is_put.then(|| reader.long().map(<[u8]>::to_vec)).transpose()?;
        into.set(space, key, value);
    }
    reader.end()?;
    Ok(ticket)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn round_trips(
            ticket: u64,
            entries in prop::collection::vec((0usize..4, any::<Vec<u8>>(), any::<Option<Vec<u8>>>()), 0..20),
        ) {
            let mut writes = Writes::default();
            for (space, key, value) in entries {
                writes.set(StateSpace::ALL[space], key, value);
            }
            let bytes = encode(ticket, &writes);
            let mut decoded = Writes::default();
            prop_assert_eq!(decode(&bytes, &mut decoded).unwrap(), ticket);
            prop_assert_eq!(decoded, writes);
            for cut in 0..bytes.len() {
                prop_assert!(decode(&bytes[..cut], &mut Writes::default()).is_err());
            }
        }
    }
}
