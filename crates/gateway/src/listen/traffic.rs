//! What goes on over an HTTP/2 connection, whose streams each may stand still while the connection moves.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use promethean_model::IgnorePoison;
use tokio::time::Instant;

/// What is handed over at once: the connection keeps it, read or not, and what is behind it waits here.
const PIECE_BYTES: usize = 16 << 10;

/// The requests of one connection that are not answered to the end.
#[derive(Debug, Clone)]
pub(super) struct Traffic(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    next: u64,
    requests: HashMap<u64, WaitsFor>,
    /// Since when there is none.
    idle_since: Instant,
}

/// Who has to go on with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitsFor {
    Server,
    /// Since then part of the answer waits to be read.
    Client(Instant),
}

/// A request until its answer is read or given up.
#[derive(Debug)]
pub(super) struct Request {
    traffic: Traffic,
    number: u64,
}

/// An answer that notices who waits for whom.
struct Watched {
    body: Body,
    /// Of the part that came last, what is not handed over.
    rest: Bytes,
    request: Request,
}

impl Traffic {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(State { next: 0, requests: HashMap::new(), idle_since: Instant::now() })))
    }

    pub(super) fn begin(&self) -> Request {
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        state.requests.insert(number, WaitsFor::Server);
        drop(state);
        Request { traffic: self.clone(), number }
    }

    /// Whether there was no request for that long, since the first.
    pub(super) fn is_idle(&self, for_long: Duration) -> bool {
        let state = self.lock();
        state.next > 0 && state.requests.is_empty() && state.idle_since.elapsed() >= for_long
    }

    /// Whether some answer was not read on for that long.
    pub(super) fn is_stuck(&self, for_long: Duration) -> bool {
        let waits = |waits_for: &WaitsFor| matches!(waits_for, WaitsFor::Client(since) if since.elapsed() >= for_long);
        self.lock().requests.values().any(waits)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is one operation, so a panic elsewhere leaves it whole.
        self.0.lock().ignore_poison()
    }
}

impl Request {
    /// The answer, of which each part has to be read in time.
    pub(super) fn watch(self, body: Body) -> Body {
        self.is_now(WaitsFor::Client(Instant::now()));
        Body::new(Watched { body, rest: Bytes::new(), request: self })
    }

    fn is_now(&self, waits_for: WaitsFor) {
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
                self.request.is_now(WaitsFor::Server);
                return Poll::Pending;
            };
            self.request.is_now(WaitsFor::Client(Instant::now()));
            match polled.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.rest = data,
                Some(Ok(Err(other))) => return Poll::Ready(Some(Ok(other))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        } else {
            self.request.is_now(WaitsFor::Client(Instant::now()));
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
