//! The optional fields of an event beside its key, and their bytes in the log.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::id::EventId;

/// The optional fields of an event beside its key.
///
/// ```text
/// nothing set: no bytes
///
/// 0         1       2
/// +---------+-------+----------------------------------------------------------------------+
/// | version | flags | the parts that flags names, in this order                            |
/// |   1     |       |                                                                      |
/// +---------+-------+----------------------------------------------------------------------+
/// flag  1  partition   u32, little-endian
/// flag  2  headers     count, then name and value of each, names strictly ascending
/// flag  4  tags        count, then texts
/// flag  8  caused_by   count, then 16 bytes each
/// flag 16  sid         text
///
/// text:   length in bytes, UTF-8
/// count, length: LEB128 in as few bytes as possible
/// ```
///
/// Equal metas have equal bytes and the reverse: the decoder refuses every other encoding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventMeta {
    /// A label for routing.
    pub partition: Option<u32>,
    /// Text by name.
    pub headers: Option<BTreeMap<String, String>>,
    /// Words to filter by.
    pub tags: Option<Vec<String>>,
    /// The events that led to this one.
    pub caused_by: Option<Vec<EventId>>,
    /// The publisher's session.
    pub sid: Option<String>,
}

/// The error for bytes that are no [`EventMeta`]. They passed the record's checksum, so a newer version wrote
/// them or we have a bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MetaError {
    /// The version byte is not ours.
    #[error("event meta has version {0}, this release reads version {VERSION}; use a newer release")]
    Version(u8),
    /// A flag we do not know, or none at all.
    #[error("event meta has flags {0:#04x}")]
    Flags(u8),
    /// The bytes end inside a part.
    #[error("event meta ends too early")]
    Truncated,
    /// Bytes follow the last part.
    #[error("event meta has {0} bytes too many")]
    Trailing(usize),
    /// A count or length that is too large or not in its shortest form.
    #[error("event meta has a malformed number")]
    Number,
    /// A text that is not UTF-8.
    #[error("event meta has a text that is not UTF-8")]
    Utf8,
    /// Header names out of order or twice.
    #[error("event meta has headers out of order")]
    HeaderOrder,
}

const VERSION: u8 = 1;
const PARTITION: u8 = 1;
const HEADERS: u8 = 2;
const TAGS: u8 = 4;
const CAUSED_BY: u8 = 8;
const SID: u8 = 16;
const FLAGS_ALL: u8 = PARTITION | HEADERS | TAGS | CAUSED_BY | SID;

impl EventMeta {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.flags() == 0
    }

    /// Appends the bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if self.is_empty() {
            return;
        }
        out.extend_from_slice(&[VERSION, self.flags()]);
        if let Some(partition) = self.partition {
            out.extend_from_slice(&partition.to_le_bytes());
        }
        if let Some(headers) = &self.headers {
            put_number(out, headers.len());
            for (name, value) in headers {
                put_text(out, name);
                put_text(out, value);
            }
        }
        if let Some(tags) = &self.tags {
            put_number(out, tags.len());
            tags.iter().for_each(|tag| put_text(out, tag));
        }
        if let Some(caused_by) = &self.caused_by {
            put_number(out, caused_by.len());
            caused_by.iter().for_each(|id| out.extend_from_slice(id.as_bytes()));
        }
        if let Some(sid) = &self.sid {
            put_text(out, sid);
        }
    }

    /// Reads what `encode` wrote. Allocates in proportion to the length of `bytes` at most.
    pub fn decode(bytes: &[u8]) -> Result<Self, MetaError> {
        let (version, flags, rest) = match bytes {
            [] => return Ok(Self::default()),
            [version, flags, rest @ ..] => (*version, *flags, rest),
            [version] => (*version, 0, [].as_slice()),
        };
        if version != VERSION {
            return Err(MetaError::Version(version));
        }
        if bytes.len() == 1 {
            return Err(MetaError::Truncated);
        }
        if flags == 0 || flags & !FLAGS_ALL != 0 {
            return Err(MetaError::Flags(flags));
        }
        let mut from = MetaReader(rest);
        // Struct fields are evaluated in the order of this text, which is the order of the parts in the
        // bytes.
        let meta = Self {
            partition: (flags & PARTITION != 0).then(|| from.array().map(u32::from_le_bytes)).transpose()?,
            headers: (flags & HEADERS != 0).then(|| from.headers()).transpose()?,
            tags: (flags & TAGS != 0).then(|| from.list(MetaReader::text)).transpose()?,
            caused_by: (flags & CAUSED_BY != 0)
                .then(|| from.list(|from| from.array().map(EventId::from_bytes)))
                .transpose()?,
            sid: (flags & SID != 0).then(|| from.text()).transpose()?,
        };
        if from.0.is_empty() { Ok(meta) } else { Err(MetaError::Trailing(from.0.len())) }
    }

    fn flags(&self) -> u8 {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        flag(self.partition.is_some(), PARTITION)
            | flag(self.headers.is_some(), HEADERS)
            | flag(self.tags.is_some(), TAGS)
            | flag(self.caused_by.is_some(), CAUSED_BY)
            | flag(self.sid.is_some(), SID)
    }
}

