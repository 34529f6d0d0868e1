//! Requests over HTTP, with the token and the errors of the client.

pub(crate) mod admin;
pub(crate) mod backups;
mod body;
mod call;
pub(crate) mod pages;
pub(crate) mod reader;
pub(crate) mod state;

use std::sync::Mutex;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use promethean_model::IgnorePoison;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

pub(crate) use self::body::BodyLines;
pub(crate) use self::call::HttpCall;
use crate::dial::Dialer;
use crate::error::ClientError;
use crate::token::{BoxError, KeptToken, TokenSource};

/// The longest answer that is kept in memory; streams are not.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// The longest wait for the beginning of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest silence within an answer.
const BODY_SILENCE: Duration = Duration::from_secs(45);
/// Connections that are kept for the next requests.
const IDLE_MAX: usize = 8;
/// How long a connection is kept. Networks forget connections that are silent for long, without a word.
const IDLE_LONGEST: Duration = Duration::from_secs(30);

type Sender = SendRequest<Full<Bytes>>;

/// Requests to one server.
pub(crate) struct HttpClient {
    dialer: Dialer,
    pub(crate) token: KeptToken,
    /// Connections for the next requests, and since when they wait; the newest is the last.
    idle: Mutex<Vec<(Sender, Instant)>>,
    tasks: TaskTracker,
}

/// An answer whose body is not read yet.
pub(crate) struct HttpAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    /// The connection, which is free again when the body was read.
    sender: Sender,
}

impl HttpClient {
    pub(crate) fn new(dialer: Dialer, token: TokenSource) -> Self {
        Self { dialer, token: KeptToken::new(token), idle: Mutex::new(Vec::new()), tasks: TaskTracker::new() }
    }

    /// Sends a request and reads its answer as JSON.
    pub(crate) async fn json<T: DeserializeOwned>(&self, call: HttpCall) -> Result<T, ClientError> {
        let answer = self.send(call).await?;
        let body = self.whole(answer).await?;
        serde_json::from_slice(&body).map_err(|cause| {
            let message = format!(
                "the answer of {} cannot be read: {cause}; use a client of its version",
                self.dialer.address
            );
            ClientError::new("bad_json", message).because(cause)
        })
    }

    /// Reads a whole body.
    pub(crate) async fn whole(&self, answer: HttpAnswer) -> Result<Bytes, ClientError> {
        let HttpAnswer { body, sender, .. } = answer;
        let body = read_whole(body).await.map_err(|why| {
            let message = format!("the answer of {} was cut short: {why}", self.dialer.address);
            ClientError::new("disconnected", message)
        })?;
        self.keep(sender);
        Ok(body)
    }

    /// Sends a request. Fails with the server's refusal.
    pub(crate) async fn send(&self, call: HttpCall) -> Result<HttpAnswer, ClientError> {
        let token = self.token.read().await?;
        let answer = self.begin(&call, token.as_deref()).await?;
        if answer.status == StatusCode::UNAUTHORIZED && self.token.refuse(token.as_deref()).await {
            // The token was kept, and may have ended since.
            let token = self.token.read().await?;
            let answer = self.begin(&call, token.as_deref()).await?;
            return self.check(answer, call.allowed).await;
        }
        self.check(answer, call.allowed).await
    }

    /// Sends a request, and waits for the beginning of its answer.
    async fn begin(&self, call: &HttpCall, token: Option<&str>) -> Result<HttpAnswer, ClientError> {
        let exchange = tokio::time::timeout(ANSWER_TIMEOUT, self.exchange(call, token));
        let (response, sender) = exchange.await.unwrap_or_else(|_| {
            let why = format!("no answer within {} s", ANSWER_TIMEOUT.as_secs());
            Err(self.no_answer(&call.method, why))
        })?;
        let (head, body) = response.into_parts();
        Ok(HttpAnswer { status: head.status, headers: head.headers, body, sender })
    }

    /// Reads the refusal of an answer that is one.
    async fn check(
        &self,
        answer: HttpAnswer,
        allowed: Option<StatusCode>,
    ) -> Result<HttpAnswer, ClientError> {
        if answer.status.is_success() || allowed == Some(answer.status) {
            return Ok(answer);
        }
        let (status, wait) = (answer.status, retry_after(&answer.headers));
        let body = self.whole(answer).await.unwrap_or_default();
        let other = || self.dialer.address.not_a_server().with_detail("status", status.as_u16());
        let error = refusal_of(status, &body).unwrap_or_else(other);
        Err(match (error.retry_after(), wait) {
            (None, Some(wait)) => error.with_retry_after(wait),
            _ => error,
        })
    }

