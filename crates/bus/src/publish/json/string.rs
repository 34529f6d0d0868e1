//! Strings, where most bytes of a payload are.

use super::{JsonFault, Scan};

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

impl Scan<'_> {
    /// Reads a string from its opening quote to behind its closing one.
    #[inline]
    pub(super) fn string(&mut self) -> Result<(), JsonFault> {
        self.at += 1;
        loop {
            self.at += plain_len(self.rest());
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(_) => return Err(JsonFault::Control),
                None => return Err(JsonFault::End),
            }
        }
    }

    fn escape(&mut self) -> Result<(), JsonFault> {
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                match self.hex4()? {
                    0xd800..=0xdbff => self.low_surrogate()?,
                    0xdc00..=0xdfff => return Err(JsonFault::Surrogate),
                    _ => {}
                }
            }
            Some(_) => return Err(JsonFault::Escape),
            None => return Err(JsonFault::End),
        }
        Ok(())
    }

    fn low_surrogate(&mut self) -> Result<(), JsonFault> {
        if !self.rest().starts_with(b"\\u") {
            return Err(JsonFault::Surrogate);
        }
        self.at += 2;
        match self.hex4()? {
            0xdc00..=0xdfff => Ok(()),
            _ => Err(JsonFault::Surrogate),
        }
    }

    fn hex4(&mut self) -> Result<u32, JsonFault> {
        let digits = self.rest().first_chunk::<4>().ok_or(JsonFault::End)?;
        let number = digits
            .iter()
            .try_fold(0, |number, byte| char::from(*byte).to_digit(16).map(|digit| number << 4 | digit));
        self.at += 4;
        number.ok_or(JsonFault::Escape)
    }
}

/// How many bytes from the first on are neither a quote, a backslash nor a control character. Looks at eight at a time:
/// `x - 1` borrows into the high bit of a zero byte, and a byte is zero after the exclusive or with what is looked for.
#[inline]
fn plain_len(bytes: &[u8]) -> usize {
    let mut len = 0;
    let mut rest = bytes;
    while let Some((chunk, after)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let quote = word ^ (ONES * b'"' as u64);
        let backslash = word ^ (ONES * b'\\' as u64);
        let found = (quote.wrapping_sub(ONES) & !quote
            | backslash.wrapping_sub(ONES) & !backslash
            | word.wrapping_sub(ONES * 0x20) & !word)
            & HIGHS;
        if found != 0 {
            // A borrow can raise false marks, but only above the first true one.
            return len + (found.trailing_zeros() / 8) as usize;
        }
        len += 8;
        rest = after;
    }
    let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    len + rest.iter().position(special).unwrap_or(rest.len())
}
