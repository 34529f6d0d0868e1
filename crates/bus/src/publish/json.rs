//! Checks JSON text and drops its insignificant whitespace, in one pass.
//!
//! What it accepts is exactly what `serde_json` reads as a `Value`: so nothing is stored that a later reader cannot
//! parse. That refuses escaped lone surrogates, numbers beyond a 64-bit float and nesting beyond [`JSON_DEPTH_MAX`].
//! Duplicate names are accepted, and kept as they are.

use std::borrow::Cow;

use thiserror::Error;

mod string;
#[cfg(test)]
mod tests;

/// Arrays and objects inside each other, at most: what `serde_json` reads.
pub const JSON_DEPTH_MAX: u32 = 127;

/// A text that is not JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{fault} at byte {at}")]
pub struct JsonError {
    /// What is wrong.
    pub fault: JsonFault,
    /// Where, in bytes from 0.
    pub at: usize,
}

/// What is wrong with a text that is not JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum JsonFault {
    /// Bytes that are no text.
    #[error("not UTF-8")]
    Utf8,
    /// Nothing, or too little.
    #[error("the text ends too early")]
    End,
    /// No value where one must be.
    #[error("expected a value")]
    Value,
    /// No name where one must be.
    #[error("expected a name in double quotes")]
    Name,
    /// No colon where one must be.
    #[error("expected `:`")]
    Colon,
    /// Neither the next item nor the end of an array.
    #[error("expected `,` or `]`")]
    CommaOrBracket,
    /// Neither the next member nor the end of an object.
    #[error("expected `,` or `}}`")]
    CommaOrBrace,
    /// Something after the value.
    #[error("more text after the value")]
    Trailing,
    /// A malformed number.
    #[error("malformed number")]
    Number,
    /// A number that no 64-bit float comes near.
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
    /// Too deep.
    #[error("nested deeper than {JSON_DEPTH_MAX}; flatten the value")]
    Depth,
}

/// Checks `text` and drops its insignificant whitespace. Borrows where there is none to drop but at the ends.
pub fn minify(text: &str) -> Result<Cow<'_, str>, JsonError> {
    let led = text.trim_start_matches(is_space_char);
    let trimmed = led.trim_end_matches(is_space_char);
    let mut scan = Scan { text: trimmed, at: 0, kept: 0, out: String::new() };
    match scan.document() {
        Ok(()) if scan.kept == 0 => Ok(Cow::Borrowed(trimmed)),
        Ok(()) => {
            scan.keep_up_to(trimmed.len());
            Ok(Cow::Owned(scan.out))
        }
        Err(fault) => Err(JsonError { fault, at: text.len() - led.len() + scan.at }),
    }
}

/// A place in the text. What is before `kept` is in `out`; `kept` is 0 until the first whitespace is dropped.
struct Scan<'a> {
    text: &'a str,
    at: usize,
    kept: usize,
    out: String,
}

/// Which containers are open, innermost in the lowest bit: 1 is an object.
#[derive(Default)]
struct Open {
    kinds: u128,
    depth: u32,
}

