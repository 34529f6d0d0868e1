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
    let meta = EventMeta { headers: Some(BTreeMap::new()), tags: Some(Vec::new()), ..EventMeta::default() };
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
