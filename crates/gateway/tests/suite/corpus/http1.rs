//! HTTP/1.1 as bytes: client libraries refuse to send most bad requests.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::suite::world::soon;

/// A connection for several requests.
pub(in crate::suite) struct Http1 {
    stream: BufReader<TcpStream>,
}

#[derive(Debug)]
pub(in crate::suite) struct Answer {
    pub(in crate::suite) status: u16,
    /// In lower case, as they come.
    pub(in crate::suite) head: String,
    pub(in crate::suite) body: Vec<u8>,
}

impl Answer {
    /// The body as JSON, or null.
    pub(in crate::suite) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// A request as bytes.
pub(in crate::suite) fn request(
    method: &str,
    path: &str,
    headers: &[(String, String)],
    body: Option<&[u8]>,
) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    if let Some(body) = body {
        head += &format!("content-length: {}\r\n", body.len());
    }
    let mut bytes = (head + "\r\n").into_bytes();
    bytes.extend_from_slice(body.unwrap_or_default());
    bytes
}

impl Http1 {
    pub(in crate::suite) async fn connect(address: SocketAddr) -> Self {
        Self { stream: BufReader::new(TcpStream::connect(address).await.unwrap()) }
    }

    /// Sends bytes and reads one answer. `None` if the connection ends without one.
    pub(in crate::suite) async fn send(&mut self, bytes: &[u8], is_head: bool) -> Option<Answer> {
        let (mut reader, mut writer) = tokio::io::split(&mut self.stream);
        // The answer may come before everything is written; then the rest need not be written.
        let write = async {
            let _ = writer.write_all(bytes).await;
            std::future::pending::<()>().await;
        };
        let read = read(&mut reader, is_head);
        tokio::select! {
            answer = soon("an answer", read) => answer,
            () = write => None,
        }
    }

    /// Whether the connection still answers.
    pub(in crate::suite) async fn lives(&mut self) -> bool {
        let health = request("GET", "/health", &[("host".into(), "localhost".into())], None);
        self.send(&health, false).await.is_some_and(|answer| answer.status == 200)
    }
}

async fn read(reader: &mut (impl tokio::io::AsyncRead + Unpin), is_head: bool) -> Option<Answer> {
    let mut reader = BufReader::with_capacity(1, reader);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let status = head.get(9..12)?.parse().ok()?;
    let mut answer = Answer { status, head: head.to_lowercase(), body: Vec::new() };
    let length: usize = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
    if !is_head {
        answer.body = vec![0; length];
        reader.read_exact(&mut answer.body).await.ok()?;
    }
    Some(answer)
}

/// The statuses of all answers to these bytes, until the server closes.
pub(super) async fn statuses(address: SocketAddr, bytes: &[u8]) -> Vec<u16> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let (mut reader, mut writer) = stream.split();
    let mut answer = Vec::new();
    let write = async {
        let _ = writer.write_all(bytes).await;
        let _ = writer.shutdown().await;
    };
    // After the answer, a reset is the same as an end.
    let _ = tokio::join!(write, soon("the end", reader.read_to_end(&mut answer)));
    let text = String::from_utf8_lossy(&answer);
    text.split("HTTP/1.").skip(1).map(|head| head[2..5].parse().unwrap()).collect()
}
