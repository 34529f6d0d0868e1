//! Answers: JSON, and bodies that are written while they are made.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::Frame;
use promethean_model::IgnorePoison;
use serde::Serialize;
use thiserror::Error;
use tokio::sync::mpsc;

use super::operation::Media;
use crate::refusal::Refusal;

/// The result of a handler.
pub(super) type Reply = Result<Response, Refusal>;

/// An answer of JSON.
pub(super) fn json(value: &impl Serialize) -> Reply {
    json_with(StatusCode::OK, value)
}

/// An answer of JSON with a status.
pub(super) fn json_with(status: StatusCode, value: &impl Serialize) -> Reply {
    let failed = |_| Refusal::internal();
    Ok(with_status(status, Media::Json, Body::from(serde_json::to_vec(value).map_err(failed)?)))
}

/// An answer with a body of some form.
pub(super) fn with(media: Media, body: impl Into<Body>) -> Response {
    with_status(StatusCode::OK, media, body.into())
}

fn with_status(status: StatusCode, media: Media, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media.as_str()));
    response
}

/// Idle buffers of one answer, at most. A buffer that large events made large is kept until the answer ends.
const IDLE_BUFFERS_MAX: usize = 2;

/// Writes a body in chunks. If it is dropped before [`BodyWriter::finish`], the client sees that the answer
/// is cut.
#[derive(Debug)]
pub(super) struct BodyWriter {
    /// `None` is the end.
    chunks: mpsc::Sender<Option<Bytes>>,
    timeout: Duration,
}

/// The answer was cut. The client sees a broken connection, not an answer that looks whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the answer was cut short")]
pub(super) struct Cut;

/// The client is gone, or reads too slowly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

struct Chunks {
    chunks: mpsc::Receiver<Option<Bytes>>,
    ended: bool,
}

/// A body and its writer, with up to `ahead` chunks that the client has not read. The client may take
/// `timeout` to read a chunk.
pub(super) fn stream(ahead: usize, timeout: Duration) -> (BodyWriter, Body) {
    let (sender, chunks) = mpsc::channel(ahead);
    (BodyWriter { chunks: sender, timeout }, Body::new(Chunks { chunks, ended: false }))
}

impl BodyWriter {
    /// Waits until the client has room for the chunk.
    pub(super) async fn send(&self, chunk: Bytes) -> Result<(), Gone> {
        self.put(Some(chunk)).await
    }

    /// Ends the answer.
    pub(super) async fn finish(self) -> Result<(), Gone> {
        self.put(None).await
    }

    async fn put(&self, chunk: Option<Bytes>) -> Result<(), Gone> {
        match tokio::time::timeout(self.timeout, self.chunks.send(chunk)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Gone),
        }
    }

    /// Returns when the client is gone.
    pub(super) async fn gone(&self) {
        self.chunks.closed().await;
    }
}

/// Buffers that come back when their bytes are sent, so that a long answer needs no new memory.
#[derive(Debug, Clone, Default)]
pub(super) struct Buffers(Arc<Mutex<Vec<Vec<u8>>>>);

/// A buffer on its way to the client.
struct Lent {
    bytes: Vec<u8>,
    home: Buffers,
}

impl Buffers {
    /// An empty buffer.
    pub(super) fn take(&self) -> Vec<u8> {
        self.idle().pop().unwrap_or_default()
    }

    /// Turns a buffer into bytes to send; the buffer comes back when they are sent.
    pub(super) fn lend(&self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Lent { bytes, home: self.clone() })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().ignore_poison()
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        let mut idle = self.home.idle();
        if idle.len() < IDLE_BUFFERS_MAX {
            bytes.clear();
            idle.push(bytes);
        }
    }
}

impl hyper::body::Body for Chunks {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        self.chunks.poll_recv(cx).map(|chunk| match chunk {
            Some(Some(chunk)) => Some(Ok(Frame::data(chunk))),
            Some(None) => {
                self.ended = true;
                None
            }
            None => {
                self.ended = true;
                Some(Err(Cut))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_empty_when_all_its_bytes_are_sent() {
        let buffers = Buffers::default();
        let mut bytes = buffers.take();
        bytes.extend_from_slice(&[7; 1000]);
        let sent = buffers.lend(bytes);
        let part = sent.slice(10..20);
        drop(sent);
        assert_eq!((&part[..], buffers.take().capacity()), (&[7; 10][..], 0));
        drop(part);
        let again = buffers.take();
        assert!(again.is_empty() && again.capacity() >= 1000);
        (0..10).for_each(|_| drop(buffers.lend(vec![1])));
        assert_eq!(buffers.idle().len(), IDLE_BUFFERS_MAX);
    }
}