impl Scan<'_> {
    fn document(&mut self) -> Result<(), JsonFault> {
        let mut open = Open::default();
        loop {
            if self.value(&mut open)? {
                continue;
            }
            // A value has ended: close what ends with it, until another one must follow.
            loop {
                self.skip_space();
                if open.depth == 0 {
                    return if self.at == self.text.len() { Ok(()) } else { Err(JsonFault::Trailing) };
                }
                let object = open.is_object();
                match self.peek() {
                    Some(b',') => {
                        self.at += 1;
                        if object {
                            self.name()?;
                        }
                        break;
                    }
                    Some(b'}') if object => open.pop(),
                    Some(b']') if !object => open.pop(),
                    None => return Err(JsonFault::End),
                    Some(_) if object => return Err(JsonFault::CommaOrBrace),
                    Some(_) => return Err(JsonFault::CommaOrBracket),
                }
                self.at += 1;
            }
        }
    }

    /// Reads a scalar or an empty container, or opens one and says true: a value must follow.
    #[inline]
    fn value(&mut self, open: &mut Open) -> Result<bool, JsonFault> {
        self.skip_space();
        match self.peek() {
            Some(b'"') => self.string()?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b'{') => {
                open.push(true)?;
                self.at += 1;
                self.skip_space();
                if self.peek() != Some(b'}') {
                    self.name()?;
                    return Ok(true);
                }
                self.at += 1;
                open.pop();
            }
            Some(b'[') => {
                open.push(false)?;
                self.at += 1;
                self.skip_space();
                if self.peek() != Some(b']') {
                    return Ok(true);
                }
                self.at += 1;
                open.pop();
            }
            Some(b't') => self.word(b"true")?,
            Some(b'f') => self.word(b"false")?,
            Some(b'n') => self.word(b"null")?,
            Some(_) => return Err(JsonFault::Value),
            None => return Err(JsonFault::End),
        }
        Ok(false)
    }

    #[inline]
    fn name(&mut self) -> Result<(), JsonFault> {
        self.skip_space();
        match self.peek() {
            Some(b'"') => self.string()?,
            Some(_) => return Err(JsonFault::Name),
            None => return Err(JsonFault::End),
        }
        self.skip_space();
        match self.peek() {
            Some(b':') => self.at += 1,
            Some(_) => return Err(JsonFault::Colon),
            None => return Err(JsonFault::End),
        }
        Ok(())
    }

    fn word(&mut self, word: &[u8]) -> Result<(), JsonFault> {
        if !self.rest().starts_with(word) {
            return Err(JsonFault::Value);
        }
        self.at += word.len();
        Ok(())
    }

    fn number(&mut self) -> Result<(), JsonFault> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let leading_zero = self.peek() == Some(b'0');
        let whole = self.digits()?;
        if leading_zero && whole > 1 {
            return Err(JsonFault::Number);
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        let exponent = matches!(self.peek(), Some(b'e' | b'E'));
        if exponent {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        // A float has room for 308 digits; only numbers near that are looked at again.
        if exponent || whole > 300 {
            let number = self.text.get(start..self.at).unwrap_or_default();
            serde_json::from_str::<f64>(number).map_err(|_| JsonFault::Range)?;
        }
        Ok(())
    }

    /// Reads at least one digit and says how many there were.
    fn digits(&mut self) -> Result<usize, JsonFault> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start { Err(JsonFault::Number) } else { Ok(self.at - start) }
    }

    #[inline(always)]
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &[u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    #[inline(always)]
    fn skip_space(&mut self) {
        if self.peek().is_some_and(is_space) {
            self.drop_space();
        }
    }

    fn drop_space(&mut self) {
        if self.out.capacity() == 0 {
            self.out.reserve(self.text.len());
        }
        self.keep_up_to(self.at);
        while self.peek().is_some_and(is_space) {
            self.at += 1;
        }
        self.kept = self.at;
    }

    /// Both ends are next to ASCII, so the slice is never between the bytes of a character.
    fn keep_up_to(&mut self, end: usize) {
        self.out.push_str(self.text.get(self.kept..end).unwrap_or_default());
    }
}

impl Open {
    #[inline]
    fn push(&mut self, object: bool) -> Result<(), JsonFault> {
        if self.depth == JSON_DEPTH_MAX {
            return Err(JsonFault::Depth);
        }
        self.depth += 1;
        self.kinds = self.kinds << 1 | u128::from(object);
        Ok(())
    }

    #[inline]
    fn pop(&mut self) {
        self.depth -= 1;
        self.kinds >>= 1;
    }

    #[inline]
    fn is_object(&self) -> bool {
        self.kinds & 1 == 1
    }
}

#[inline(always)]
const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

const fn is_space_char(char: char) -> bool {
    matches!(char, ' ' | '\t' | '\n' | '\r')
}
