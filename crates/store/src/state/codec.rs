//! Parts of persisted keys and values as bytes. Integers are big-endian: in keys, byte order is then sort order.

use thiserror::Error;

/// Bytes that do not have the form of their key family.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("malformed {family} in the state engine")]
pub(crate) struct Malformed {
    /// The key family.
    pub(crate) family: &'static str,
}

/// Reads parts from the start of some bytes.
#[derive(Debug)]
pub(crate) struct RowReader<'a> {
    rest: &'a [u8],
    family: &'static str,
}

impl<'a> RowReader<'a> {
    pub(crate) fn new(bytes: &'a [u8], family: &'static str) -> Self {
        Self { rest: bytes, family }
    }

    pub(crate) fn malformed(&self) -> Malformed {
        Malformed { family: self.family }
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or_else(|| self.malformed())?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| self.malformed())?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_be_bytes)
    }

    pub(crate) fn id(&mut self) -> Result<[u8; 16], Malformed> {
        self.array()
    }

    /// Bytes after their length as u16.
    pub(crate) fn short(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.u16()?;
        self.take(usize::from(len))
    }

    /// Bytes after their length as u32.
    pub(crate) fn long(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.u32()?;
        self.take(usize::try_from(len).map_err(|_| self.malformed())?)
    }

    /// Bytes up to the next zero byte, which is skipped.
    pub(crate) fn until_zero(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.rest.iter().position(|byte| *byte == 0).ok_or_else(|| self.malformed())?;
        let head = self.take(len)?;
        self.take(1)?;
        Ok(head)
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(crate) fn text(&self, bytes: &'a [u8]) -> Result<&'a str, Malformed> {
        std::str::from_utf8(bytes).map_err(|_| self.malformed())
    }

    /// Fails unless all bytes were read.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.malformed()) }
    }
}

/// Appends bytes after their length as u16. Callers have bounded the length.
pub(crate) fn put_short(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    assert_eq!(usize::from(len), bytes.len(), "a persisted part outgrew its length field");
    out.extend(len.to_be_bytes());
    out.extend_from_slice(bytes);
}

/// Appends bytes after their length as u32. Callers have bounded the length.
pub(crate) fn put_long(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    assert_eq!(u64::from(len), bytes.len() as u64, "a persisted part outgrew its length field");
    out.extend(len.to_be_bytes());
    out.extend_from_slice(bytes);
}
