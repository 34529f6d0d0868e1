//! The client side of a WebSocket, polled: many frames are written and read at once.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper::header::{
    CONNECTION, HOST, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::upgrade::Upgraded;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use promethean_model::limits::MESSAGE_BYTES_CEILING;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tungstenite::error::Error;
use tungstenite::handshake::client::generate_key;
use tungstenite::handshake::derive_accept_key;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, Role, WebSocketConfig, WebSocketContext};
use tungstenite::{Message, Utf8Bytes};

use crate::dial::Dialer;
use crate::error::ClientError;
use crate::http::refusal_of;

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
/// Bytes that are buffered before they are written without a flush.
const WRITE_BYTES: usize = 64 << 10;
/// While more bytes than this wait for the network, no more frames are queued.
const UNWRITTEN_BYTES_MAX: usize = 512 << 10;
/// The longest refusal that is read.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
/// The close code of a connection that ended without a goodbye.
pub(crate) const NO_GOODBYE: u16 = 1006;

/// A WebSocket to the server.
pub(crate) struct WsSocket {
    io: TokioIo<Upgraded>,
    context: WebSocketContext,
    /// Bytes queued since everything was last written.
    unwritten: usize,
}

/// A message of the server.
pub(crate) enum SocketItem {
    /// A frame of the protocol.
    Text(Utf8Bytes),
    /// A ping, a pong or a message that is not text: it shows that the server is alive.
    Other,
}

/// Why a connection ended.
#[derive(Debug)]
pub(crate) struct SocketEnd {
    pub(crate) code: u16,
    pub(crate) reason: String,
}

impl WsSocket {
    /// Opens a WebSocket.
    pub(crate) async fn open(dialer: &Dialer) -> Result<Self, ClientError> {
        let address = &dialer.address;
        let stream = TokioIo::new(dialer.dial().await?);
        let (mut sender, connection) =
            http1::handshake(stream).await.map_err(|error| address.unreachable(&error).because(error))?;
        let key = generate_key();
        let request = Request::get(format!("{}/", address.path()))
            .header(HOST, address.authority())
            .header(CONNECTION, "upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, &key)
            .body(Empty::<Bytes>::new())
            .map_err(|error| address.unreachable(&error).because(error))?;
        let exchange = async move {
            let response = sender.send_request(request).await;
            let response = response.map_err(|error| not_http(dialer, error))?;
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                return Err(refused(dialer, response).await);
            }
            let accept = response.headers().get(SEC_WEBSOCKET_ACCEPT);
            if accept.is_none_or(|accept| accept != derive_accept_key(key.as_bytes()).as_str()) {
                return Err(address.not_a_server());
            }
            let upgraded = hyper::upgrade::on(response).await;
            upgraded.map_err(|error| address.unreachable(&error).because(error))
        };
        // The answer comes only while the connection is driven; its errors reach the exchange too.
        let (upgraded, _) = tokio::join!(exchange, connection.with_upgrades());
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BYTES)
            .write_buffer_size(WRITE_BYTES)
            .max_message_size(Some(MESSAGE_BYTES_CEILING))
            .max_frame_size(Some(MESSAGE_BYTES_CEILING));
        let context = WebSocketContext::new(Role::Client, Some(config));
        Ok(Self { io: TokioIo::new(upgraded?), context, unwritten: 0 })
    }

    /// Reads the next message. Pings are answered with the next flush.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<SocketItem, SocketEnd>> {
        match self.context.read(&mut PolledStream { io: &mut self.io, cx }) {
            Ok(Message::Text(text)) => Poll::Ready(Ok(SocketItem::Text(text))),
            Ok(Message::Close(frame)) => {
                let end = frame.map(|CloseFrame { code, reason }| SocketEnd {
                    code: code.into(),
                    reason: reason.as_str().to_owned(),
                });
                let silent = || SocketEnd { code: 1005, reason: "the server closed it".to_owned() };
                Poll::Ready(Err(end.unwrap_or_else(silent)))
            }
            Ok(message) => {
                if message.is_ping() {
                    self.unwritten += message.len() + 2;
                }
                Poll::Ready(Ok(SocketItem::Other))
            }
            Err(error) if would_block(&error) => Poll::Pending,
            Err(error) => Poll::Ready(Err(end(&error))),
        }
    }

    /// Whether more frames may be queued.
    pub(crate) fn has_room(&self) -> bool {
        self.unwritten < UNWRITTEN_BYTES_MAX
    }

    /// Queues a frame.
    pub(crate) fn write(&mut self, cx: &mut Context<'_>, text: Utf8Bytes) -> Result<(), SocketEnd> {
        self.queue(cx, text.len(), Message::Text(text))
    }

    /// Queues a ping.
    pub(crate) fn ping(&mut self, cx: &mut Context<'_>) -> Result<(), SocketEnd> {
        self.queue(cx, 2, Message::Ping(Bytes::new()))
    }

    /// Queues a goodbye.
    pub(crate) fn close(&mut self, cx: &mut Context<'_>) -> Result<(), SocketEnd> {
        let frame = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
        self.queue(cx, 2, Message::Close(Some(frame)))
    }

    fn queue(&mut self, cx: &mut Context<'_>, bytes: usize, message: Message) -> Result<(), SocketEnd> {
        self.unwritten += bytes;
        match self.context.write(&mut PolledStream { io: &mut self.io, cx }, message) {
            // A message that would block is queued, though not written.
            Err(error) if !would_block(&error) => Err(end(&error)),
            _ => Ok(()),
        }
    }

    /// Writes what is queued.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SocketEnd>> {
        if self.unwritten == 0 {
            return Poll::Ready(Ok(()));
        }
        match self.context.flush(&mut PolledStream { io: &mut self.io, cx }) {
            Ok(()) => {
                self.unwritten = 0;
                Poll::Ready(Ok(()))
            }
            Err(error) if would_block(&error) => Poll::Pending,
            Err(error) => Poll::Ready(Err(end(&error))),
        }
    }
}

/// A server that speaks something else than HTTP is another server; a connection that breaks may be one.
fn not_http(dialer: &Dialer, error: hyper::Error) -> ClientError {
    match error.is_parse() {
        true => dialer.address.not_a_server(),
        false => dialer.address.unreachable(&error),
    }
    .because(error)
}

async fn refused(dialer: &Dialer, response: Response<hyper::body::Incoming>) -> ClientError {
    let status = response.status();
    let body = Limited::new(response.into_body(), REFUSAL_BYTES_MAX).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    refusal_of(status, &body).unwrap_or_else(|| dialer.address.not_a_server())
}

fn would_block(error: &Error) -> bool {
    matches!(error, Error::Io(error) if error.kind() == io::ErrorKind::WouldBlock)
}

fn end(error: &Error) -> SocketEnd {
    SocketEnd { code: NO_GOODBYE, reason: error.to_string() }
}

/// Lets code for blocking I/O use a polled connection: a call that would have to wait returns `WouldBlock`.
struct PolledStream<'a, 'b, 'c> {
    io: &'a mut TokioIo<Upgraded>,
    cx: &'b mut Context<'c>,
}

fn now_or_block<T>(poll: Poll<io::Result<T>>) -> io::Result<T> {
    match poll {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl Read for PolledStream<'_, '_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(buffer);
        now_or_block(Pin::new(&mut *self.io).poll_read(self.cx, &mut buffer))?;
        Ok(buffer.filled().len())
    }
}

impl Write for PolledStream<'_, '_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        now_or_block(Pin::new(&mut *self.io).poll_write(self.cx, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        now_or_block(Pin::new(&mut *self.io).poll_flush(self.cx))
    }
}
