//! Opening streams to a server, plain or with TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::address::ServerAddress;
use crate::error::ClientError;
use crate::trust::connector;

/// A stream to the server.
pub(crate) enum ServerStream {
    /// Without encryption.
    Plain(TcpStream),
    /// With TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Calls a method of the stream, whichever it is.
macro_rules! either {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream.get_mut() {
            ServerStream::Plain($inner) => {
                let $inner = Pin::new($inner);
                $call
            }
            ServerStream::Tls($inner) => {
                let $inner = Pin::new($inner.as_mut());
                $call
            }
        }
    };
}

impl AsyncRead for ServerStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_read(cx, buffer))
    }
}

impl AsyncWrite for ServerStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, stream => stream.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_shutdown(cx))
    }
}

/// Opens streams to one server.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) address: ServerAddress,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    timeout: Duration,
}

impl Dialer {
    /// A dialer that accepts servers whose certificate comes from one of `authorities` (PEM), or, without
    /// them, servers that this machine trusts.
    pub(crate) fn new(
        address: ServerAddress,
        authorities: Option<&[u8]>,
        timeout: Duration,
    ) -> Result<Self, ClientError> {
        let tls = match address.is_secure() {
            false => None,
            true => {
                let name = ServerName::try_from(address.host().to_owned());
                let name = name.map_err(|_| address.unreachable("the host is not a name for TLS"))?;
                Some((connector(authorities)?, name))
            }
        };
        Ok(Self { address, tls, timeout })
    }

    /// Opens a stream, or says why not.
    pub(crate) async fn dial(&self) -> Result<ServerStream, ClientError> {
        match tokio::time::timeout(self.timeout, self.open()).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(self.address.unreachable(&error).because(error)),
            Err(_) => {
                Err(self.address.unreachable(format!("no answer within {} ms", self.timeout.as_millis())))
            }
        }
    }

    async fn open(&self) -> io::Result<ServerStream> {
        let stream = TcpStream::connect((self.address.host(), self.address.port())).await?;
        stream.set_nodelay(true)?;
        Ok(match &self.tls {
            None => ServerStream::Plain(stream),
            Some((connector, name)) => {
                ServerStream::Tls(Box::new(connector.connect(name.clone(), stream).await?))
            }
        })
    }
}
