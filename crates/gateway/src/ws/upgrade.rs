//! From an HTTP request to a WebSocket.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use tracing::debug;
use tungstenite::handshake::derive_accept_key;

use super::connection::Connection;
use crate::app::App;
use crate::auth::Secret;
use crate::http::ConnectionContext;
use crate::http::dispatch::{NOWHERE, bearer};
use crate::metrics::UsageLimit;
use crate::refusal::Refusal;

/// Whether a request asks for a WebSocket.
pub(crate) fn is_upgrade(headers: &HeaderMap) -> bool {
    has_word(headers, &header::UPGRADE, "websocket")
}

/// Answers a request for a WebSocket.
pub(crate) async fn upgrade(app: App, mut request: Request<Body>) -> Result<Response, Refusal> {
    let key = key(&request)?;
    // A client can show its token with this request; otherwise it sends AUTH.
    let context = request.extensions().get::<ConnectionContext>().cloned();
    let peer = context.as_ref().map_or(NOWHERE, |context| context.peer);
    let session = match bearer(request.headers())? {
        None if !app.auth.is_open() => None,
        token => Some(app.session(peer, token.map(Secret::from)).await?),
    };
    let account = session.as_ref().and_then(|session| app.account(&session.identity));
    let permit = account.map(|account| account.connection()).transpose();
    let permit = permit.inspect_err(|_| app.metrics.over_quota(UsageLimit::Connections))?;
    // The connection keeps its place until the WebSocket ends, not only until the request does.
    let slot = context.as_ref().and_then(|context| context.slot.hold());
    let upgraded = hyper::upgrade::on(&mut request);
    let tasks = app.tasks.clone();
    tasks.spawn(async move {
        match upgraded.await {
            Ok(upgraded) => {
                let known_as = session.map(|session| (session, permit));
                let listed = context.as_ref().map(|context| Arc::clone(&context.listed));
                Connection::new(app, upgraded, (peer, slot.clone(), listed), known_as).run().await
            }
            Err(error) => debug!(%error, "an upgrade failed"),
        }
        drop((slot, context));
    });
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    let headers = response.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, key);
    Ok(response)
}

/// The value that proves to the client that its key was read.
fn key(request: &Request<Body>) -> Result<HeaderValue, Refusal> {
    let headers = request.headers();
    if request.method() != Method::GET || request.version() < Version::HTTP_11 {
        return Err(Refusal::bad_request("a WebSocket is asked for with GET and HTTP/1.1"));
    }
    if !has_word(headers, &header::CONNECTION, "upgrade") || !is_upgrade(headers) {
        let message = "this is a WebSocket; send `connection: upgrade` and `upgrade: websocket`";
        return Err(Refusal::new(StatusCode::UPGRADE_REQUIRED, "upgrade_required", message));
    }
    if headers.get(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        let message = "only version 13 of WebSocket is spoken; send `sec-websocket-version: 13`";
        return Err(Refusal::new(StatusCode::UPGRADE_REQUIRED, "upgrade_required", message));
    }
    let key = headers.get(header::SEC_WEBSOCKET_KEY);
    let key =
        key.ok_or_else(|| Refusal::bad_request("`sec-websocket-key` is missing; use a WebSocket client"))?;
    HeaderValue::from_str(&derive_accept_key(key.as_bytes()))
        .map_err(|_| Refusal::bad_request("`sec-websocket-key` cannot be used; use a WebSocket client"))
}

fn has_word(headers: &HeaderMap, name: &header::HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(word))
}
