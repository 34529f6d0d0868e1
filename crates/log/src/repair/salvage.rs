//! Records found by their checksums, wherever they are.
//!
//! A record names its topic and its offset, and both checksums cover them; so a record that verifies is right
//! wherever it is found. Payloads of the server are JSON texts, which have no zero bytes, so no publisher can
//! hide a record in one.

use std::collections::BTreeMap;
use std::ops::Range;

use promethean_model::EventId;

use crate::record::{self, BadRecord};

/// Records that verify, and what is known of the damaged ones.
#[derive(Debug, Default)]
pub(super) struct Salvaged {
    /// The positions of valid records, by topic and offset.
    pub(super) records: BTreeMap<(u32, u64), Range<usize>>,
    /// The ids of records whose header verifies and whose body does not.
    pub(super) damaged: BTreeMap<(u32, u64), EventId>,
}

/// Finds all records in bytes that `fits` accepts by topic and offset.
pub(super) fn find_records(bytes: &[u8], from: usize, fits: impl Fn(u32, u64) -> bool) -> Salvaged {
    let mut found = Salvaged::default();
    let mut at = from;
    while let Some(rest) = bytes.get(at..).filter(|rest| rest.len() >= record::HEADER_BYTES) {
        let Some((topic, offset, _)) = record::peek(rest).filter(|(topic, offset, _)| fits(*topic, *offset))
        else {
            at += 1;
            continue;
        };
        match record::parse(rest) {
            Ok(view) => {
                found.records.entry((topic, offset)).or_insert(at..at + view.len);
                at += view.len;
            }
            // Bytes may have been added or taken away inside the body, so its length is not trusted.
            Err(BadRecord::Body { .. } | BadRecord::Short(_)) => {
                found.damaged.insert((topic, offset), record::view_checked(rest).id);
                at += record::HEADER_BYTES;
            }
            Err(BadRecord::Header) => at += 1,
        }
    }
    found.damaged.retain(|place, _| !found.records.contains_key(place));
    found
}

/// Whether the bytes from `from` on are records of a topic, one after the other, up to exactly `to`. Returns
/// how many.
pub(super) fn count_whole(
    bytes: &[u8],
    from: usize,
    to: usize,
    mut fits: impl FnMut(u32, u64) -> bool,
) -> Option<u64> {
    let mut rest = bytes.get(from..to)?;
    let mut count = 0;
    while !rest.is_empty() {
        let view = record::parse(rest).ok().filter(|view| fits(view.topic, view.offset))?;
        rest = rest.get(view.len..).unwrap_or_default();
        count += 1;
    }
    Some(count)
}
