//! Backups of a server: a point of all its topics and state, read piece by piece.

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::ETAG;
use hyper::{Method, StatusCode};
use promethean_model::EventId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{HttpCall, HttpClient};
use crate::error::ClientError;

/// Files or topics that are asked for at once.
const PAGE: usize = 10_000;

/// A point that a server has taken.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BackupPoint {
    /// The name of the backup, while it is read.
    pub backup: String,
    /// When the point was taken, in milliseconds since 1970.
    pub taken: i64,
    /// Its position in the log.
    pub position: u64,
    /// The number of topics.
    pub topics: u64,
    /// The number of files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The length of all pieces of a file but the last.
    pub piece_bytes: u64,
}

/// A file of a point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupFile {
    /// Its path in a data directory.
    pub file: String,
    /// Its bytes.
    pub bytes: u64,
    /// Its length in a data directory: zeros follow the bytes.
    pub length: u64,
    /// The number of the topic whose events it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<u32>,
    /// The first offset in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// The offset after the last in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
}

/// A topic of a point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupTopic {
    /// Its name.
    pub topic: String,
    /// Its number, which is in the names of its files.
    pub number: u32,
    /// The first offset that is kept.
    pub earliest: u64,
    /// The offset after its last event.
    pub end: u64,
}

/// Bytes of a backup.
#[derive(Debug, Clone)]
pub struct BackupPiece {
    /// The bytes; `None` if they have the hash that the caller knows.
    pub bytes: Option<Bytes>,
    /// Their XXH3 hash of 128 bits, in hexadecimal digits.
    pub hash: String,
    /// The place where the next page of state begins.
    pub next: Option<String>,
}

/// Takes and reads backups. Needs a token with scope `admin`.
#[derive(Clone)]
pub struct BackupReader {
    http: Arc<HttpClient>,
}

impl BackupReader {
    pub(crate) fn new(http: Arc<HttpClient>) -> Self {
        Self { http }
    }

    /// Takes a point. If the server still has the one of this id, its answer is that point.
    pub async fn begin(&self, id: EventId) -> Result<BackupPoint, ClientError> {
        self.http.json(HttpCall::post(&["admin", "backups"]).query("backup", id)).await
    }

    /// The files of a point.
    pub async fn files(&self, backup: &str) -> Result<Vec<BackupFile>, ClientError> {
        self.all(backup, "files").await
    }

    /// The topics of a point.
    pub async fn topics(&self, backup: &str) -> Result<Vec<BackupTopic>, ClientError> {
        self.all(backup, "topics").await
    }

    /// A piece of a file. If its hash is `known`, its bytes are not sent.
    pub async fn piece(
        &self,
        backup: &str,
        file: &str,
        piece: u64,
        known: Option<&str>,
    ) -> Result<BackupPiece, ClientError> {
        let call = HttpCall::get(&["admin", "backups", backup, "piece"]);
        self.bytes(call.query("file", file).query("piece", piece), known).await
    }

    /// A page of the state, after the place that the page before named. If its hash is `known`, its bytes are not
    /// sent.
    pub async fn state(
        &self,
        backup: &str,
        after: Option<&str>,
        known: Option<&str>,
    ) -> Result<BackupPiece, ClientError> {
        let call = HttpCall::get(&["admin", "backups", backup, "state"]);
        self.bytes(call.maybe("after", after), known).await
    }

    /// Ends a backup.
    pub async fn end(&self, backup: &str) -> Result<(), ClientError> {
        self.http.json(HttpCall::new(Method::DELETE, &["admin", "backups", backup])).await.map(|_: Value| ())
    }

    async fn all<T: DeserializeOwned>(&self, backup: &str, name: &str) -> Result<Vec<T>, ClientError> {
        let mut all = Vec::new();
        let mut after = None;
        loop {
            let call = HttpCall::get(&["admin", "backups", backup, name]).query("limit", PAGE);
            let mut page: Value = self.http.json(call.maybe("after", after)).await?;
            let items = page.get_mut(name).map(Value::take).unwrap_or_default();
            let items: Vec<T> = serde_json::from_value(items).map_err(|cause| {
                let message = format!(
                    "the list of {name} cannot be read: {cause}; use a client of the server's version"
                );
                ClientError::new("bad_json", message).because(cause)
            })?;
            all.extend(items);
            match page.get("next").and_then(Value::as_u64) {
                Some(next) => after = Some(next),
                None => return Ok(all),
            }
        }
    }

    async fn bytes(&self, call: HttpCall, known: Option<&str>) -> Result<BackupPiece, ClientError> {
        let mut call = match known {
            Some(known) => call.header("if-none-match", format!("\"{known}\"")),
            None => call,
        };
        call.allowed = Some(StatusCode::NOT_MODIFIED);
        let answer = self.http.send(call).await?;
        let text =
            |name: &str| answer.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let hash = text(ETAG.as_str()).unwrap_or_default().trim_matches('"').to_owned();
        let (next, is_known) = (text("x-next"), answer.status == StatusCode::NOT_MODIFIED);
        let bytes = self.http.whole(answer).await?;
        Ok(BackupPiece { bytes: (!is_known).then_some(bytes), hash, next })
    }
}
