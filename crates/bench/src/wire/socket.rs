//! The client side of a WebSocket.

use std::io::ErrorKind;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::events::is_ok;
use super::frame::{self, CLOSE, PING, PONG, TEXT};

/// Bytes of the read buffer of a busy socket.
const READ_BYTES: usize = 128 << 10;
/// Bytes of the read buffer of an idle socket.
const FIRST_READ_BYTES: usize = 1 << 10;
const HANDSHAKE_BYTES_MAX: usize = 16 << 10;

/// A connection with its read and write buffers.
#[derive(Debug)]
pub(crate) struct ClientSocket {
    stream: TcpStream,
    pub(crate) input: SocketInput,
    /// Frames that the next `flush` writes.
    pub(crate) output: Vec<u8>,
}

/// Bytes that were read and not used yet.
#[derive(Debug)]
pub(crate) struct SocketInput {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Pongs that the next `flush` writes.
    pongs: Vec<u8>,
}

impl ClientSocket {
    /// Connects to `HOST:PORT` and authenticates.
    pub(crate) async fn open(authority: &str, token: Option<&str>) -> Result<ClientSocket> {
        let stream =
            TcpStream::connect(authority).await.with_context(|| format!("connect to {authority}"))?;
        stream.set_nodelay(true)?;
        let input = SocketInput { buffer: vec![0; FIRST_READ_BYTES], start: 0, end: 0, pongs: Vec::new() };
        let mut socket = ClientSocket { stream, input, output: Vec::new() };
        socket.shake_hands(authority).await?;
        let hello = match token {
            Some(token) => json!({ "op": "AUTH", "token": token, "corr": "a" }),
            None => json!({ "op": "AUTH", "corr": "a" }),
        };
        socket.request(&hello.to_string()).await?;
        Ok(socket)
    }

    async fn shake_hands(&mut self, authority: &str) -> Result<()> {
        // The key only guards against caching proxies, so a constant is enough.
        let request = format!(
            "GET / HTTP/1.1\r\nhost: {authority}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        );
        self.stream.write_all(request.as_bytes()).await?;
        loop {
            self.fill().await?;
            let answer = self.input.waiting();
            if let Some(end) = memchr::memmem::find(answer, b"\r\n\r\n") {
                let answer = String::from_utf8_lossy(answer.get(..end).unwrap_or_default());
                ensure!(answer.starts_with("HTTP/1.1 101"), "no WebSocket there: {answer}");
                self.input.start += end + 4;
                return Ok(());
            }
            ensure!(answer.len() < HANDSHAKE_BYTES_MAX, "no WebSocket there");
        }
    }

    /// Adds a message to the output.
    pub(crate) fn text(&mut self, text: &str) {
        put_text(&mut self.output, text.as_bytes());
    }

    /// Writes the output and the pongs.
    pub(crate) async fn flush(&mut self) -> Result<()> {
        self.output.append(&mut self.input.pongs);
        if !self.output.is_empty() {
            self.stream.write_all(&self.output).await?;
            self.output.clear();
        }
        Ok(())
    }

    /// Waits for bytes and reads them.
    pub(crate) async fn fill(&mut self) -> Result<()> {
        if !self.input.pongs.is_empty() {
            self.flush().await?;
        }
        let read = self.stream.read(self.input.room()).await?;
        self.input.came(read)
    }

    /// Reads without waiting; returns whether there were bytes.
    pub(crate) fn try_fill(&mut self) -> Result<bool> {
        match self.stream.try_read(self.input.room()) {
            Ok(read) => self.input.came(read).map(|()| true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a message and waits for its reply; no other reply may be outstanding.
    pub(crate) async fn request(&mut self, text: &str) -> Result<Value> {
        self.text(text);
        self.flush().await?;
        loop {
            if let Some(reply) = self.input.next_text()? {
                ensure!(is_ok(reply)?, "events before the reply");
                return Ok(serde_json::from_slice(reply)?);
            }
            self.fill().await?;
        }
    }
}

impl SocketInput {
    fn waiting(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// The free part of the buffer. Unused bytes move to the front if it is short.
    fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 && self.buffer.len() - self.end < READ_BYTES / 2 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.buffer.len() {
            // The message is larger than the buffer.
            self.buffer.resize(self.end * 2, 0);
        }
        self.buffer.get_mut(self.end..).unwrap_or_default()
    }

    fn came(&mut self, bytes: usize) -> Result<()> {
        ensure!(bytes > 0, "the server closed the connection");
        self.end += bytes;
        if self.end == self.buffer.len() && self.buffer.len() < READ_BYTES {
            // The socket is no longer idle.
            self.buffer.resize(READ_BYTES, 0);
        }
        Ok(())
    }

    /// The next whole message that was read.
    pub(crate) fn next_text(&mut self) -> Result<Option<&[u8]>> {
        loop {
            let waiting = self.buffer.get(self.start..self.end).unwrap_or_default();
            let Some(head) = frame::head(waiting)? else { return Ok(None) };
            let (from, to) = (self.start + head.bytes, self.start + head.bytes + head.content);
            if to > self.end {
                return Ok(None);
            }
            self.start = to;
            // Each arm borrows the buffer on its own, because only the borrow of a text is returned.
            match head.opcode {
                TEXT => return Ok(Some(self.buffer.get(from..to).unwrap_or_default())),
                PING => {
                    let content = self.buffer.get(from..to).unwrap_or_default();
                    frame::put(&mut self.pongs, PONG, content);
                }
                PONG => {}
                CLOSE => {
                    let reason = self.buffer.get(from + 2..to).unwrap_or_default();
                    bail!("the server closed the connection: {}", String::from_utf8_lossy(reason));
                }
                other => bail!("the server sent a frame with opcode {other}"),
            }
        }
    }
}

/// Appends the frame of a text message.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    frame::put(out, TEXT, text);
}
