//! The messages of a WebSocket.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tungstenite::error::{CapacityError, Error};
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, Role, WebSocketConfig, WebSocketContext};
use tungstenite::{Message, Utf8Bytes};

use super::message_meter::MessageMeter;
use crate::auth::Identity;
use crate::usage::receiving::{ReceivedBytes, UsedUp};

/// Bytes read at once: few, because every idle connection has a buffer of this size.
const READ_BYTES: usize = 8 << 10;
/// Bytes that are buffered before they are written without a flush.
const WRITE_BYTES: usize = 64 << 10;

/// After a message longer than this, the buffer that held it is given back.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// A WebSocket, polled.
pub(super) struct Socket {
    io: TokioIo<Upgraded>,
    context: WebSocketContext,
    message_bytes_max: usize,
    /// Bytes queued since everything was last written.
    unwritten: usize,
    meter: MessageMeter,
    /// The bytes of the unfinished message, and of frames that are not answered.
    received: ReceivedBytes,
    unanswered: usize,
    /// Whether a long message was read since the buffers were made.
    is_large: bool,
    /// Whether nothing is left to read of what came.
    is_drained: bool,
    is_closing: bool,
}

/// A message of a client.
#[derive(Debug)]
pub(super) enum Incoming {
    /// A frame of the protocol.
    Text(Utf8Bytes),
    /// A ping or pong, which shows that the client is alive.
    Alive,
    /// A message that is not text.
    Binary,
}

/// Why the connection ends.
#[derive(Debug)]
pub(super) enum End {
    /// The client is gone.
    Gone,
    /// The client broke the protocol: the code and reason to close with.
    Broken(CloseCode, &'static str),
}

impl Socket {
    pub(super) fn new(upgraded: Upgraded, message_bytes_max: usize, received: ReceivedBytes) -> Self {
        Self {
            io: TokioIo::new(upgraded),
            context: context(message_bytes_max),
            message_bytes_max,
            unwritten: 0,
            meter: MessageMeter::default(),
            received,
            unanswered: 0,
            is_large: false,
            is_drained: false,
            is_closing: false,
        }
    }

    /// What is received counts for this client from now on.
    pub(super) fn belong_to(&mut self, identity: &Identity) {
        self.received.belong_to(identity);
    }

    /// Frames of so many bytes are not answered yet.
    pub(super) fn set_unanswered(&mut self, bytes: usize) {
        self.unanswered = bytes;
        self.received.set(counted(&self.meter, bytes));
    }

    /// Whether the budgets of received bytes have room for more.
    pub(super) fn has_room(&self) -> bool {
        self.received.has_room()
    }

    /// The number of the message that is not whole yet, if there is one.
    pub(super) fn unfinished(&self) -> Option<u64> {
        self.meter.unfinished()
    }

    /// Sets the longest message from now on.
    pub(super) fn allow(&mut self, message_bytes_max: usize) {
        self.message_bytes_max = message_bytes_max;
        self.context.set_config(|config| {
            config.max_message_size = Some(message_bytes_max);
            config.max_frame_size = Some(message_bytes_max);
        });
    }

    /// Reads the next message. Pings are answered.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Incoming, End>> {
        let read = self.read(cx);
        self.is_drained = matches!(&read, Err(error) if would_block(error));
        if read.is_ok() {
            self.received.set(counted(&self.meter, self.unanswered));
        }
        match read {
            Ok(Message::Text(text)) => Poll::Ready(Ok(Incoming::Text(text))),
            Ok(Message::Ping(ping)) => {
                // The pong is queued. It is counted, so that a client that never reads cannot fill the memory
                // with pongs.
                self.unwritten += ping.len() + 2;
                Poll::Ready(Ok(Incoming::Alive))
            }
            Ok(Message::Pong(_)) => Poll::Ready(Ok(Incoming::Alive)),
            Ok(Message::Close(_)) => {
                // The client's goodbye is answered if that works at once; the connection ends either way.
                let _ = self.context.flush(&mut Blocking { io: &mut self.io, cx });
                Poll::Ready(Err(End::Gone))
            }
            Ok(Message::Binary(_) | Message::Frame(_)) => Poll::Ready(Ok(Incoming::Binary)),
            Err(error) if would_block(&error) => {
                self.give_buffers_back();
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(end(&error))),
        }
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Result<Message, Error> {
        let Self { io, meter, received, unanswered, is_large, .. } = self;
        let io = Blocking { io, cx };
        self.context.read(&mut MeteredText { io, meter, received, unanswered: *unanswered, is_large })
    }

    /// Gives the buffers of a long message back. They hold nothing then: all that came was whole messages,
    /// which were read, and all replies are written.
    fn give_buffers_back(&mut self) {
        let is_empty = self.is_drained && self.meter.is_at_rest() && self.unwritten == 0;
        if self.is_large && is_empty && !self.is_closing {
            self.context = context(self.message_bytes_max);
            self.is_large = false;
        }
    }

    /// Queues a text frame. A frame that is not UTF-8, which would be a bug, becomes an error frame.
    pub(super) fn write(&mut self, cx: &mut Context<'_>, text: Bytes) -> Result<(), End> {
        self.unwritten += text.len();
        let text = Utf8Bytes::try_from(text).unwrap_or_else(|_| Utf8Bytes::from_static(NOT_TEXT));
        self.queue(cx, Message::Text(text))
    }

    /// Queues a ping.
    pub(super) fn ping(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        self.unwritten += 1;
        self.queue(cx, Message::Ping(Bytes::new()))
    }

