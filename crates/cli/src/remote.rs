//! Requests to a running server for commands that show its answers as they are.

use anyhow::{Context, Result};
use bytes::Bytes;
use promethean_client::{Client, ClientError};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::CommandFailure;
use crate::target::TargetArgs;

/// A server, and how to connect to it.
pub(crate) struct Remote {
    url: String,
    client: Client,
}

/// The answer of a server, which may be a refusal.
#[derive(Debug)]
pub(crate) struct RemoteAnswer {
    pub(crate) body: Value,
    refusal: Option<ClientError>,
}

impl RemoteAnswer {
    /// The stable code of a refusal.
    pub(crate) fn code(&self) -> Option<&str> {
        self.refusal.as_ref().map(ClientError::code)
    }

    /// The body, or the refusal as an error.
    pub(crate) fn ok(self) -> Result<Value> {
        match self.refusal {
            None => Ok(self.body),
            Some(refusal) => Err(refusal.into()),
        }
    }
}

impl Remote {
    pub(crate) fn new(args: &TargetArgs) -> Result<Self> {
        let target = args.resolve()?;
        Ok(Self { client: target.client()?, url: target.url })
    }

    /// The address of the server.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Sends a request and waits for the whole answer. `path` begins with `/` and is escaped already.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: impl Into<Bytes>) -> Result<RemoteAnswer> {
        match self.client.call(method, path, body).await {
            Ok(answer) => Ok(RemoteAnswer { body: parse(&answer)?, refusal: None }),
            Err(error) if error.details().contains_key("status") => {
                let mut body = error.details().clone();
                body.insert("error".to_owned(), error.code().into());
                body.insert("message".to_owned(), error.message().into());
                Ok(RemoteAnswer { body: body.into(), refusal: Some(error) })
            }
            Err(error) => Err(self.failure(error)),
        }
    }

    /// The answer to a GET; a refusal is an error.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        parse(&self.client.call("GET", path, Bytes::new()).await.map_err(|error| self.failure(error))?)
    }

    /// All entries of the list `field` that comes in pages.
    pub(crate) async fn pages<T: DeserializeOwned>(&self, path: &str, field: &str) -> Result<Vec<T>> {
        let mut all = Vec::new();
        let mut after = String::new();
        loop {
            let mut page: Value = self.get(&format!("{path}{after}")).await?;
            let list = page.get_mut(field).map(Value::take).unwrap_or_default();
            all.extend(serde_json::from_value::<Vec<T>>(list).context(OTHER_FORM)?);
            match page.get("next").and_then(Value::as_str) {
                Some(next) => after = format!("?after={}", escape(next)),
                None => return Ok(all),
            }
        }
    }

    fn failure(&self, error: ClientError) -> anyhow::Error {
        match error.code() {
            "unreachable" => CommandFailure::unreachable(&self.url, &error).into(),
            _ => error.into(),
        }
    }
}

const OTHER_FORM: &str = "the answer of the server has another form; is it another version of Promethean?";

fn parse<T: DeserializeOwned>(answer: &[u8]) -> Result<T> {
    serde_json::from_slice(answer).context(OTHER_FORM)
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
