//! Fetches a JWK set, with bounds on size and time.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, HOST, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::{JwksUrl, JwtError};
use crate::trust;

/// Time for a whole fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of an answer, at most.
const BODY_BYTES_MAX: usize = 256 << 10;

/// Why a fetch failed.
#[derive(Debug, Error)]
pub(super) enum FetchError {
    #[error("no answer within 5 s")]
    Timeout,
    #[error("cannot connect: {0}")]
    Connect(std::io::Error),
    #[error("the connection failed: {0}")]
    Exchange(hyper::Error),
    #[error("the answer is {0}; redirects are not followed")]
    Status(StatusCode),
    #[error("the answer is cut, or longer than 256 KiB")]
    Body,
    #[error("the request cannot be sent")]
    Request,
}

/// Fetches the JWK set of one URL.
pub(super) struct Fetcher {
    host: String,
    port: u16,
    /// Path and query of the URL.
    path: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Fetcher {
    pub(super) fn new(url: JwksUrl) -> Result<Self, JwtError> {
        let uri: Uri =
            url.url.parse().map_err(|_| JwtError::Url("is not a URL; write `https://HOST/PATH`"))?;
        let authority = uri.authority().ok_or(JwtError::Url("has no host; write `https://HOST/PATH`"))?;
        if authority.as_str().contains('@') {
            return Err(JwtError::Url("has a user in it; leave that out"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let (default_port, tls) = match uri.scheme_str() {
            Some("https") => {
                let name = ServerName::try_from(host.clone());
                let name = name.map_err(|_| JwtError::Url("has a host that cannot have a certificate"))?;
                let connector = trust::connector(url.authorities.as_deref());
                (443, Some((connector.map_err(|error| JwtError::Url(error.said()))?, name)))
            }
            Some("http") if url.plain_http || is_loopback(&host) => (80, None),
            Some("http") => {
                return Err(JwtError::Url(
                    "is plain http to another machine, so others on the way could forge tokens; use https, or set \
                     `jwks_plain_http = true`",
                ));
            }
            _ => return Err(JwtError::Url("is neither https nor http")),
        };
        let port = uri.port_u16().unwrap_or(default_port);
        Ok(Self { host, port, path, tls })
    }

    /// The host, for logs; the path may contain secrets.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) async fn fetch(&self) -> Result<Bytes, FetchError> {
        tokio::time::timeout(FETCH_TIMEOUT, self.get()).await.map_err(|_| FetchError::Timeout)?
    }

    async fn get(&self) -> Result<Bytes, FetchError> {
        let stream =
            TcpStream::connect((self.host.as_str(), self.port)).await.map_err(FetchError::Connect)?;
        match &self.tls {
            None => self.exchange(stream).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await.map_err(FetchError::Connect)?;
                self.exchange(stream).await
            }
        }
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Bytes, FetchError> {
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(FetchError::Exchange)?;
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let request = Request::get(&self.path)
            .header(HOST, format!("{host}:{}", self.port))
            .header(ACCEPT, "application/jwk-set+json, application/json")
            .header(USER_AGENT, concat!("promethean/", env!("CARGO_PKG_VERSION")))
            .body(Empty::<Bytes>::new())
            .map_err(|_| FetchError::Request)?;
        let answer = async {
            let response = sender.send_request(request).await.map_err(FetchError::Exchange)?;
            if response.status() != StatusCode::OK {
                return Err(FetchError::Status(response.status()));
            }
            let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await;
            body.map(|body| body.to_bytes()).map_err(|_| FetchError::Body)
        };
        // The connection must be polled for the answer to come. If the connection ends first, the answer
        // fails by itself.
        let drive = async {
            let _ = connection.await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            answer = answer => answer,
            () = drive => Err(FetchError::Body),
        }
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl std::fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetcher").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}
