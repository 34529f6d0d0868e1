//! The check of JSON text: one pass that also drops insignificant whitespace.
//!
//! `serde_json` can read every accepted text as a `Value`, also inside a dead letter: so nothing is stored
//! that a later reader cannot parse. Therefore the check refuses escaped lone surrogates, numbers beyond a
//! 64-bit float and nesting beyond [`JSON_DEPTH_MAX`]. It also refuses objects with a name twice, because
//! readers would disagree on its value.

use std::borrow::Cow;

use thiserror::Error;

use self::names::OpenNames;

mod names;
mod string;
#[cfg(test)]
mod tests;

/// The deepest nesting of arrays and objects. `serde_json` reads 127 levels, and a dead letter puts its
/// event's payload two levels deeper; the rest is room for users who put events into documents of their own.
pub const JSON_DEPTH_MAX: u32 = 120;

/// The error for a text that is not JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{fault} at byte {at}")]
pub struct JsonError {
    /// What is wrong.
    pub fault: JsonFault,
    /// The byte, counted from 0.
    pub at: usize,
}

/// What is wrong with a text that is not JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum JsonFault {
    /// The bytes are not UTF-8.
    #[error("not UTF-8")]
    Utf8,
    /// The text ends before the value does.
    #[error("the text ends too early")]
    End,
    /// A value is missing.
    #[error("expected a value")]
    Value,
    /// A name is missing.
    #[error("expected a name in double quotes")]
    Name,
    /// A colon is missing.
    #[error("expected `:`")]
    Colon,
    /// After an item of an array, neither a comma nor the end follows.
    #[error("expected `,` or `]`")]
    CommaOrBracket,
    /// After a member of an object, neither a comma nor the end follows.
    #[error("expected `,` or `}}`")]
    CommaOrBrace,
    /// More text follows the value.
    #[error("more text after the value")]
    Trailing,
    /// A malformed number.
    #[error("malformed number")]
    Number,
    /// A number beyond the range of a 64-bit float.
    #[error("number out of range; send it as a string")]
    Range,
    /// A control character inside a string.
    #[error("control character in a string; escape it")]
    Control,
    /// An unknown or malformed escape.
    #[error("malformed escape")]
    Escape,
    /// Half of a surrogate pair.
    #[error("half of a surrogate pair; send the whole character")]
    Surrogate,
    /// A name that the object already has.
    #[error("a name that the object has already; give each name once")]
    Twice,
    /// Arrays and objects are nested too deep.
    #[error("nested deeper than {JSON_DEPTH_MAX}; flatten the value")]
    Depth,
}

/// Checks `text` and drops its insignificant whitespace. The result borrows if whitespace is only at the
/// ends.
pub fn minify(text: &str) -> Result<Cow<'_, str>, JsonError> {
    let led = text.trim_start_matches(is_space_char);
    let trimmed = led.trim_end_matches(is_space_char);
    let mut kept = Minified { text: trimmed, end: 0, out: String::new() };
    match document(trimmed, &mut kept) {
        Ok(()) if kept.end == 0 => Ok(Cow::Borrowed(trimmed)),
        Ok(()) => {
            kept.keep_up_to(trimmed.len());
            Ok(Cow::Owned(kept.out))
        }
        Err(error) => Err(JsonError { at: text.len() - led.len() + error.at, ..error }),
    }
}

/// The position after the part that was read, or the error. Positions are passed by value, so that they stay
/// in registers: with a cursor in memory the check takes half as long again.
type Position = Result<usize, JsonError>;

/// The text without its whitespace. The text before `end` is already in `out`; `end` is 0 until the first
/// whitespace is dropped.
struct Minified<'a> {
    text: &'a str,
    end: usize,
    out: String,
}

/// The open containers, innermost in the lowest bit: 1 is an object, 0 an array.
#[derive(Default)]
struct OpenContainers {
    kinds: u128,
    depth: u32,
    names: OpenNames,
}

fn document(text: &str, kept: &mut Minified<'_>) -> Result<(), JsonError> {
    let bytes = text.as_bytes();
    let mut open = OpenContainers::default();
    let mut at = 0;
    loop {
        let depth = open.depth;
        at = value(text, at, &mut open, kept)?;
        if open.depth > depth {
            continue;
        }
        // A value has ended: close the containers that end with it, until another value must follow.
        loop {
            at = skip_space(bytes, at, kept);
            if open.depth == 0 {
                return if at == bytes.len() { Ok(()) } else { fail(JsonFault::Trailing, at).map(drop) };
            }
            let object = open.is_object();
            match bytes.get(at) {
                Some(b',') if object => {
                    at = name(text, at + 1, &mut open, kept)?;
                    break;
                }
                Some(b',') => {
                    at += 1;
                    break;
                }
                Some(b'}') if object => {
                    open.names.close(text)?;
                    open.pop();
                }
                Some(b']') if !object => open.pop(),
                None => return fail(JsonFault::End, at).map(drop),
                Some(_) if object => return fail(JsonFault::CommaOrBrace, at).map(drop),
                Some(_) => return fail(JsonFault::CommaOrBracket, at).map(drop),
            }
            at += 1;
        }
    }
}

