//! The requests of an HTTP/2 connection: a single stream can be stuck while the connection as a whole makes
//! progress.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use promethean_model::IgnorePoison;
use tokio::time::Instant;

/// Bytes given to the connection at once. The connection buffers them whether the client reads or not; the
/// rest waits here, where it can be seen that the client does not read.
const PIECE_BYTES: usize = 16 << 10;

/// The requests of one connection whose answers are not fully sent.
#[derive(Debug, Clone)]
pub(super) struct Traffic(Arc<Mutex<TrafficState>>);

#[derive(Debug)]
struct TrafficState {
    next: u64,
    requests: HashMap<u64, WaitsFor>,
    /// Since when there is no request.
    idle_since: Instant,
}

/// What a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitsFor {
    Server,
    /// A part of the answer waits to be read since this time.
    Client(Instant),
}

/// A request until its answer is sent or given up.
#[derive(Debug)]
pub(super) struct Request {
    traffic: Traffic,
    number: u64,
}

/// The body of an answer, which notes whether it waits for the server or the client.
struct Watched {
    body: Body,
    /// The rest of the last part, not given to the connection yet.
    rest: Bytes,
    request: Request,
}

impl Traffic {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(TrafficState {
            next: 0,
            requests: HashMap::new(),
            idle_since: Instant::now(),
        })))
    }

    pub(super) fn begin(&self) -> Request {
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        state.requests.insert(number, WaitsFor::Server);
        drop(state);
        Request { traffic: self.clone(), number }
    }

    /// Whether there was no request for that long. Not before the first request.
    pub(super) fn is_idle(&self, for_long: Duration) -> bool {
        let state = self.lock();
        state.next > 0 && state.requests.is_empty() && state.idle_since.elapsed() >= for_long
    }

    /// Whether the client has read nothing of some answer for that long.
    pub(super) fn is_stuck(&self, for_long: Duration) -> bool {
        let waits = |waits_for: &WaitsFor| matches!(waits_for, WaitsFor::Client(since) if since.elapsed() >= for_long);
        self.lock().requests.values().any(waits)
    }

    fn lock(&self) -> MutexGuard<'_, TrafficState> {
        // Each change is one operation, so a panic elsewhere leaves the state whole.
        self.0.lock().ignore_poison()
    }
}

impl Request {
    /// Wraps the answer, so that a part that is not read in time is noticed.
    pub(super) fn watch(self, body: Body) -> Body {
        self.set(WaitsFor::Client(Instant::now()));
        Body::new(Watched { body, rest: Bytes::new(), request: self })
    }

    fn set(&self, waits_for: WaitsFor) {
        self.traffic.lock().requests.insert(self.number, waits_for);
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let mut state = self.traffic.lock();
        state.requests.remove(&self.number);
        if state.requests.is_empty() {
            state.idle_since = Instant::now();
        }
    }
}

impl hyper::body::Body for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            let Poll::Ready(polled) = Pin::new(&mut self.body).poll_frame(cx) else {
                self.request.set(WaitsFor::Server);
                return Poll::Pending;
            };
            self.request.set(WaitsFor::Client(Instant::now()));
            match polled.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.rest = data,
                Some(Ok(Err(other))) => return Poll::Ready(Some(Ok(other))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        } else {
            self.request.set(WaitsFor::Client(Instant::now()));
        }
        let piece = self.rest.len().min(PIECE_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}
