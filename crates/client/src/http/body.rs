//! The lines of an answer, one at a time.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::HttpAnswer;
use crate::error::ClientError;

/// The longest silence of a stream; the server sends a comment every 15 s.
const SILENCE: Duration = Duration::from_secs(45);
/// The longest line: an event with its payload, and room for what is escaped.
const LINE_BYTES_MAX: usize = 64 << 20;

/// Reads the lines of an answer, in memory for one line and what came with it.
pub(crate) struct BodyLines {
    body: Incoming,
    buffer: BytesMut,
    /// Bytes of the buffer that have no end of line.
    searched: usize,
    is_over: bool,
}

impl BodyLines {
    pub(crate) fn new(answer: HttpAnswer) -> Self {
        Self { body: answer.body, buffer: BytesMut::new(), searched: 0, is_over: false }
    }

    /// The next line, without its end; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
            if let Some(at) = unsearched.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.searched + at).freeze();
                self.buffer.advance(1);
                self.searched = 0;
                return Ok(Some(
                    line.strip_suffix(b"\r").map_or(line.clone(), |short| line.slice_ref(short)),
                ));
            }
            self.searched = self.buffer.len();
            if self.is_over {
                let rest = std::mem::take(&mut self.buffer).freeze();
                self.searched = 0;
                return Ok((!rest.is_empty()).then_some(rest));
            }
            if self.searched > LINE_BYTES_MAX {
                let message = "the server sent a line that is too long";
                return Err(ClientError::new("too_large", message));
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<(), ClientError> {
        let lost = |why: String| ClientError::new("disconnected", why).with_side_effects(false);
        match tokio::time::timeout(SILENCE, self.body.frame()).await {
            Err(_) => Err(lost(format!("the server was silent for {} s", SILENCE.as_secs()))),
            Ok(None) => {
                self.is_over = true;
                Ok(())
            }
            Ok(Some(Err(error))) => Err(lost(format!("the answer was cut short: {error}")).because(error)),
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    self.buffer.extend_from_slice(&data);
                }
                Ok(())
            }
        }
    }
}
