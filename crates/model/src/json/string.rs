//! JSON strings, which hold most bytes of a payload.

use super::{JsonFault, Position, fail};

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// Reads a string from its opening quote to the byte after its closing quote.
#[inline(always)]
pub(super) fn read(bytes: &[u8], quote: usize) -> Position {
    let mut at = quote + 1;
    loop {
        at = skip_plain(bytes, at);
        match bytes.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => at = escape(bytes, at + 1)?,
            Some(_) => return fail(JsonFault::Control, at),
            None => return fail(JsonFault::End, at),
        }
    }
}

#[inline(never)]
fn escape(bytes: &[u8], at: usize) -> Position {
    match bytes.get(at) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 1),
        Some(b'u') => match hex4(bytes, at + 1)? {
            0xd800..=0xdbff => low_surrogate(bytes, at + 5),
            0xdc00..=0xdfff => fail(JsonFault::Surrogate, at + 5),
            _ => Ok(at + 5),
        },
        Some(_) => fail(JsonFault::Escape, at),
        None => fail(JsonFault::End, at),
    }
}

fn low_surrogate(bytes: &[u8], at: usize) -> Position {
    if !bytes.get(at..).is_some_and(|rest| rest.starts_with(b"\\u")) {
        return fail(JsonFault::Surrogate, at);
    }
    match hex4(bytes, at + 2)? {
        0xdc00..=0xdfff => Ok(at + 6),
        _ => fail(JsonFault::Surrogate, at),
    }
}

/// Reads four hexadecimal digits as a number.
fn hex4(bytes: &[u8], at: usize) -> Position {
    let Some(digits) = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()) else {
        return fail(JsonFault::End, bytes.len());
    };
    let digit = |number: usize, byte: &u8| Some(number << 4 | char::from(*byte).to_digit(16)? as usize);
    digits.iter().try_fold(0, digit).map_or_else(|| fail(JsonFault::Escape, at), Ok)
}

/// The position of the next quote, backslash or control character. Looks at eight bytes at a time: `x - 1`
/// borrows into the high bit of a zero byte, and the exclusive or with the wanted byte makes that byte zero.
#[inline(always)]
fn skip_plain(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*chunk);
        let quote = word ^ (ONES * b'"' as u64);
        let backslash = word ^ (ONES * b'\\' as u64);
        let found = (quote.wrapping_sub(ONES) & !quote
            | backslash.wrapping_sub(ONES) & !backslash
            | word.wrapping_sub(ONES * 0x20) & !word)
            & HIGHS;
        if found != 0 {
            // A borrow can raise false marks, but only above the first true one.
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while let Some(byte) = bytes.get(at) {
        if matches!(byte, b'"' | b'\\' | 0..0x20) {
            break;
        }
        at += 1;
    }
    at
}
