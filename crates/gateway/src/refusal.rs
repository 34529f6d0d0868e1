//! Every answer that says no.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use promethean_bus::BusError;
use promethean_bus::pattern::Subject;
use serde_json::{Map, Value};

use crate::auth::AuthError;

/// A refusal: a stable word for programs, and a message for people that says what to change.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) retry_after_ms: Option<u64>,
    /// More fields of the answer.
    pub(crate) more: Map<String, Value>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), retry_after_ms: None, more: Map::new() }
    }

    /// What was sent makes no sense.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    /// The client may not. The same for what exists and what does not.
    pub(crate) fn forbidden(scope: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", format!("the token lacks `{scope}`; get one with it"))
    }

    /// As [`Refusal::forbidden`], with the scope that a topic or pattern needs.
    pub(crate) fn forbidden_on(verb: &str, subject: &Subject) -> Self {
        Self::forbidden(&format!("{verb}:{subject}"))
    }
}

impl From<BusError> for Refusal {
    fn from(error: BusError) -> Self {
        let mut refusal = Self::new(status(&error), error.code(), error.to_string());
        refusal.retry_after_ms = error.retry_after_ms();
        refusal
    }
}

impl From<AuthError> for Refusal {
    fn from(error: AuthError) -> Self {
        let status = match error {
            AuthError::Missing | AuthError::BadToken(_) => StatusCode::UNAUTHORIZED,
            AuthError::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.code(), error.to_string())
    }
}

/// The HTTP status of a refusal of the bus.
fn status(error: &BusError) -> StatusCode {
    match error {
        BusError::RateLimited { .. } => StatusCode::TOO_MANY_REQUESTS,
        BusError::Limit(_) | BusError::TooLarge { .. } | BusError::OverBurst { .. } => {
            StatusCode::PAYLOAD_TOO_LARGE
        }
        BusError::UnknownTopic { .. }
        | BusError::AutoCreateOff { .. }
        | BusError::UnknownGroup { .. }
        | BusError::UnknownMember { .. }
        | BusError::UnknownEvent { .. }
        | BusError::UnknownLetter { .. } => StatusCode::NOT_FOUND,
        BusError::IdConflict { .. }
        | BusError::Conflict { .. }
        | BusError::KeyConflict { .. }
        | BusError::GroupConflict { .. }
        | BusError::PartitionsInUse { .. }
        | BusError::GroupBusy { .. }
        | BusError::TopicDeleted { .. }
        | BusError::TooManyTopics { .. } => StatusCode::CONFLICT,
        BusError::StorageFull { .. } => StatusCode::INSUFFICIENT_STORAGE,
        BusError::Closed | BusError::Fenced { .. } | BusError::Poisoned { .. } => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        BusError::CorruptRange { .. }
        | BusError::StorageFailed { .. }
        | BusError::UnknownOutcome { .. }
        | BusError::Store { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::BAD_REQUEST,
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut body = self.more;
        body.insert("error".to_owned(), self.code.into());
        body.insert("message".to_owned(), self.message.into());
        if let Some(ms) = self.retry_after_ms {
            body.insert("retry_after_ms".to_owned(), ms.into());
        }
        let mut response = (self.status, axum::Json(Value::Object(body))).into_response();
        let headers = response.headers_mut();
        if let Some(ms) = self.retry_after_ms {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000)));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
