//! The error of every refused or failed call.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::advice;

/// Codes of failures that may pass by themselves: the same call can work later.
const RETRYABLE: &[&str] = &[
    "auth_unavailable",
    "busy",
    "closed",
    "disconnected",
    "fenced",
    "outbox_full",
    "rate_limited",
    "storage_full",
    "timeout",
    "too_many_connections",
    "topic_deleted",
    "unknown_outcome",
    "unreachable",
];

/// Codes of failures after which the call may have had its effect all the same.
const UNKNOWN_OUTCOME: &[&str] =
    &["disconnected", "internal", "storage_failed", "timeout", "unknown_outcome"];

/// The error of every call of this library: a refusal of the server, with the server's code, or a failure that
/// the client found itself. The message says what to do.
#[derive(Clone)]
pub struct ClientError {
    inner: Arc<ErrorParts>,
}

#[derive(Clone)]
struct ErrorParts {
    code: Cow<'static, str>,
    message: String,
    retry_after: Option<Duration>,
    details: Map<String, Value>,
    has_side_effects: bool,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl ClientError {
    pub(crate) fn new(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let code = code.into();
        let has_side_effects = UNKNOWN_OUTCOME.contains(&&*code);
        let inner = ErrorParts {
            code,
            message: message.into(),
            retry_after: None,
            details: Map::new(),
            has_side_effects,
            source: None,
        };
        Self { inner: Arc::new(inner) }
    }

    /// The error of a refusal: an `ERR` frame or the body of an HTTP answer.
    pub(crate) fn refusal(code: String, message: String, details: Map<String, Value>) -> Self {
        Self::new(code, message).change(|parts| {
            let ms = details.get("retry_after_ms").and_then(Value::as_u64);
            parts.retry_after = ms.map(Duration::from_millis);
            parts.details = details;
            parts.details.remove("retry_after_ms");
        })
    }

    pub(crate) fn because(self, source: impl Error + Send + Sync + 'static) -> Self {
        self.change(|parts| parts.source = Some(Arc::new(source)))
    }

    pub(crate) fn with_side_effects(self, has_side_effects: bool) -> Self {
        self.change(|parts| parts.has_side_effects = has_side_effects)
    }

    pub(crate) fn with_retry_after(self, wait: Duration) -> Self {
        self.change(|parts| parts.retry_after = Some(wait))
    }

    pub(crate) fn with_detail(self, name: &str, value: impl Into<Value>) -> Self {
        self.change(|parts| {
            parts.details.insert(name.to_owned(), value.into());
        })
    }

    fn change(mut self, change: impl FnOnce(&mut ErrorParts)) -> Self {
        change(Arc::make_mut(&mut self.inner));
        self
    }

    /// The stable word for programs. `docs/protocol.md` has the server's words, `docs/clients.md` the client's.
    pub fn code(&self) -> &str {
        &self.inner.code
    }

    /// The sentence for people: what is wrong and what to do.
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// How long to wait before the next try, if the server said so.
    pub fn retry_after(&self) -> Option<Duration> {
        self.inner.retry_after
    }

    /// Further fields of the answer, such as `violations` of a schema.
    pub fn details(&self) -> &Map<String, Value> {
        &self.inner.details
    }

    /// Whether the same call may work later.
    pub fn is_retryable(&self) -> bool {
        RETRYABLE.contains(&self.code())
    }

    /// Whether the call surely changed nothing. If not, try again only with the same ids.
    pub fn has_no_side_effects(&self) -> bool {
        !self.inner.has_side_effects
    }

    /// What to do about this error, in a sentence.
    pub fn advice(&self) -> &'static str {
        advice::advice_for(self.code())
    }

    pub(crate) fn is(&self, code: &str) -> bool {
        self.code() == code
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.message)
    }
}

impl fmt::Debug for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ErrorParts { code, message, retry_after, details, has_side_effects, .. } = &*self.inner;
        let mut shown = f.debug_struct("ClientError");
        shown.field("code", code).field("message", message).field("has_side_effects", has_side_effects);
        if let Some(after) = retry_after {
            shown.field("retry_after", after);
        }
        if !details.is_empty() {
            shown.field("details", details);
        }
        shown.finish()
    }
}

impl Error for ClientError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.inner.source.as_deref().map(|source| source as _)
    }
}

/// The error of a lease that is over.
pub(crate) fn lease_lost() -> ClientError {
    let message = "the lease of the event is over, so the event is delivered again; finish sooner, or raise `ack_timeout`";
    ClientError::new("lease_lost", message)
}

/// The error of a call on a closed client.
pub(crate) fn client_closed() -> ClientError {
    ClientError::new("client_closed", "the client is closed; create a new one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_answer_what_programs_ask() {
        let check = |code: &str, retryable: bool, no_side_effects: bool| {
            let error = ClientError::new(code.to_owned(), "m");
            assert_eq!(
                (error.is_retryable(), error.has_no_side_effects()),
                (retryable, no_side_effects),
                "{code}"
            );
        };
        check("rate_limited", true, true);
        check("unknown_outcome", true, false);
        check("disconnected", true, false);
        check("internal", false, false);
        check("bad_name", false, true);
        check("lease_lost", false, true);
        let sent = ClientError::new("client_closed", "m").with_side_effects(true);
        assert!(!sent.has_no_side_effects());
    }

    #[test]
    fn refusals_keep_their_wait_and_their_fields() {
        let details = serde_json::from_str(r#"{"retry_after_ms":20,"limit":5}"#).unwrap();
        let error = ClientError::refusal("rate_limited".to_owned(), "too fast".to_owned(), details);
        assert_eq!(error.retry_after(), Some(Duration::from_millis(20)));
        assert_eq!(serde_json::to_string(error.details()).unwrap(), r#"{"limit":5}"#);
        assert_eq!(error.to_string(), "too fast");
    }
}
