//! An HTTP client for one connection, and raw bytes for requests that no client would send.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

pub(in crate::suite) struct Client {
    sender: Sender,
    /// Drives the connection; ends with this client.
    _driver: JoinSet<()>,
}

enum Sender {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

#[derive(Debug)]
pub(in crate::suite) struct Answer {
    pub(in crate::suite) status: StatusCode,
    pub(in crate::suite) headers: HeaderMap,
    pub(in crate::suite) body: Bytes,
}

impl Client {
    pub(in crate::suite) async fn http1(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let mut driver = JoinSet::new();
        driver.spawn(async move { connection.await.unwrap_or_default() });
        Self { sender: Sender::One(sender), _driver: driver }
    }

    pub(in crate::suite) async fn http2(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = handshake.await.unwrap();
        let mut driver = JoinSet::new();
        driver.spawn(async move { connection.await.unwrap_or_default() });
        Self { sender: Sender::Two(sender), _driver: driver }
    }

    /// Sends a request and reads only the head of the answer.
    pub(in crate::suite) async fn open(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Response<Incoming> {
        let mut request = Request::builder().method(method).header("host", "localhost");
        request = match &self.sender {
            Sender::One(_) => request.uri(path),
            Sender::Two(_) => request.uri(format!("http://localhost{path}")),
        };
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        match &mut self.sender {
            Sender::One(sender) => {
                sender.ready().await.unwrap();
                sender.send_request(request).await.unwrap()
            }
            Sender::Two(sender) => sender.send_request(request).await.unwrap(),
        }
    }

    pub(in crate::suite) async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let (head, body) = self.open(method, path, headers, body).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer { status: head.status, headers: head.headers, body }
    }
}

impl Answer {
    #[track_caller]
    pub(in crate::suite) fn json(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.headers["content-type"], "application/json");
        serde_json::from_slice(&self.body).unwrap()
    }

    /// A refusal with this status and code.
    #[track_caller]
    pub(in crate::suite) fn refused(&self, status: u16, code: &str) -> Value {
        let json = self.json(status);
        assert_eq!(json["error"], code, "{json}");
        assert!(json["message"].as_str().is_some_and(|message| message.len() > 10), "{json}");
        assert_eq!(json["request_id"], self.headers["x-request-id"].to_str().unwrap());
        assert_eq!(self.headers["cache-control"], "no-store");
        json
    }

    pub(in crate::suite) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(in crate::suite) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Sends bytes as they are and returns everything that comes until the server closes.
pub(in crate::suite) async fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(std::time::Duration::from_secs(120), stream.read_to_end(&mut answer));
    // After the answer, a reset is the same as an end.
    let _ = read.await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}
