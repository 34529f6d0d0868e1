//! Answers of JSON.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;

use super::operation::Media;
use crate::refusal::Refusal;

/// What an operation answers with.
pub(super) type Reply = Result<Response, Refusal>;

/// An answer of JSON.
pub(super) fn json(value: &impl Serialize) -> Reply {
    json_with(StatusCode::OK, value)
}

/// An answer of JSON with a status.
pub(super) fn json_with(status: StatusCode, value: &impl Serialize) -> Reply {
    let failed = |_| Refusal::internal();
    Ok(with_status(status, Media::Json, Body::from(serde_json::to_vec(value).map_err(failed)?)))
}

/// An answer with a body of some form.
pub(super) fn with(media: Media, body: impl Into<Body>) -> Response {
    with_status(StatusCode::OK, media, body.into())
}

fn with_status(status: StatusCode, media: Media, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media.as_str()));
    response
}
