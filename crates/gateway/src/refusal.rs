//! Refusals: every error of the bus, the projections and authentication as an answer with code, status and
//! message. The matches over error kinds have no wildcard, so that a new kind does not compile until it has a
//! status.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use promethean_bus::{BackupError, BusError};
use promethean_delivery::{DeliveryError, Subject};
use promethean_model::{GroupName, Offset, TopicName};
use promethean_projections::{ProjectionError, ReadError};
use serde::Serialize;
use serde_json::{Map, Value};
use tracing::error;

use crate::auth::AuthError;

/// The message of an error whose reason is for the server's log only.
const STORAGE_FAILED: &str = "storage failed; the server's log says why";

/// A refusal: a stable code for programs, and a message that tells people what to change.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) retry_after_ms: Option<u64>,
    /// Further fields of the answer.
    pub(crate) more: Map<String, Value>,
    /// A header for the HTTP answer.
    header: Option<Box<(HeaderName, HeaderValue)>>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), retry_after_ms: None, more: Map::new(), header: None }
    }

    /// The request is wrong in itself.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    /// The server failed; its log says why.
    pub(crate) fn internal() -> Self {
        let message = "the server failed; its log says why, by this request id; try again";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    /// No operation and no file has this path.
    pub(crate) fn nothing_here() -> Self {
        let message = "there is nothing here; see /openapi.json for what there is";
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// Adds a field.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.more.insert(name.to_owned(), value.into());
        self
    }

    /// Adds the fields of an object.
    fn with_all(mut self, fields: &impl Serialize) -> Self {
        if let Ok(Value::Object(fields)) = serde_json::to_value(fields) {
            self.more.extend(fields);
        }
        self
    }

    /// Adds when to try again.
    #[must_use]
    pub(crate) fn retry_after(mut self, ms: u64) -> Self {
        self.retry_after_ms = Some(ms);
        self
    }

    /// Sets the header.
    #[must_use]
    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.header = Some(Box::new((name, value)));
        self
    }

    /// Adds the id of the request.
    #[must_use]
    pub(crate) fn of_request(self, id: &HeaderValue) -> Self {
        self.with("request_id", id.to_str().unwrap_or_default())
    }

    /// Adds the line of a batch that is wrong, counted from 1.
    #[must_use]
    pub(crate) fn on_line(mut self, line: usize) -> Self {
        self.message = format!("line {line}: {}", self.message);
        self.with("line", line)
    }

    /// The token lacks this scope. The answer is the same whether the thing exists or not.
    pub(crate) fn forbidden(scope: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", format!("the token lacks `{scope}`; get one with it"))
    }

    /// The token may not subscribe to a topic or pattern in this group.
    pub(crate) fn forbidden_in(subject: &Subject, group: &GroupName) -> Self {
        Self::forbidden(&format!("subscribe:{subject}@{group}"))
    }

    /// The topic is the audit topic, whatever the token allows.
    pub(crate) fn audit_topic(topic: &TopicName) -> Self {
        let message = format!(
            "`{topic}` holds the audit records of this server: only the server publishes to it, and only an admin changes it"
        );
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    /// The token lacks the scope of this verb on a topic or pattern.
    pub(crate) fn forbidden_on(verb: &str, subject: &Subject) -> Self {
        Self::forbidden(&format!("{verb}:{subject}"))
    }
}

impl From<BusError> for Refusal {
    fn from(error: BusError) -> Self {
        let mut refusal = Self::new(status(&error), error.code(), message(&error));
        refusal.retry_after_ms = error.retry_after_ms();
        let offset = |offset: Option<Offset>| offset.map_or(Value::Null, |offset| offset.get().into());
        match error {
            BusError::IdConflict { offset: at, .. } => refusal.with("offset", at.get()),
            BusError::Conflict { actual, .. } => refusal.with("actual", actual.get()),
            BusError::KeyConflict { actual, .. } => refusal.with("actual", offset(actual)),
            BusError::SchemaRejected(rejected) => refusal.with_all(&rejected),
            BusError::SchemaIncompatible(found) => refusal.with_all(&found),
            BusError::BadSchema(bad) => refusal.with("path", bad.at),
            _ => refusal,
        }
    }
}

impl From<ProjectionError> for Refusal {
    fn from(error: ProjectionError) -> Self {
        let status = match &error {
            ProjectionError::Bus(error) => return error.clone().into(),
            ProjectionError::Commit(error) => return BusError::from(error.clone()).into(),
            ProjectionError::UnknownProjector { .. }
            | ProjectionError::UnknownDocument { .. }
            | ProjectionError::UnknownAt { .. }
            | ProjectionError::NoDefault
            | ProjectionError::NoHistory { .. } => StatusCode::NOT_FOUND,
            ProjectionError::Rebuilding { .. }
            | ProjectionError::RebuildNeeded { .. }
            | ProjectionError::CollectionInUse { .. } => StatusCode::CONFLICT,
            ProjectionError::HistoryGone { .. } => StatusCode::GONE,
            ProjectionError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            ProjectionError::ReducerFailed { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            ProjectionError::Read(ReadError::UnknownCollection { .. }) => StatusCode::NOT_FOUND,
            ProjectionError::Read(ReadError::UnknownField { .. } | ReadError::WrongType { .. }) => {
                StatusCode::BAD_REQUEST
            }
            ProjectionError::Closed | ProjectionError::Read(ReadError::Closed) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            ProjectionError::Read(ReadError::CorruptRange(_) | ReadError::Storage { .. })
            | ProjectionError::BadDeclaration { .. } => {
                error!(%error, "the store failed");
                return Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.code(), STORAGE_FAILED);
            }
        };
        let refusal = Self::new(status, error.code(), error.to_string());
        match error {
            ProjectionError::HistoryGone { earliest, .. } => {
                refusal.with("earliest", earliest.map_or(Value::Null, Into::into))
            }
            _ => refusal,
        }
    }
}

