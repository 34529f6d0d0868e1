//! Listings that come in pages, as streams.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::stream::{self, BoxStream, StreamExt};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{HttpCall, HttpClient};
use crate::error::ClientError;

/// The entries of a listing; the next page is asked for when the last one is used up.
pub type Listing<T> = BoxStream<'static, Result<T, ClientError>>;

struct PageState<T> {
    http: Arc<HttpClient>,
    entries: VecDeque<T>,
    /// The value of `after` for the next page; `None` after the last.
    next: Option<Option<String>>,
}

/// A listing whose pages are named by `after`. `list` is the field of the answer that has the page.
pub(crate) fn pages<T: DeserializeOwned + Send + 'static>(
    http: &Arc<HttpClient>,
    list: &'static str,
    next: &'static str,
    call: impl Fn() -> HttpCall + Send + Sync + 'static,
) -> Listing<T> {
    let state = PageState { http: Arc::clone(http), entries: VecDeque::new(), next: Some(None) };
    let call = Arc::new(call);
    stream::try_unfold(state, move |mut state: PageState<T>| {
        let call = Arc::clone(&call);
        async move {
            loop {
                if let Some(entry) = state.entries.pop_front() {
                    return Ok(Some((entry, state)));
                }
                let Some(after) = state.next.take() else { return Ok(None) };
                let mut page: Map<String, Value> = state.http.json(call().maybe("after", after)).await?;
                state.next = page.get(next).and_then(text_of).map(Some);
                let entries = page.remove(list).unwrap_or_default();
                state.entries = serde_json::from_value(entries).map_err(|cause| {
                    let message =
                        format!("`{list}` cannot be read: {cause}; use a client of the server's version");
                    ClientError::new("bad_json", message).because(cause)
                })?;
            }
        }
    })
    .boxed()
}

/// The value of a parameter: texts as they are, numbers as texts.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
