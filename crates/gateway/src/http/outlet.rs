//! Bodies that are written while they are made.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::Frame;
use thiserror::Error;
use tokio::sync::mpsc;

/// Where a task puts what it makes. Dropped before it is finished, it leaves an answer that is visibly not whole.
#[derive(Debug)]
pub(super) struct Outlet {
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
pub(super) fn open(ahead: usize, timeout: Duration) -> (Outlet, Body) {
    let (sender, chunks) = mpsc::channel(ahead);
    (Outlet { chunks: sender, timeout }, Body::new(Chunks { chunks, ended: false }))
}

impl Outlet {
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