/// The message for clients. Reasons of the store can name files of the server, so they go to its log only.
fn message(error: &BusError) -> String {
    let public = match error {
        BusError::StorageFailed { .. } => STORAGE_FAILED,
        BusError::Poisoned { .. } => "writing stopped after a failure; check the disk and restart the server",
        BusError::UnknownOutcome { .. } => {
            "the outcome is unknown; after the server is back, try again with the same ids"
        }
        other => return other.to_string(),
    };
    error!(%error, "the store failed");
    public.to_owned()
}

impl From<DeliveryError> for Refusal {
    fn from(error: DeliveryError) -> Self {
        BusError::from(error).into()
    }
}

impl From<AuthError> for Refusal {
    fn from(error: AuthError) -> Self {
        let status = match error {
            AuthError::Missing | AuthError::BadToken(_) => StatusCode::UNAUTHORIZED,
            AuthError::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            AuthError::TooMany { .. } => StatusCode::TOO_MANY_REQUESTS,
        };
        let refusal = Self::new(status, error.code(), error.to_string());
        match error {
            AuthError::TooMany { retry_after_ms } => refusal.retry_after(retry_after_ms),
            _ => refusal,
        }
    }
}

/// The HTTP status of an error of the bus.
fn status(error: &BusError) -> StatusCode {
    match error {
        BusError::RateLimited { .. } => StatusCode::TOO_MANY_REQUESTS,
        BusError::Limit(_) | BusError::TooLarge { .. } | BusError::OverBurst { .. } => {
            StatusCode::PAYLOAD_TOO_LARGE
        }
        BusError::UnknownTopic { .. }
        | BusError::AutoCreateOff { .. }
        | BusError::UnknownGroup { .. }
        | BusError::UnknownEvent { .. }
        | BusError::UnknownLetter { .. }
        | BusError::UnknownSchema { .. } => StatusCode::NOT_FOUND,
        BusError::SchemaRejected(_)
        | BusError::SchemaTooCostly { .. }
        | BusError::SchemaRequired { .. }
        | BusError::DowncastFailed { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        BusError::IdConflict { .. }
        | BusError::Conflict { .. }
        | BusError::KeyConflict { .. }
        | BusError::GroupConflict { .. }
        | BusError::GroupBusy { .. }
        | BusError::MemberFenced { .. }
        | BusError::ProjectorGroup { .. }
        | BusError::TopicDeleted { .. }
        | BusError::SchemaIncompatible(_)
        | BusError::SchemaInUse { .. }
        | BusError::VersionTaken { .. }
        | BusError::TooManySchemas { .. }
        | BusError::TooManyTopics { .. } => StatusCode::CONFLICT,
        BusError::Delivery(error) => match error {
            DeliveryError::UnknownMember { .. } => StatusCode::NOT_FOUND,
            DeliveryError::PartitionsInUse { .. } => StatusCode::CONFLICT,
            DeliveryError::Name(_)
            | DeliveryError::BadFilter { .. }
            | DeliveryError::BadPattern { .. }
            | DeliveryError::BadPartitions { .. } => StatusCode::BAD_REQUEST,
        },
        BusError::Backup(error) => match error {
            BackupError::NotOffered | BackupError::BadPlace => StatusCode::BAD_REQUEST,
            BackupError::Running => StatusCode::CONFLICT,
            BackupError::NotRunning | BackupError::UnknownFile { .. } => StatusCode::NOT_FOUND,
            BackupError::StorageFull { .. } => StatusCode::INSUFFICIENT_STORAGE,
            BackupError::Storage { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            BackupError::Closed => StatusCode::SERVICE_UNAVAILABLE,
        },
        BusError::StorageFull { .. } => StatusCode::INSUFFICIENT_STORAGE,
        BusError::Busy { .. } | BusError::Closed | BusError::Fenced { .. } | BusError::Poisoned { .. } => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        BusError::CorruptRange { .. }
        | BusError::StorageFailed { .. }
        | BusError::UnknownOutcome { .. }
        | BusError::Store { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        BusError::Name(_)
        | BusError::Settings(_)
        | BusError::InvalidJson(_)
        | BusError::ControlCharacter { .. }
        | BusError::BadPartition { .. }
        | BusError::KeyRequired { .. }
        | BusError::ExpectationWithoutKey
        | BusError::BadOption { .. }
        | BusError::BadSeek { .. }
        | BusError::BeyondEnd { .. }
        | BusError::NotOffered { .. }
        | BusError::BadSchema { .. } => StatusCode::BAD_REQUEST,
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
        if let Some((name, value)) = self.header.map(|header| *header) {
            headers.insert(name, value);
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
