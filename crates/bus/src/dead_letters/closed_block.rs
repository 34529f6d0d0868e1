//! Closed letters of followers: the offsets of events that a follower gave up and whose letters were dropped
//! or redriven to the topic. A follower that reads its topic again leaves these events out.
//!
//! They are kept in the table `ClosedLetters`, one row for each 1,024 offsets of a topic that have any, until
//! retention has removed the events.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use promethean_model::{GroupName, Offset, TopicName};
use promethean_store::port::{RowOp, StateOp, Table};

use super::counts::DeadLetters;
use crate::error::BusError;
use crate::rows::{EventKey, RowError, bad, topic_prefix};

const TABLE: &str = "ClosedLetters";
const VERSION: u8 = 1;
/// The offsets of one row.
const OFFSETS: u64 = 1024;
const BYTES: usize = 128;
/// Rows of removed events that are deleted together with each change, and rows that are read at once.
const PAGE: usize = 16;

/// The value of a row: a bit for each offset, the first in the lowest bit of the first byte. The first offset
/// is in the key.
///
/// ```text
/// 0         1
/// +---------+-----------+
/// | version | bits      |
/// |   1     | 128 bytes |
/// +---------+-----------+
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
struct ClosedBlock {
    bits: [u8; BYTES],
}

impl ClosedBlock {
    const fn new() -> Self {
        Self { bits: [0; BYTES] }
    }

    /// The first offset of the block that has an offset.
    const fn start(offset: Offset) -> Offset {
        Offset(offset.get() / OFFSETS * OFFSETS)
    }

    fn set(&mut self, offset: Offset) {
        let at = offset.get() % OFFSETS;
        if let Some(byte) = self.bits.get_mut((at / 8) as usize) {
            *byte |= 1 << (at % 8);
        }
    }

    /// The offsets of a block that begins at `start`.
    fn offsets(&self, start: Offset) -> impl Iterator<Item = Offset> {
        let set = |at: &u64| self.bits.get((at / 8) as usize).is_some_and(|byte| byte & (1 << (at % 8)) != 0);
        (0..OFFSETS).filter(set).map(move |at| Offset(start.get() + at))
    }

    fn encode(&self) -> Vec<u8> {
        let mut value = vec![VERSION];
        value.extend_from_slice(&self.bits);
        value
    }

    fn decode(value: &[u8]) -> Result<Self, RowError> {
        match value.split_first() {
            Some((&VERSION, bits)) => {
                let bits = bits.try_into().map_err(|_| bad(TABLE, "malformed value"))?;
                Ok(Self { bits })
            }
            Some((version, _)) => Err(bad(TABLE, format!("version {version}"))),
            None => Err(bad(TABLE, "malformed value")),
        }
    }
}

impl DeadLetters {
    /// The changes that note events as closed letters of a follower. They also remove some rows of events that
    /// no longer exist. Called under the lock of the group's letters.
    pub(super) async fn note_closed(
        &self,
        topic: &TopicName,
        group: &GroupName,
        offsets: &[Offset],
    ) -> Result<Vec<StateOp>, BusError> {
        let mut blocks: BTreeMap<Offset, ClosedBlock> = BTreeMap::new();
        for offset in offsets {
            let start = ClosedBlock::start(*offset);
            let block = match blocks.entry(start) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => {
                    let key = EventKey::encode(group, topic, start);
                    let row = self.base.store.row(Table::ClosedLetters, &key).await?;
                    place.insert(row.map_or(Ok(ClosedBlock::new()), |row| ClosedBlock::decode(&row))?)
                }
            };
            block.set(*offset);
        }
        if blocks.is_empty() {
            return Ok(Vec::new());
        }
        let mut ops = self.forget_removed(topic, group).await?;
        for (start, block) in blocks {
            let (table, key) = (Table::ClosedLetters, EventKey::encode(group, topic, start));
            ops.push(RowOp::Put { table, key, value: block.encode(), must_be_new: false }.into());
        }
        Ok(ops)
    }

    /// Closed letters of a follower from one offset to another, ascending.
    pub(crate) async fn closed(
        &self,
        topic: &TopicName,
        group: &GroupName,
        from: Offset,
        to: Offset,
    ) -> Result<Vec<Offset>, BusError> {
        let prefix = topic_prefix(group, topic);
        let before = ClosedBlock::start(from).prev();
        let mut after = before.map(|before| EventKey::encode(group, topic, before));
        let mut found = Vec::new();
        loop {
            let rows = self.base.store.rows(Table::ClosedLetters, &prefix, after.as_deref(), PAGE).await?;
            let Some(last) = rows.last() else { return Ok(found) };
            after = Some(last.key.clone());
            for row in &rows {
                let start = EventKey::decode(&row.key, TABLE)?.offset;
                if start >= to {
                    return Ok(found);
                }
                let block = ClosedBlock::decode(&row.value)?;
                found.extend(block.offsets(start).filter(|offset| (from..to).contains(offset)));
            }
        }
    }

    /// The deletion of the first rows whose events are all removed by retention.
    async fn forget_removed(&self, topic: &TopicName, group: &GroupName) -> Result<Vec<StateOp>, BusError> {
        let info = self.base.store.topic_info(topic).await?;
        let earliest = info.map_or(Offset::ZERO, |info| info.earliest);
        let prefix = topic_prefix(group, topic);
        let mut ops = Vec::new();
        for row in self.base.store.rows(Table::ClosedLetters, &prefix, None, PAGE).await? {
            let start = EventKey::decode(&row.key, TABLE)?.offset;
            if start.get().saturating_add(OFFSETS) > earliest.get() {
                break;
            }
            ops.push(RowOp::Delete { table: Table::ClosedLetters, key: row.key }.into());
        }
        Ok(ops)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_the_offsets_that_were_set() {
        let mut block = ClosedBlock::new();
        let offsets = [2048, 2055, 2056, 3071].map(Offset);
        for offset in offsets {
            assert_eq!(ClosedBlock::start(offset), Offset(2048));
            block.set(offset);
        }
        let read = ClosedBlock::decode(&block.encode()).unwrap();
        assert_eq!(read, block);
        assert_eq!(read.offsets(Offset(2048)).collect::<Vec<_>>(), offsets);
        assert_eq!(block.encode()[..3], [1, 0b1000_0001, 1]);
        for garbage in [vec![], vec![2; 129], vec![1; 128], vec![1; 130]] {
            assert!(ClosedBlock::decode(&garbage).is_err());
        }
    }
}
