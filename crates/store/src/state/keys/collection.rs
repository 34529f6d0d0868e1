//! Collections: declarations, dropped collections, counts of documents.
//!
//! ```text
//! key  03 | name        value  number u32 | keeping u8 | fields u16, each: kind u8, name | indexes u16, each:
//!                              unique u8, fields u16, each: descending u8, name
//! key  04 | number u32  value  nothing
//! key  05 | number u32  value  documents u64
//! ```
//!
//! A name is its length as u16 and its bytes. keeping: 0 derived, 1 durable. kind: 0 text, 1 number, 2 bool. Documents
//! and index entries hold the number, so that a collection can be dropped at once, however many documents it has.

use promethean_model::CollectionName;

use super::super::codec::{Malformed, RowReader, put_short};
use super::tagged;
use crate::port::{Collection, Direction, Field, Index, Keeping};
use crate::value::FieldType;

pub(crate) const TAG: u8 = 0x03;
pub(crate) const TAG_DROPPED: u8 = 0x04;
pub(crate) const TAG_COUNT: u8 = 0x05;
const FAMILY: &str = "collection";

/// The prefix of declarations.
pub(crate) const PREFIX: [u8; 1] = [TAG];
/// The prefix of dropped collections.
pub(crate) const DROPPED_PREFIX: [u8; 1] = [TAG_DROPPED];

/// A declaration and its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeclaredCollection {
    pub(crate) number: u32,
    pub(crate) collection: Collection,
}

pub(crate) fn key(name: &CollectionName) -> Vec<u8> {
    tagged(TAG, &[name.as_str().as_bytes()])
}

pub(crate) fn dropped_key(number: u32) -> Vec<u8> {
    tagged(TAG_DROPPED, &[&number.to_be_bytes()])
}

pub(crate) fn decode_dropped_key(key: &[u8]) -> Result<u32, Malformed> {
    let mut reader = RowReader::new(key, FAMILY);
    reader.u8()?;
    reader.u32()
}

pub(crate) fn count_key(number: u32) -> Vec<u8> {
    tagged(TAG_COUNT, &[&number.to_be_bytes()])
}

pub(crate) fn value(declared: &DeclaredCollection) -> Vec<u8> {
    let mut out = declared.number.to_be_bytes().to_vec();
    let collection = &declared.collection;
    out.push(u8::from(collection.keeping == Keeping::Durable));
    put_count(&mut out, collection.fields.len());
    for field in &collection.fields {
        out.push(kind_number(field.kind));
        put_short(&mut out, field.name.as_bytes());
    }
    put_count(&mut out, collection.indexes.len());
    for index in &collection.indexes {
        out.push(u8::from(index.unique));
        put_count(&mut out, index.fields.len());
        for (name, direction) in &index.fields {
            out.push(u8::from(*direction == Direction::Descending));
            put_short(&mut out, name.as_bytes());
        }
    }
    out
}

/// Appends a count; declarations were checked to be small.
fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend(u16::try_from(count).unwrap_or(u16::MAX).to_be_bytes());
}

pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<DeclaredCollection, Malformed> {
    let mut reader = RowReader::new(key, FAMILY);
    reader.u8()?;
    let name = reader.rest();
    let name = reader.text(name)?.parse().map_err(|_| reader.malformed())?;
    let mut reader = RowReader::new(value, FAMILY);
    let number = reader.u32()?;
    let keeping = if reader.u8()? == 0 { Keeping::Derived } else { Keeping::Durable };
    let fields = (0..reader.u16()?).map(|_| decode_field(&mut reader)).collect::<Result<_, _>>()?;
    let indexes = (0..reader.u16()?).map(|_| decode_index(&mut reader)).collect::<Result<_, _>>()?;
    reader.end()?;
    Ok(DeclaredCollection { number, collection: Collection { name, keeping, fields, indexes } })
}

fn decode_field(reader: &mut RowReader<'_>) -> Result<Field, Malformed> {
    let kind = match reader.u8()? {
        0 => FieldType::Text,
        1 => FieldType::Number,
        2 => FieldType::Bool,
        _ => return Err(reader.malformed()),
    };
    let name = reader.short()?;
    Ok(Field { name: reader.text(name)?.to_owned(), kind })
}

fn decode_index(reader: &mut RowReader<'_>) -> Result<Index, Malformed> {
    let unique = reader.u8()? != 0;
    let fields = (0..reader.u16()?).map(|_| decode_index_field(reader)).collect::<Result<_, _>>()?;
    Ok(Index { fields, unique })
}

fn decode_index_field(reader: &mut RowReader<'_>) -> Result<(String, Direction), Malformed> {
    let direction = if reader.u8()? == 0 { Direction::Ascending } else { Direction::Descending };
    let name = reader.short()?;
    Ok((reader.text(name)?.to_owned(), direction))
}

const fn kind_number(kind: FieldType) -> u8 {
    match kind {
        FieldType::Text => 0,
        FieldType::Number => 1,
        FieldType::Bool => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        let field = |name: &str, kind| Field { name: name.to_owned(), kind };
        let declared = DeclaredCollection {
            number: 7,
            collection: Collection {
                name: "Procs.x".parse().unwrap(),
                keeping: Keeping::Durable,
                fields: vec![
                    field("host", FieldType::Text),
                    field("pid", FieldType::Number),
                    field("up", FieldType::Bool),
                ],
                indexes: vec![
                    Index {
                        fields: vec![
                            ("host".to_owned(), Direction::Ascending),
                            ("pid".to_owned(), Direction::Descending),
                        ],
                        unique: true,
                    },
                    Index { fields: vec![("up".to_owned(), Direction::Ascending)], unique: false },
                ],
            },
        };
        assert_eq!(decode(&key(&declared.collection.name), &value(&declared)).unwrap(), declared);
        assert_eq!(decode_dropped_key(&dropped_key(9)).unwrap(), 9);
        assert!(decode(&key(&declared.collection.name), &[0; 3]).is_err());
    }
}
