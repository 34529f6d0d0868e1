//! Frames that wait to be written.

use bytes::Bytes;
use promethean_model::wire::{Corr, Reply};
use serde::Serialize;

use crate::refusal::Refusal;

/// Memory kept for the next frames, at most; an idle connection keeps little.
const ROOM_KEPT: usize = 16 << 10;

/// Frames that wait to be written, one after the other in one buffer: most frames are small, and an
/// allocation for each would cost more than the frame itself.
#[derive(Debug, Default)]
pub(super) struct Output {
    buffer: Vec<u8>,
    /// Where each frame ends in the buffer.
    ends: Vec<usize>,
}

impl Output {
    /// Adds the frame that `write` appends to the buffer.
    pub(super) fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.buffer);
        self.ends.push(self.buffer.len());
    }

    /// Adds an `OK`.
    pub(super) fn ok(&mut self, corr: Corr<'_>) {
        self.add(|buffer| Reply { corr }.ok(buffer));
    }

    /// Adds an `OK` with the fields of `more`.
    pub(super) fn ok_with(&mut self, corr: Corr<'_>, more: &impl Serialize) {
        self.add(|buffer| Reply { corr }.ok_with(buffer, more));
    }

    /// Adds an `ERR`.
    pub(super) fn refuse(&mut self, corr: Corr<'_>, refusal: &Refusal) {
        let Refusal { code, message, retry_after_ms, more, .. } = refusal;
        self.add(|buffer| Reply { corr }.err_with(buffer, code, message, *retry_after_ms, more));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Takes all frames out.
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