    /// Queues a goodbye.
    pub(super) fn close(&mut self, cx: &mut Context<'_>, code: CloseCode, reason: &str) -> Result<(), End> {
        self.unwritten += 1;
        self.is_closing = true;
        let frame = CloseFrame { code, reason: reason.into() };
        self.queue(cx, Message::Close(Some(frame)))
    }

    fn queue(&mut self, cx: &mut Context<'_>, message: Message) -> Result<(), End> {
        let mut io = Blocking { io: &mut self.io, cx };
        match self.context.write(&mut io, message) {
            Err(error) if !would_block(&error) => Err(end(&error)),
            // A message that would block is queued, though not written.
            _ => Ok(()),
        }
    }

    /// Bytes queued and perhaps not written.
    pub(super) fn unwritten(&self) -> usize {
        self.unwritten
    }

    /// Writes the queued messages.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        if self.unwritten == 0 {
            return Poll::Ready(Ok(()));
        }
        let mut io = Blocking { io: &mut self.io, cx };
        match self.context.flush(&mut io) {
            Ok(()) => {
                self.unwritten = 0;
                self.give_buffers_back();
                Poll::Ready(Ok(()))
            }
            Err(error) if would_block(&error) => Poll::Pending,
            Err(error) => Poll::Ready(Err(end(&error))),
        }
    }
}

impl Socket {
    /// Reads and drops what the client still sends, for a while. Closing at once would reset the connection,
    /// and the client might not see the reason.
    pub(super) async fn linger(&mut self) {
        let drain = async {
            self.io.shutdown().await?;
            let (mut buffer, mut drained) = ([0; 1024], 0);
            while drained < LINGER_BYTES_MAX {
                match self.io.read(&mut buffer).await? {
                    0 => break,
                    count => drained += count,
                }
            }
            io::Result::Ok(())
        };
        // The connection ends either way.
        let _ = tokio::time::timeout(LINGER, drain).await;
    }
}

/// Bytes that are read and dropped after the goodbye.
const LINGER_BYTES_MAX: usize = 16 << 20;
const LINGER: Duration = Duration::from_secs(1);

/// Said when a budget of received bytes is used up.
const BUSY: &str = "too much is being received; try again soon";
const NOT_TEXT: &str = r#"{"op":"ERR","code":"internal","msg":"a frame was not text; report this"}"#;

fn context(message_bytes_max: usize) -> WebSocketContext {
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .write_buffer_size(WRITE_BYTES)
        .max_message_size(Some(message_bytes_max))
        .max_frame_size(Some(message_bytes_max));
    WebSocketContext::new(Role::Server, Some(config))
}

/// The bytes that count. A message that fits into the buffer of an idle connection does not.
fn counted(meter: &MessageMeter, unanswered: usize) -> usize {
    let unfinished = Some(meter.unfinished_bytes()).filter(|bytes| *bytes > READ_BYTES);
    unfinished.unwrap_or(0) + unanswered
}

fn would_block(error: &Error) -> bool {
    matches!(error, Error::Io(error) if error.kind() == io::ErrorKind::WouldBlock)
}

fn end(error: &Error) -> End {
    match error {
        Error::Capacity(CapacityError::MessageTooLong { .. }) => {
            End::Broken(CloseCode::Size, "the message is too long")
        }
        Error::Io(error) if error.kind() == io::ErrorKind::QuotaExceeded => {
            let used_up = error.get_ref().and_then(|error| error.downcast_ref::<UsedUp>());
            End::Broken(CloseCode::Again, used_up.map_or(BUSY, |used_up| used_up.reason()))
        }
        Error::Utf8(_) => End::Broken(CloseCode::Invalid, "the message is not UTF-8"),
        Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake) => End::Gone,
        Error::Protocol(_) => End::Broken(CloseCode::Protocol, "the WebSocket protocol was broken"),
        _ => End::Gone,
    }
}

/// Lets code for blocking I/O use a polled connection: a call that would have to wait returns `WouldBlock`.
struct Blocking<'a, 'b, 'c> {
    io: &'a mut TokioIo<Upgraded>,
    cx: &'b mut Context<'c>,
}

fn now_or_block<T>(poll: Poll<io::Result<T>>) -> io::Result<T> {
    match poll {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl Read for Blocking<'_, '_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(buffer);
        now_or_block(Pin::new(&mut *self.io).poll_read(self.cx, &mut buffer))?;
        Ok(buffer.filled().len())
    }
}

/// Counts the bytes that are read, and reads no more of a message than there is room for.
struct MeteredText<'a, 'b, 'c> {
    io: Blocking<'a, 'b, 'c>,
    meter: &'a mut MessageMeter,
    received: &'a mut ReceivedBytes,
    unanswered: usize,
    is_large: &'a mut bool,
}

impl Read for MeteredText<'_, '_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.unanswered > 0 && !self.received.has_room() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = self.io.read(buffer)?;
        self.meter.pass(buffer.get(..count).unwrap_or_default());
        *self.is_large |= self.meter.unfinished_bytes() > KEPT_BYTES_MAX;
        // A message that is whole counts until it is handed over, so the count does not shrink here.
        let counted = counted(self.meter, self.unanswered).max(self.received.bytes());
        self.received
            .fit(counted)
            .map_err(|used_up| io::Error::new(io::ErrorKind::QuotaExceeded, used_up))?;
        Ok(count)
    }
}

impl Write for MeteredText<'_, '_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.io.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.io.flush()
    }
}

impl Write for Blocking<'_, '_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        now_or_block(Pin::new(&mut *self.io).poll_write(self.cx, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        now_or_block(Pin::new(&mut *self.io).poll_flush(self.cx))
    }
}
