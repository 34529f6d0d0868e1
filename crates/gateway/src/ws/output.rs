//! Output to be written.

use bytes::Bytes;

/// Texts one after the other in one buffer: most frames are small, and an allocation each would cost more than they do.
#[derive(Debug, Default)]
pub(super) struct Output {
    buffer: Vec<u8>,
    ends: Vec<usize>,
}

impl Output {
    /// Adds a frame that `write` appends.
    pub(super) fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.buffer);
        self.ends.push(self.buffer.len());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.buffer.len()
    }

    /// All frames, which are gone from here.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Bytes> + use<> {
        let room = self.buffer.len().min(ROOM_KEPT);
        let buffer = Bytes::from(std::mem::replace(&mut self.buffer, Vec::with_capacity(room)));
        let mut start = 0;
        std::mem::take(&mut self.ends).into_iter().map(move |end| {
            let frame = buffer.slice(start..end);
            start = end;
            frame
        })
    }
}

/// Room for the next frames, by what the last ones took; an idle connection keeps little.
const ROOM_KEPT: usize = 16 << 10;
