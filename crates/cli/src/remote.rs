//! HTTP requests to a running server.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use promethean_gateway::auth::Secret;
use promethean_gateway::trust;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// Time to reach a server; its answer may take longer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer that is accepted.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The flags that name a server and the token to send.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServerArgs {
    /// The address of the server
    #[arg(long, value_name = "URL", env = "PROMETHEAN_SERVER", default_value = "http://127.0.0.1:8090")]
    pub(crate) server: String,
    /// The token to send to the server; safer in the environment, where other users cannot see it
    #[arg(long, value_name = "TOKEN", env = "PROMETHEAN_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<Secret>,
    /// Trust the certificate authorities in this file instead of the machine's
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
}

/// A server, and how to connect to it.
pub(crate) struct Remote {
    uri: Uri,
    host: String,
    token: Option<Secret>,
    tls: Option<TlsConnector>,
}

/// The answer of a server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn is_ok(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The stable code of a refusal.
    pub(crate) fn code(&self) -> &str {
        self.body.get("error").and_then(Value::as_str).unwrap_or("unknown")
    }

    /// The body, or the refusal as an error.
    pub(crate) fn ok(self) -> Result<Value> {
        match self.is_ok() {
            true => Ok(self.body),
            false => Err(self.refusal()),
        }
    }

    /// The body; `None` after printing the refusal if the server does not have what was asked for.
    pub(crate) fn found(self) -> Result<Option<Value>> {
        if self.status == 404 && self.code() == "not_found" {
            eprintln!("promethean: {:#}", self.refusal());
            return Ok(None);
        }
        self.ok().map(Some)
    }

    fn refusal(&self) -> anyhow::Error {
        let message = self.body.get("message").and_then(Value::as_str).unwrap_or("no reason was given");
        anyhow!("the server refused ({}): {message}", self.code())
    }
}

impl Remote {
    pub(crate) fn new(args: &ServerArgs) -> Result<Self> {
        let bad = || {
            format!(
                "`{}` is not the address of a server; write http://HOST:PORT or https://HOST",
                args.server
            )
        };
        let uri: Uri = args.server.parse().with_context(bad)?;
        let authority = uri.authority().with_context(bad)?;
        ensure!(!authority.as_str().contains('@'), "the URL has a user in it; give --token instead");
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        ensure!(matches!(uri.path(), "" | "/") && uri.query().is_none(), bad());
        let local = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        let tls = match uri.scheme_str() {
            Some("http") if args.token.is_some() && !local => {
                bail!("the token would be sent over plain http to another machine; use https")
            }
            Some("http") => None,
            Some("https") => Some(connector(args)?),
            _ => bail!(bad()),
        };
        Ok(Self { uri, host, token: args.token.clone(), tls })
    }

    /// Sends a request and waits for the whole answer. `path` begins with `/` and is escaped already.
    pub(crate) async fn ask(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Result<Answer> {
        let port = self.uri.port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        let connecting = TcpStream::connect((self.host.as_str(), port));
        let stream = match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                bail!("cannot reach {}: {error}; is the server running? Name another with --server", self.uri)
            }
            Err(_) => bail!("cannot reach {} within 5 s; name another server with --server", self.uri),
        };
        let request = self.request(method, path, body.into())?;
        match &self.tls {
            None => exchange(stream, request).await,
            Some(connector) => {
                let name = ServerName::try_from(self.host.clone()).context("read the name of the host")?;
                let connecting = tokio::time::timeout(CONNECT_TIMEOUT, connector.connect(name, stream)).await;
                let stream = connecting.context("no TLS within 5 s")?;
                exchange(stream.with_context(|| format!("TLS with {} failed", self.uri))?, request).await
            }
        }
    }

    /// All entries of the list `field` that comes in pages.
    pub(crate) async fn pages<T: DeserializeOwned>(&self, path: &str, field: &str) -> Result<Vec<T>> {
        let mut all = Vec::new();
        let mut after = String::new();
        loop {
            let mut page = self.get(&format!("{path}{after}")).await?;
            let list = page.get_mut(field).map(Value::take).unwrap_or_default();
            all.extend(
                serde_json::from_value::<Vec<T>>(list)
                    .context("the answer of the server has another form")?,
            );
            match page.get("next").and_then(Value::as_str) {
                Some(next) => after = format!("?after={next}"),
                None => return Ok(all),
            }
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value> {
        self.ask(Method::GET, path, Bytes::new()).await?.ok()
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>> {
        let authority = self.uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, authority)
            .header(USER_AGENT, concat!("promethean/", env!("CARGO_PKG_VERSION")));
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(token) = &self.token {
            request = request.header(
                AUTHORIZATION,
                format!("Bearer {}", token.reveal_text().context("the token is not text")?),
            );
        }
        request.body(Full::new(body)).context("the request is not valid HTTP")
    }
}

/// Runs the work of a command that talks to a server.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("start a runtime")?.block_on(work)
}

/// Escapes text for a segment of a path or a value of a query.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b':' => {
                escaped.push(byte.into())
            }
            byte => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<Answer> {
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.context("talk to the server")?;
    let answer = async {
        let response = sender.send_request(request).await.context("the server did not answer")?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| anyhow!("the answer was cut short: {error}"))?.to_bytes();
        let body = match serde_json::from_slice(&body) {
            Ok(body) => body,
            Err(_) if !(200..300).contains(&status) => Value::Null,
            Err(_) => bail!("the answer is not JSON; check that --server names a Promethean server"),
        };
        Ok(Answer { status, body })
    };
    // The answer comes only while the connection is driven. If the connection ends first, `answer` fails.
    let drive = async {
        let _ = connection.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        answer = answer => answer,
        () = drive => bail!("the server closed the connection"),
    }
}

fn connector(args: &ServerArgs) -> Result<TlsConnector> {
    let Some(path) = &args.ca_file else { return Ok(trust::connector(None)?) };
    let text = std::fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    trust::connector(Some(&text)).with_context(|| format!("`{}`", path.display()))
}
