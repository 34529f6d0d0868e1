//! State: documents of collections, now and at an earlier time, and the state of a key.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use hyper::StatusCode;
use hyper::header::ETAG;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::pages::{Listing, pages};
use super::{HttpCall, HttpClient};
use crate::error::ClientError;

/// The state of a key at a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StateOfKey<T> {
    /// The key.
    pub key: String,
    /// Its state.
    pub state: T,
    /// The time of the last event in it, in milliseconds since 1970.
    pub ts: i64,
    /// The offset of the last event in it.
    pub offset: u64,
}

/// A document of a collection at an earlier time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DocumentThen<T> {
    /// Its key.
    pub key: String,
    /// The document.
    pub document: T,
    /// When it became so, in milliseconds since 1970.
    pub ts: i64,
}

/// A document and the ETag of its bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct TaggedDocument<T> {
    /// The document.
    pub document: T,
    /// Its ETag.
    pub etag: String,
}

/// Reads state. Times are texts: milliseconds since 1970, `2027-01-31T12:00:00Z`, or `5m ago`.
#[derive(Clone)]
pub struct StateReader {
    http: Arc<HttpClient>,
    collection: Option<String>,
}

impl StateReader {
    pub(crate) fn new(http: Arc<HttpClient>) -> Self {
        Self { http, collection: None }
    }

    /// Reads documents of this collection instead of the default one.
    #[must_use]
    pub fn collection(mut self, name: impl Into<String>) -> Self {
        self.collection = Some(name.into());
        self
    }

    /// The state of a key of a topic, now or at a time; `None` if it had none.
    pub async fn of_key<T: DeserializeOwned>(
        &self,
        topic: &str,
        key: &str,
        at: Option<&str>,
    ) -> Result<Option<StateOfKey<T>>, ClientError> {
        found(self.http.json(HttpCall::get(&["state", topic, key]).maybe("at", at)).await)
    }

    /// A document of the collection; `None` if there is none.
    pub async fn document<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, ClientError> {
        found(self.http.json(self.call(&["snap", key])).await)
    }

    /// A document, unless it still has this ETag: then `None`.
    pub async fn document_if_changed<T: DeserializeOwned>(
        &self,
        key: &str,
        etag: Option<&str>,
    ) -> Result<Option<TaggedDocument<T>>, ClientError> {
        let mut call = self.call(&["snap", key]);
        call.allowed = Some(StatusCode::NOT_MODIFIED);
        if let Some(etag) = etag {
            call = call.header("if-none-match", etag);
        }
        let answer = self.http.send(call).await?;
        let (status, tag) = (answer.status, answer.headers.get(ETAG).cloned());
        let body = self.http.whole(answer).await?;
        if status == StatusCode::NOT_MODIFIED {
            return Ok(None);
        }
        let document = serde_json::from_slice(&body).map_err(|cause| {
            ClientError::new("bad_payload", format!("the document does not fit the type: {cause}"))
                .because(cause)
        })?;
        let etag = tag.and_then(|tag| tag.to_str().ok().map(str::to_owned)).unwrap_or_default();
        Ok(Some(TaggedDocument { document, etag }))
    }

    /// One page of the documents whose declared fields have these values, newest first.
    pub async fn list_page<T: DeserializeOwned>(
        &self,
        fields: &[(String, String)],
        offset: u64,
        limit: usize,
    ) -> Result<Vec<T>, ClientError> {
        #[derive(Deserialize)]
        struct Page<T> {
            items: Vec<T>,
        }
        let call = self.call(&["list"]).query("offset", offset).query("limit", limit);
        let call = fields.iter().fold(call, |call, (name, value)| call.query(name, value));
        let Page { items } = self.http.json(call).await?;
        Ok(items)
    }

    /// The documents whose declared fields have these values, newest first. `limit` is the size of a page.
    pub fn list<T: DeserializeOwned + Send + 'static>(
        &self,
        fields: Vec<(String, String)>,
        limit: usize,
    ) -> Listing<T> {
        let state = (self.clone(), fields, 0, VecDeque::new(), false);
        stream::try_unfold(state, move |(reader, fields, mut offset, mut items, mut is_over)| async move {
            loop {
                if let Some(item) = items.pop_front() {
                    return Ok(Some((item, (reader, fields, offset, items, is_over))));
                }
                if is_over {
                    return Ok(None);
                }
                let page = reader.list_page(&fields, offset, limit).await?;
                offset += page.len() as u64;
                // A page of large documents ends early, so only an empty page is the last.
                is_over = page.is_empty();
                items = VecDeque::from(page);
            }
        })
        .boxed()
    }

    /// The documents of a collection at a time. The collection needs `history = true`.
    pub fn collection_at<T: DeserializeOwned + Send + 'static>(
        &self,
        collection: &str,
        at: &str,
    ) -> Listing<DocumentThen<T>> {
        let (collection, at) = (collection.to_owned(), at.to_owned());
        pages(&self.http, "documents", "next", move || {
            HttpCall::get(&["collections", &collection, "at"]).query("at", &at)
        })
    }

    /// The differences of a collection between two times; `to` is now if left out.
    pub fn collection_diff(&self, collection: &str, from: &str, to: Option<&str>) -> Listing<Value> {
        let (collection, from, to) = (collection.to_owned(), from.to_owned(), to.map(str::to_owned));
        pages(&self.http, "differences", "next", move || {
            let call = HttpCall::get(&["collections", &collection, "diff"]);
            call.query("from", &from).maybe("to", to.as_ref())
        })
    }

    /// The collections, with their fields, indexes and number of documents.
    pub async fn collections(&self) -> Result<Vec<Value>, ClientError> {
        #[derive(Deserialize)]
        struct Collections {
            collections: Vec<Value>,
        }
        let Collections { collections } = self.http.json(HttpCall::get(&["collections"])).await?;
        Ok(collections)
    }

    fn call(&self, segments: &[&str]) -> HttpCall {
        match &self.collection {
            None => HttpCall::get(segments),
            Some(name) => HttpCall::get(&[&["collections", name.as_str()], segments].concat()),
        }
    }
}

impl std::fmt::Debug for StateReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateReader").field("collection", &self.collection).finish_non_exhaustive()
    }
}

/// `None` for what does not exist.
fn found<T>(answer: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is("not_found") => Ok(None),
        Err(error) => Err(error),
    }
}
