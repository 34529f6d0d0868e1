//! The body of a request: read within bounds, and drained when it is refused.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body as _;

use crate::app::App;
use crate::auth::Identity;
use crate::refusal::Refusal;
use crate::usage::receiving::ReceivedBytes;

/// Bytes of a refused body that are read and dropped, so that a client which writes before it reads sees the
/// answer.
const DRAIN_BYTES_MAX: u64 = 16 << 20;

/// The body of one request.
#[derive(Debug)]
pub(super) struct RequestBody {
    body: Body,
    bytes_max: usize,
    timeout: Duration,
    /// The `content-length` of the client.
    length: Option<u64>,
    /// Whether the client waits for `100 Continue`, which hyper sends when the body is read.
    waits: bool,
    begun: bool,
    broken: bool,
    /// The bytes that are here, until the request is answered.
    received: ReceivedBytes,
}

impl RequestBody {
    pub(super) fn new(app: &App, headers: &HeaderMap, body: Body) -> Self {
        let expects = headers.get(header::EXPECT);
        let waits = expects.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        Self {
            body,
            bytes_max: app.options.message_bytes_max,
            timeout: Duration::from_millis(app.options.body_timeout_ms),
            length,
            waits,
            begun: false,
            broken: false,
            received: app.receiving.begin(),
        }
    }

    /// The body counts for this client.
    pub(super) fn belong_to(&mut self, identity: &Identity) {
        if !self.body.is_end_stream() {
            self.received.belong_to(identity);
        }
    }

    /// Reads the whole body.
    pub(super) async fn read(&mut self) -> Result<Bytes, Refusal> {
        if self.length.is_some_and(|length| length > self.bytes_max as u64) {
            return Err(self.too_large());
        }
        self.begun = true;
        let timeout = self.timeout;
        let collected = tokio::time::timeout(timeout, self.collect()).await;
        if !matches!(collected, Ok(Ok(_))) {
            // What came is dropped already.
            self.received.set(0);
        }
        match collected {
            Ok(result) => result,
            Err(_) => {
                self.broken = true;
                let message =
                    format!("the body did not arrive within {} ms; send it faster", timeout.as_millis());
                Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "timeout", message))
            }
        }
    }

    async fn collect(&mut self) -> Result<Bytes, Refusal> {
        let Some(first) = self.chunk().await? else { return Ok(Bytes::new()) };
        self.count(first.len())?;
        let mut whole = match self.chunk().await? {
            // Most bodies come in one chunk.
            None => return Ok(first),
            Some(second) => {
                self.count(first.len() + second.len())?;
                let room = usize::try_from(self.length.unwrap_or(0)).unwrap_or(0).min(self.bytes_max);
                let mut whole = BytesMut::with_capacity(room.max(first.len() + second.len()));
                whole.extend_from_slice(&first);
                whole.extend_from_slice(&second);
                whole
            }
        };
        while let Some(more) = self.chunk().await? {
            self.count(whole.len() + more.len())?;
            whole.extend_from_slice(&more);
        }
        Ok(whole.freeze())
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, Refusal> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(_)) => {
                    self.broken = true;
                    return Err(Refusal::bad_request("the body is malformed or ended early; send it again"));
                }
            }
        }
    }

    /// Counts the bytes that are here, if there is room for so many.
    fn count(&mut self, bytes: usize) -> Result<(), Refusal> {
        if bytes > self.bytes_max {
            return Err(self.too_large());
        }
        Ok(self.received.fit(bytes)?)
    }

    fn too_large(&self) -> Refusal {
        let max = self.bytes_max;
        let message =
            format!("the body is larger than {max} bytes; send less at once, or have the limit raised");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    }

    /// Reads and drops the rest of the body, within bounds. Without this, a client that is still writing
    /// would see a broken connection in place of the answer.
    pub(super) async fn drain(&mut self) {
        let hopeless = self.length.is_some_and(|length| length > DRAIN_BYTES_MAX);
        if self.broken || hopeless || self.body.is_end_stream() || (self.waits && !self.begun) {
            return;
        }
        let timeout = self.timeout;
        let all = async {
            let mut left = DRAIN_BYTES_MAX;
            while let Ok(Some(data)) = self.chunk().await {
                match left.checked_sub(data.len() as u64) {
                    Some(rest) => left = rest,
                    None => return,
                }
            }
        };
        // After the timeout the rest of the body is not waited for.
        let _ = tokio::time::timeout(timeout, all).await;
    }
}
