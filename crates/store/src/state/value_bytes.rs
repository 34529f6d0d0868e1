//! Field values as bytes that sort as the values do, so that an index is a range of keys.
//!
//! ```text
//! null    00
//! bool    01 | 00 or 01
//! number  02 | f64 big-endian; sign bit flipped if positive, every bit if negative
//! text    03 | bytes, 00 written as 00 FF | 00 00                     up to TEXT_BYTES_MAX bytes
//!         03 | the first TEXT_BYTES_MAX bytes, same | 00 01 | xxh3-128 of the whole text, big-endian
//! ```
//!
//! The end of each form can be seen in the form, so forms can follow each other. A descending field has every bit inverted.
//! Two texts with the same first `TEXT_BYTES_MAX` bytes have a stable order, which is not the order of the texts.

use xxhash_rust::xxh3::xxh3_128;

use super::codec::Malformed;
use crate::port::Direction;
use crate::value::Value;

/// Longer texts are cut and hashed: a key of an engine has at most 65,535 bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 1024;

/// The longest form: a cut text of zeros.
pub(crate) const VALUE_BYTES_MAX: usize = 1 + 2 * TEXT_BYTES_MAX + 2 + 16;

/// Appends the form of a value.
pub(crate) fn put(out: &mut Vec<u8>, value: &Value, direction: Direction) {
    let start = out.len();
    match value {
        Value::Null => out.push(0),
        Value::Bool(value) => out.extend([1, u8::from(*value)]),
        Value::Number(number) => {
            out.push(2);
            out.extend(number_bits(*number).to_be_bytes());
        }
        Value::Text(text) => {
            out.push(3);
            put_text(out, text.as_bytes());
        }
    }
    if direction == Direction::Descending {
        out.iter_mut().skip(start).for_each(|byte| *byte = !*byte);
    }
}

/// The length of the form at the start of these bytes.
pub(crate) fn len(bytes: &[u8], direction: Direction) -> Result<usize, Malformed> {
    let mask = if direction == Direction::Descending { 0xff } else { 0 };
    let malformed = Malformed { family: "index value" };
    let mut upright = bytes.iter().map(|byte| byte ^ mask);
    match upright.next().ok_or_else(|| malformed.clone())? {
        0 => Ok(1),
        1 => Ok(2),
        2 => Ok(9),
        3 => {
            let mut len = 1;
            loop {
                len += 1;
                if upright.next().ok_or_else(|| malformed.clone())? != 0 {
                    continue;
                }
                len += 1;
                match upright.next() {
                    Some(0xff) => {}
                    Some(0) => return Ok(len),
                    Some(1) => return Ok(len + 16),
                    _ => return Err(malformed),
                }
            }
        }
        _ => Err(malformed),
    }
}

fn number_bits(number: f64) -> u64 {
    let bits = number.to_bits();
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    for byte in text.iter().take(TEXT_BYTES_MAX) {
        out.push(*byte);
        if *byte == 0 {
            out.push(0xff);
        }
    }
    if text.len() <= TEXT_BYTES_MAX {
        out.extend([0, 0]);
    } else {
        out.extend([0, 1]);
        out.extend(xxh3_128(text).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn form(values: &[(Value, Direction)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (value, direction) in values {
            put(&mut out, value, *direction);
        }
        out
    }

    fn any_value() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<f64>().prop_map(Value::number),
            (-3i32..3).prop_map(|n| Value::number(f64::from(n))),
            "[\u{0}-\u{2}ab\u{ff}\u{10ffff}]{0,6}".prop_map(Value::Text),
        ]
    }

    proptest! {
        #[test]
        fn order_of_forms_is_order_of_values(
            a in prop::collection::vec(any_value(), 3),
            b in prop::collection::vec(any_value(), 3),
            descending in prop::collection::vec(any::<bool>(), 3),
        ) {
            let direct = |down: &bool| if *down { Direction::Descending } else { Direction::Ascending };
            let with = |values: &[Value]| -> Vec<(Value, Direction)> {
                values.iter().cloned().zip(descending.iter().map(direct)).collect()
            };
            let expected = a.iter().zip(&b).zip(&descending)
                .map(|((a, b), down)| if *down { b.cmp(a) } else { a.cmp(b) })
                .find(|order| order.is_ne())
                .unwrap_or(std::cmp::Ordering::Equal);
            prop_assert_eq!(form(&with(&a)).cmp(&form(&with(&b))), expected);
        }

        #[test]
        fn no_form_is_a_prefix_of_another(a in any_value(), b in any_value(), down in any::<bool>()) {
            let direction = if down { Direction::Descending } else { Direction::Ascending };
            let (a_form, b_form) = (form(&[(a.clone(), direction)]), form(&[(b.clone(), direction)]));
            prop_assert_eq!(b_form.starts_with(&a_form), a == b);
            let followed = [a_form.as_slice(), b_form.as_slice()].concat();
            prop_assert_eq!(len(&followed, direction), Ok(a_form.len()));
        }
    }

    #[test]
    fn long_texts_stay_short_and_distinct() {
        let long = |last: char| Value::Text("\0".repeat(TEXT_BYTES_MAX) + &last.to_string());
        let (a, b) = (form(&[(long('a'), Direction::Ascending)]), form(&[(long('b'), Direction::Ascending)]));
        assert_ne!(a, b);
        assert_eq!(a.len(), VALUE_BYTES_MAX);
        assert_eq!(len(&a, Direction::Ascending), Ok(VALUE_BYTES_MAX));
        let cut = form(&[(Value::Text("\0".repeat(TEXT_BYTES_MAX)), Direction::Ascending)]);
        assert!(cut < a && cut < b);
    }
}
