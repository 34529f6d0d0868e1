//! Encoding and decoding of WebSocket frames.

use anyhow::{Result, ensure};

pub(super) const TEXT: u8 = 1;
pub(super) const CLOSE: u8 = 8;
pub(super) const PING: u8 = 9;
pub(super) const PONG: u8 = 10;

const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;
/// A mask that changes nothing. Masks protect proxies from bytes that a browser sends; there is no proxy
/// here.
const MASK: [u8; 4] = [0; 4];

/// Appends a frame of the client.
pub(super) fn put(out: &mut Vec<u8>, opcode: u8, content: &[u8]) {
    out.push(FINAL | opcode);
    let length = content.len();
    if length < 126 {
        out.push(MASKED | length as u8);
    } else if let Ok(length) = u16::try_from(length) {
        out.push(MASKED | 126);
        out.extend_from_slice(&length.to_be_bytes());
    } else {
        out.push(MASKED | 127);
        out.extend_from_slice(&(length as u64).to_be_bytes());
    }
    out.extend_from_slice(&MASK);
    out.extend_from_slice(content);
}

/// The head of a frame of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) opcode: u8,
    /// Bytes before the content.
    pub(super) bytes: usize,
    pub(super) content: usize,
}

/// The head at the start of `input`; `None` if it is not complete.
pub(super) fn head(input: &[u8]) -> Result<Option<Head>> {
    let [first, second, rest @ ..] = input else { return Ok(None) };
    ensure!(first & 0xF0 == FINAL && first & 0x0F != 0, "the server sent part of a message in a frame");
    ensure!(second & MASKED == 0, "the server sent a masked frame");
    let (bytes, content) = match second {
        126 => match rest.first_chunk::<2>() {
            Some(length) => (4, u16::from_be_bytes(*length).into()),
            None => return Ok(None),
        },
        127 => match rest.first_chunk::<8>() {
            Some(length) => (10, u64::from_be_bytes(*length) as usize),
            None => return Ok(None),
        },
        length => (2, usize::from(*length)),
    };
    Ok(Some(Head { opcode: first & 0x0F, bytes, content }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_tell_the_length_once_they_are_whole() {
        for (length, head_bytes) in [(0, 2), (125, 2), (126, 4), (65_535, 4), (65_536, 10)] {
            let mut sent = Vec::new();
            put(&mut sent, TEXT, &vec![b'x'; length]);
            assert_eq!(sent.len(), head_bytes + MASK.len() + length);
            // As the server would send it: without the mask.
            sent[1] &= !MASKED;
            sent.drain(head_bytes..head_bytes + MASK.len());
            let whole = Head { opcode: TEXT, bytes: head_bytes, content: length };
            assert_eq!(head(&sent).unwrap(), Some(whole));
            assert_eq!(head(&sent[..head_bytes - 1]).unwrap(), None);
        }
        assert!(head(&[TEXT, 0]).is_err(), "a fragment");
        assert!(head(&[FINAL | TEXT, MASKED, 0, 0, 0, 0]).is_err(), "a mask");
    }
}
