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

/// What an operation answers with.
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

/// Buffers of one answer that wait to be filled. One that large events made large is kept too, as long as the answer.
const IDLE_BUFFERS_MAX: usize = 2;

/// Where a task puts what it makes. Dropped before it is finished, it leaves an answer that is visibly not whole.
#[derive(Debug)]
pub(super) struct BodyWriter {
    /// `None` is the end.
    chunks: mpsc::Sender<Option<Bytes>>,
    timeout: Duration,
}

/// The answer ends before its end. The client sees a broken connection, not an answer that looks whole.
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

/// A body and its other end, with `ahead` chunks made before the client reads them. A client may take `timeout` to
/// read a chunk.
pub(super) fn stream(ahead: usize, timeout: Duration) -> (BodyWriter, Body) {
    let (sender, chunks) = mpsc::channel(ahead);
    (BodyWriter { chunks: sender, timeout }, Body::new(Chunks { chunks, ended: false }))
}

impl BodyWriter {
    /// Waits until the client has room for the chunk.
    pub(super) async fn send(&self, chunk: Bytes) -> Result<(), Gone> {
        self.put(Some(chunk)).await
    }

    /// The answer is whole.
    pub(super) async fn finish(self) -> Result<(), Gone> {
        self.put(None).await
    }

    async fn put(&self, chunk: Option<Bytes>) -> Result<(), Gone> {
        match tokio::time::timeout(self.timeout, self.chunks.send(chunk)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Gone),
        }
    }

    /// Returns when the client goes away.
    pub(super) async fn gone(&self) {
        self.chunks.closed().await;
    }
}

/// Buffers that come back when what was in them is sent, so that a long answer needs no new memory.
#[derive(Debug, Clone, Default)]
pub(super) struct Buffers(Arc<Mutex<Vec<Vec<u8>>>>);

/// A buffer on its way to the client.
struct Lent {
    bytes: Vec<u8>,
    home: Buffers,
}

impl Buffers {
    /// An empty one.
    pub(super) fn take(&self) -> Vec<u8> {
        self.idle().pop().unwrap_or_default()
    }

    /// What is in it, to be sent.
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
    fn a_buffer_comes_back_empty_when_the_last_who_needs_it_is_done() {
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
