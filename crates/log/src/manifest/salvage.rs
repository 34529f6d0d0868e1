//! What can be read of a manifest that may be damaged.

use super::edit::sealed_topics;
use super::{EDIT_MAGIC, MAGIC, ManifestSnapshot, TopicItem, parse_edit};

/// The content of a manifest, as far as it verifies.
#[derive(Debug, Default)]
pub(crate) struct ManifestSalvage {
    /// The result of all valid edits, and of the sealed topics in damaged edits between them.
    pub(crate) snapshot: ManifestSnapshot,
    /// The number of the last valid edit; 0 if there is none.
    pub(crate) sequence: u64,
    /// The first byte of the first damage that is followed by a valid edit, or that leaves none.
    pub(crate) damaged_at: Option<u64>,
    /// The topics in bytes after the last valid edit, if there are such bytes; a torn append leaves some.
    pub(crate) torn_topics: Option<Vec<TopicItem>>,
}

impl ManifestSalvage {
    /// Reads the bytes of a manifest.
    pub(crate) fn read(bytes: &[u8]) -> ManifestSalvage {
        let mut salvage = ManifestSalvage::default();
        let mut at = if bytes.get(..MAGIC.len()) == Some(MAGIC) { MAGIC.len() } else { 0 };
        if at == 0 {
            salvage.damaged_at = Some(0);
        }
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let next = next_edit(rest, salvage.sequence);
            let skipped = next.unwrap_or(rest.len());
            let bad = rest.get(..skipped).unwrap_or_default();
            if next.is_some() && skipped > 0 {
                salvage.damaged_at.get_or_insert(at as u64);
            }
            let topics = sealed_topics(bad);
            if next.is_some() {
                salvage.snapshot.topics.extend(topics.into_iter().map(|item| (item.id, item)));
            } else if bad.iter().any(|byte| *byte != 0) {
                salvage.torn_topics = Some(topics);
            }
            at += skipped;
            if let Some((number, edit, len)) = bytes.get(at..).and_then(parse_edit) {
                salvage.snapshot.apply(edit);
                salvage.sequence = number;
                at += len;
            }
        }
        if salvage.sequence == 0 {
            salvage.damaged_at.get_or_insert(MAGIC.len() as u64);
        }
        salvage
    }
}

/// The position of the next valid edit with a number above `sequence`.
fn next_edit(bytes: &[u8], sequence: u64) -> Option<usize> {
    let finder = memchr::memmem::Finder::new(&EDIT_MAGIC);
    let mut starts = finder.find_iter(bytes);
    starts.find(|at| {
        let found = bytes.get(*at..).and_then(parse_edit);
        found.is_some_and(|(number, ..)| number > sequence)
    })
}