    async fn exchange(
        &self,
        call: &HttpCall,
        token: Option<&str>,
    ) -> Result<(Response<Incoming>, Sender), ClientError> {
        loop {
            let kept = self.kept();
            let is_fresh = kept.is_none();
            let mut sender = match kept {
                Some(sender) => sender,
                None => self.connect().await?,
            };
            if !is_fresh && sender.ready().await.is_err() {
                continue;
            }
            let request = self.request(call, token)?;
            match sender.send_request(request).await {
                Ok(response) => return Ok((response, sender)),
                // The server closed a connection that was kept for long. A request that was not sent, or that
                // can be repeated, is sent again on another one.
                Err(error) if !is_fresh && (error.is_canceled() || call.method != Method::POST) => {}
                Err(error) => return Err(self.no_answer(&call.method, &error).because(error)),
            }
        }
    }

    fn request(&self, call: &HttpCall, token: Option<&str>) -> Result<Request<Full<Bytes>>, ClientError> {
        let address = &self.dialer.address;
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(format!("{}{}", address.path(), call.target))
            .header(HOST, address.authority())
            .header(USER_AGENT, concat!("promethean-client/", env!("CARGO_PKG_VERSION")));
        if let Some(media) = call.media {
            request = request.header(CONTENT_TYPE, media);
        }
        for (name, value) in &call.headers {
            request = request.header(*name, value);
        }
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        request.body(Full::new(call.body.clone())).map_err(|cause| {
            ClientError::new("bad_request", format!("this cannot be an HTTP request: {cause}")).because(cause)
        })
    }

    async fn connect(&self) -> Result<Sender, ClientError> {
        let stream = TokioIo::new(self.dialer.dial().await?);
        let opened = http1::handshake(stream).await;
        let (sender, connection) =
            opened.map_err(|error| self.dialer.address.unreachable(&error).because(error))?;
        // The connection ends with its sender; its errors reach the request.
        self.tasks.spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    fn keep(&self, sender: Sender) {
        let mut idle = self.idle.lock().ignore_poison();
        if !sender.is_closed() && idle.len() < IDLE_MAX {
            idle.push((sender, Instant::now()));
        }
    }

    /// A connection that was kept, and not for too long.
    fn kept(&self) -> Option<Sender> {
        let mut idle = self.idle.lock().ignore_poison();
        idle.retain(|(_, since)| since.elapsed() < IDLE_LONGEST);
        idle.pop().map(|(sender, _)| sender)
    }

    fn no_answer(&self, method: &Method, why: impl std::fmt::Display) -> ClientError {
        let message = format!(
            "no answer from {}: {why}; check that the server runs there and that the URL is right",
            self.dialer.address
        );
        // A request that only reads changes nothing, whether it arrived or not.
        ClientError::new("unreachable", message).with_side_effects(*method != Method::GET)
    }
}

/// Reads a body that comes without long silences. Fails with the reason in words.
async fn read_whole<B>(body: B) -> Result<Bytes, String>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    let mut body = Limited::new(body, ANSWER_BYTES_MAX);
    let mut whole = BytesMut::new();
    loop {
        match tokio::time::timeout(BODY_SILENCE, body.frame()).await {
            Err(_) => return Err(format!("the server was silent for {} s", BODY_SILENCE.as_secs())),
            Ok(None) => return Ok(whole.freeze()),
            Ok(Some(Err(error))) => return Err(error.to_string()),
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    whole.extend_from_slice(&data);
                }
            }
        }
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The error in the body of a refusal; `None` if the body is not one of this server's.
pub(crate) fn refusal_of(status: StatusCode, body: &[u8]) -> Option<ClientError> {
    let mut answer: Map<String, Value> = serde_json::from_slice(body).ok()?;
    let Some(Value::String(code)) = answer.remove("error") else { return None };
    let message = match answer.remove("message") {
        Some(Value::String(message)) => message,
        _ => format!("the server answered {status}"),
    };
    answer.insert("status".to_owned(), status.as_u16().into());
    Some(ClientError::refusal(code, message, answer))
}

#[cfg(test)]
mod tests {
    use futures_util::stream::{self, StreamExt};
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_falls_silent_is_given_up() {
        let part = |text: &'static str| Ok::<_, BoxError>(Frame::data(Bytes::from_static(text.as_bytes())));
        let whole = stream::iter([part("ab"), part("c")]);
        assert_eq!(read_whole(StreamBody::new(whole)).await.unwrap(), "abc");
        let silent = stream::iter([part("ab")]).chain(stream::pending());
        let error = read_whole(StreamBody::new(silent)).await.unwrap_err();
        assert!(error.contains("silent for 45 s"), "{error}");
    }
}