fn put_number(out: &mut Vec<u8>, number: usize) {
    let mut rest = number as u64;
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_number(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

/// Reads fields off the front of the bytes that are left.
struct MetaReader<'a>(&'a [u8]);

impl MetaReader<'_> {
    fn take(&mut self, len: usize) -> Result<&[u8], MetaError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(MetaError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MetaError> {
        let (array, rest) = self.0.split_first_chunk().ok_or(MetaError::Truncated)?;
        self.0 = rest;
        Ok(*array)
    }

    fn number(&mut self) -> Result<usize, MetaError> {
        let mut number = 0_u64;
        // Nine groups of seven bits: no length is beyond 2^63.
        for shift in (0..63).step_by(7) {
            let [byte] = self.array()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let shortest = byte != 0 || shift == 0;
                return usize::try_from(number).ok().filter(|_| shortest).ok_or(MetaError::Number);
            }
        }
        Err(MetaError::Number)
    }

    fn text(&mut self) -> Result<String, MetaError> {
        let len = self.number()?;
        str::from_utf8(self.take(len)?).map(str::to_owned).map_err(|_| MetaError::Utf8)
    }

    /// Reads a count and that many items. The list grows item by item: the count may be wrong, and each item
    /// takes at least one byte of input.
    fn list<T>(&mut self, item: impl Fn(&mut Self) -> Result<T, MetaError>) -> Result<Vec<T>, MetaError> {
        let count = self.number()?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn headers(&mut self) -> Result<BTreeMap<String, String>, MetaError> {
        let pairs = self.list(|from| Ok((from.text()?, from.text()?)))?;
        if !pairs.is_sorted_by(|(a, _), (b, _)| a < b) {
            return Err(MetaError::HeaderOrder);
        }
        Ok(pairs.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, vec};
    use proptest::option::of;
    use proptest::prelude::*;

    use super::*;

    fn encoded(meta: &EventMeta) -> Vec<u8> {
        let mut out = Vec::new();
        meta.encode(&mut out);
        out
    }

    #[test]
    fn nothing_is_no_bytes() {
        assert!(encoded(&EventMeta::default()).is_empty());
        assert_eq!(EventMeta::decode(&[]), Ok(EventMeta::default()));
    }

    #[test]
    fn bytes_are_as_drawn() {
        let meta = EventMeta {
            partition: Some(0x0102),
            headers: Some([("a".to_owned(), "xy".to_owned()), ("b".to_owned(), String::new())].into()),
            tags: Some(vec!["t".to_owned()]),
            caused_by: Some(vec![EventId::from_bytes([9; 16])]),
            sid: Some("s".repeat(200)),
        };
        let mut expected = vec![1, 0x1f, 2, 1, 0, 0];
        expected.extend([2, 1, b'a', 2, b'x', b'y', 1, b'b', 0]);
        expected.extend([1, 1, b't']);
        expected.push(1);
        expected.extend([9; 16]);
        expected.extend([0xc8, 1]);
        expected.extend([b's'; 200]);
        assert_eq!(encoded(&meta), expected);
        assert_eq!(EventMeta::decode(&expected), Ok(meta));
    }

    #[test]
    fn present_but_empty_is_kept() {
        let meta =
            EventMeta { headers: Some(BTreeMap::new()), tags: Some(Vec::new()), ..EventMeta::default() };
        assert_eq!(encoded(&meta), [1, 6, 0, 0]);
        assert_eq!(EventMeta::decode(&[1, 6, 0, 0]), Ok(meta));
    }

    #[test]
    fn refuses_other_bytes() {
        let check =
            |bytes: &[u8], error: MetaError| assert_eq!(EventMeta::decode(bytes), Err(error), "{bytes:?}");
        check(&[1], MetaError::Truncated);
        check(&[2], MetaError::Version(2));
        check(&[0, 1], MetaError::Version(0));
        check(&[1, 0], MetaError::Flags(0));
        check(&[1, 0x21], MetaError::Flags(0x21));
        check(&[1, 1, 0, 0, 0], MetaError::Truncated);
        check(&[1, 1, 0, 0, 0, 0, 7], MetaError::Trailing(1));
        check(&[1, 16, 2, b'a'], MetaError::Truncated);
        check(&[1, 16, 1, 0xff], MetaError::Utf8);
        check(&[1, 16, 0x81, 0], MetaError::Number);
        check(&[1, 16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], MetaError::Number);
        check(&[1, 2, 2, 1, b'b', 0, 1, b'a', 0], MetaError::HeaderOrder);
        check(&[1, 2, 2, 1, b'a', 0, 1, b'a', 0], MetaError::HeaderOrder);
    }

    #[test]
    fn a_huge_count_allocates_nothing() {
        let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        for flag in [HEADERS, TAGS, CAUSED_BY, SID] {
            let bytes = [[1, flag].as_slice(), &huge].concat();
            assert_eq!(EventMeta::decode(&bytes), Err(MetaError::Truncated));
        }
    }

    fn metas() -> impl Strategy<Value = EventMeta> {
        let text = || any::<String>();
        let ids = vec(any::<[u8; 16]>().prop_map(EventId::from_bytes), 0..5);
        let parts = (
            any::<Option<u32>>(),
            of(btree_map(text(), text(), 0..5)),
            of(vec(text(), 0..5)),
            of(ids),
            of(text()),
        );
        parts.prop_map(|(partition, headers, tags, caused_by, sid)| EventMeta {
            partition,
            headers,
            tags,
            caused_by,
            sid,
        })
    }

    proptest! {
        #[test]
        fn round_trips(meta in metas(), before in vec(any::<u8>(), 0..4)) {
            let mut out = before.clone();
            meta.encode(&mut out);
            prop_assert_eq!(EventMeta::decode(&out[before.len()..]), Ok(meta));
        }

        #[test]
        fn every_cut_is_refused(meta in metas()) {
            let bytes = encoded(&meta);
            for len in 1..bytes.len() {
                prop_assert!(EventMeta::decode(&bytes[..len]).is_err());
            }
        }

        #[test]
        fn arbitrary_bytes_are_refused_or_canonical(
            bytes in vec(any::<u8>(), 0..64),
            flags in 0..32_u8,
        ) {
            for bytes in [bytes.clone(), [[1, flags].as_slice(), &bytes].concat()] {
                if let Ok(meta) = EventMeta::decode(&bytes) {
                    prop_assert_eq!(encoded(&meta), bytes);
                }
            }
        }

        #[test]
        fn a_changed_byte_is_refused_or_canonical(meta in metas(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = encoded(&meta);
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
                if let Ok(meta) = EventMeta::decode(&bytes) {
                    prop_assert_eq!(encoded(&meta), bytes);
                }
            }
        }
    }
}