/// Reads a scalar or an empty container, or opens a container; then another value must follow.
#[inline(always)]
fn value(text: &str, at: usize, open: &mut OpenContainers, kept: &mut Minified<'_>) -> Position {
    let bytes = text.as_bytes();
    let at = skip_space(bytes, at, kept);
    match bytes.get(at) {
        Some(b'"') => string::read(bytes, at),
        Some(b'-' | b'0'..=b'9') => number(text, at),
        Some(b'{') => {
            open.push(true, at)?;
            let at = skip_space(bytes, at + 1, kept);
            if bytes.get(at) != Some(&b'}') {
                open.names.open();
                return name(text, at, open, kept);
            }
            open.pop();
            Ok(at + 1)
        }
        Some(b'[') => {
            open.push(false, at)?;
            let at = skip_space(bytes, at + 1, kept);
            if bytes.get(at) != Some(&b']') {
                return Ok(at);
            }
            open.pop();
            Ok(at + 1)
        }
        Some(b't') => word(bytes, at, b"true"),
        Some(b'f') => word(bytes, at, b"false"),
        Some(b'n') => word(bytes, at, b"null"),
        Some(_) => fail(JsonFault::Value, at),
        None => fail(JsonFault::End, at),
    }
}

#[inline(always)]
fn name(text: &str, at: usize, open: &mut OpenContainers, kept: &mut Minified<'_>) -> Position {
    let bytes = text.as_bytes();
    let at = skip_space(bytes, at, kept);
    let at = match bytes.get(at) {
        Some(b'"') => {
            let end = string::read(bytes, at)?;
            open.names.add(text, at + 1, end - 1)?;
            end
        }
        Some(_) => return fail(JsonFault::Name, at),
        None => return fail(JsonFault::End, at),
    };
    let at = skip_space(bytes, at, kept);
    match bytes.get(at) {
        Some(b':') => Ok(at + 1),
        Some(_) => fail(JsonFault::Colon, at),
        None => fail(JsonFault::End, at),
    }
}

fn word(bytes: &[u8], at: usize, word: &[u8]) -> Position {
    let found = bytes.get(at..).is_some_and(|rest| rest.starts_with(word));
    if found { Ok(at + word.len()) } else { fail(JsonFault::Value, at) }
}

#[inline]
fn number(text: &str, start: usize) -> Position {
    let bytes = text.as_bytes();
    let whole = if bytes.get(start) == Some(&b'-') { start + 1 } else { start };
    let mut at = digits(bytes, whole)?;
    let whole_len = at - whole;
    if whole_len > 1 && bytes.get(whole) == Some(&b'0') {
        return fail(JsonFault::Number, at);
    }
    if bytes.get(at) == Some(&b'.') {
        at = digits(bytes, at + 1)?;
    }
    let exponent = matches!(bytes.get(at), Some(b'e' | b'E'));
    if exponent {
        let signed = matches!(bytes.get(at + 1), Some(b'+' | b'-'));
        at = digits(bytes, at + 1 + usize::from(signed))?;
    }
    // A float has room for 308 digits; only longer numbers and exponents need the slow check.
    if exponent || whole_len > 300 {
        let number = text.get(start..at).unwrap_or_default();
        if serde_json::from_str::<f64>(number).is_err() {
            return fail(JsonFault::Range, at);
        }
    }
    Ok(at)
}

/// Reads at least one digit.
#[inline(always)]
fn digits(bytes: &[u8], start: usize) -> Position {
    let mut at = start;
    while let Some(b'0'..=b'9') = bytes.get(at) {
        at += 1;
    }
    if at == start { fail(JsonFault::Number, at) } else { Ok(at) }
}

#[inline(always)]
fn skip_space(bytes: &[u8], at: usize, kept: &mut Minified<'_>) -> usize {
    if bytes.get(at).is_some_and(is_space) { kept.drop_space(at) } else { at }
}

#[cold]
fn fail(fault: JsonFault, at: usize) -> Position {
    Err(JsonError { fault, at })
}

impl Minified<'_> {
    #[inline(never)]
    fn drop_space(&mut self, start: usize) -> usize {
        if self.out.capacity() == 0 {
            self.out.reserve(self.text.len());
        }
        self.keep_up_to(start);
        let bytes = self.text.as_bytes();
        let mut at = start;
        while bytes.get(at).is_some_and(is_space) {
            at += 1;
        }
        self.end = at;
        at
    }

    /// Copies the text up to `end`. Both ends are next to ASCII, so the slice never splits a character.
    fn keep_up_to(&mut self, end: usize) {
        self.out.push_str(self.text.get(self.end..end).unwrap_or_default());
    }
}

impl OpenContainers {
    #[inline(always)]
    fn push(&mut self, object: bool, at: usize) -> Result<(), JsonError> {
        if self.depth == JSON_DEPTH_MAX {
            return fail(JsonFault::Depth, at).map(drop);
        }
        self.depth += 1;
        self.kinds = self.kinds << 1 | u128::from(object);
        Ok(())
    }

    #[inline(always)]
    fn pop(&mut self) {
        self.depth -= 1;
        self.kinds >>= 1;
    }

    #[inline(always)]
    fn is_object(&self) -> bool {
        self.kinds & 1 == 1
    }
}

#[inline(always)]
const fn is_space(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

const fn is_space_char(char: char) -> bool {
    matches!(char, ' ' | '\t' | '\n' | '\r')
}
