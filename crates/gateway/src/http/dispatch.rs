//! From a request to its answer.

use std::net::{IpAddr, Ipv4Addr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version, header};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use hyper::body::Body as _;
use promethean_model::IgnorePoison;
use tracing::{debug, error, warn};

use super::args::Args;
use super::call::Call;
use super::operation::{Need, Operation, Verb};
use super::request_body::RequestBody;
use super::table::{self, RouteFound};
use super::{ConnectionContext, dashboard, reply};
use crate::app::App;
use crate::auth::{AuthError, Secret};
use crate::listen::origin::PageOrigin;
use crate::refusal::Refusal;
use crate::{tickets, ws};

/// Headers of a request, at most. HTTP/1 refuses more already when it reads them.
const HEADERS_MAX: usize = 100;
/// Bytes of path and query, at most.
const URI_BYTES_MAX: usize = 8 << 10;
/// Bytes of a request id that a client chose, at most.
const REQUEST_ID_BYTES_MAX: usize = 128;
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Characters of a refused origin that are logged.
const ORIGIN_CHARS_LOGGED: usize = 200;
/// How long a browser may cache the answer to a preflight request.
const PREFLIGHT_SECS: &str = "600";

/// The address of requests without a connection.
pub(crate) const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The state that all requests share.
#[derive(Debug, Clone)]
pub(crate) struct HttpState {
    app: App,
    /// The time of the start. Together with a count it makes every request id unique.
    started: i64,
    requests: Arc<AtomicU64>,
}

impl HttpState {
    pub(crate) fn new(app: App) -> Self {
        let started = app.clock.wall_ms();
        Self { app, started, requests: Arc::default() }
    }

    /// The client's request id, if it can be logged as it is; otherwise a new one.
    fn request_id(&self, headers: &HeaderMap) -> HeaderValue {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(byte);
        let sane = |id: &&HeaderValue| {
            (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.as_bytes().iter().all(plain)
        };
        if let Some(id) = headers.get(&REQUEST_ID).filter(sane) {
            return id.clone();
        }
        let count = self.requests.fetch_add(1, Ordering::Relaxed);
        // Digits and a dash are valid in every header.
        HeaderValue::from_str(&format!("{:x}-{count:x}", self.started))
            .unwrap_or(HeaderValue::from_static("0"))
    }
}

/// Answers one request, also if its handler panics.
pub(crate) async fn serve(State(http): State<HttpState>, request: Request) -> Response {
    let id = http.request_id(request.headers());
    let began_ms = http.app.clock.monotonic_ms();
    let took_ms = || http.app.clock.monotonic_ms().saturating_sub(began_ms);
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let is_visit = dashboard::is_visit(&method, uri.path(), request.headers());
    let origin = check_origin(&http.app, &request, is_visit);
    let may_upgrade = origin.is_ok() && names_host(request.version(), request.headers());
    if may_upgrade && matches!(uri.path(), "/" | "/ws") && ws::is_upgrade(request.headers()) {
        let upgraded = ws::upgrade(http.app.clone(), request).await;
        let response = upgraded.unwrap_or_else(|refusal| refusal.of_request(&id).into_response());
        http.app.metrics.answered(table::websocket(), response.status(), took_ms());
        return finish(response, id, origin.ok(), (&method, &uri));
    }
    let (parts, body) = request.into_parts();
    let request_body = RequestBody::new(&http.app, &parts.headers, body);
    let connection = parts.extensions.get::<ConnectionContext>();
    let publisher = connection.map(|connection| Arc::clone(&connection.publisher));
    let peer = connection.map_or(NOWHERE, |connection| connection.peer);
    let slot = connection.map(|connection| connection.slot.clone()).unwrap_or_default();
    let listed = connection.map(|connection| Arc::clone(&connection.listed));
    let mut call = Call {
        app: http.app.clone(),
        args: Args::default(),
        headers: parts.headers,
        request_body,
        identity: None,
        token: None,
        seen: 0,
        permit: None,
        publisher,
        peer,
        slot,
        listed,
    };
    let found = table::find(Verb::of(&method), if is_visit { dashboard::PATH } else { uri.path() });
    let operation = match found {
        RouteFound::Operation(operation, _) => Some(operation),
        _ => None,
    };
    let result = match &origin {
        Err(refusal) => Err(refusal.clone()),
        Ok(_) if !names_host(parts.version, &call.headers) => {
            Err(Refusal::bad_request("send one `host` header"))
        }
        Ok(_) if uri.path() == "/ws" => Err(upgrade_required()),
        Ok(origin) if method == Method::OPTIONS => options(&found, origin, &call.headers),
        Ok(_) => {
            let handling = AssertUnwindSafe(handle(&mut call, found, (&method, &uri))).catch_unwind();
            handling.await.unwrap_or_else(|_| {
                error!(request_id = ?id, route = operation.map(|operation| operation.path), "a handler panicked");
                Err(Refusal::internal())
            })
        }
    };
    if let Some(operation) = operation {
        call.record(operation, result.as_ref().err().map_or("ok", |refusal| refusal.code), &id);
    }
    call.request_body.drain().await;
    let response = result.unwrap_or_else(|refusal| refusal.of_request(&id).into_response());
    let route = table::route(operation);
    http.app.metrics.answered(route, response.status(), took_ms());
    debug!(request_id = ?id, %method, route = route.path, status = response.status().as_u16(), "answered");
    finish(response, id, origin.ok(), (&method, &uri))
}

/// Checks from which page a request comes. The dashboard holds no data, so a link of any other page may lead to it.
fn check_origin(app: &App, request: &Request, is_visit: bool) -> Result<PageOrigin, Refusal> {
    let origin = match is_visit && dashboard::is_navigation(request.headers()) {
        true => app.origins.check_host(request.headers(), request.uri()),
        false => app.origins.check(request.headers(), request.uri()),
    };
    if origin.is_err() {
        warn_of_origin(app, request.headers());
    }
    origin
}

async fn handle(call: &mut Call, found: RouteFound, (method, uri): (&Method, &Uri)) -> reply::Reply {
    if uri.path_and_query().is_some_and(|whole| whole.as_str().len() > URI_BYTES_MAX) {
        let message = format!("path and query are longer than {URI_BYTES_MAX} bytes; shorten them");
        return Err(Refusal::new(StatusCode::URI_TOO_LONG, "uri_too_long", message));
    }
    if call.headers.len() > HEADERS_MAX {
        let message = format!("the request has more than {HEADERS_MAX} headers; send fewer");
        return Err(Refusal::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "too_many_headers", message));
    }
    let (operation, words) = match found {
        RouteFound::Operation(operation, words) => (operation, words),
        RouteFound::OtherMethod(verbs) => return Err(other_method(&verbs)),
        RouteFound::Malformed => {
            return Err(Refusal::bad_request("the path is not percent-encoded UTF-8; encode it"));
        }
        RouteFound::Nothing => return Err(Refusal::nothing_here()),
    };
    // A client that can send a header needs no ticket, and only a GET may have one.
    let may_have_ticket = *method == Method::GET && !call.headers.contains_key(header::AUTHORIZATION);
    let (ticket, query) = match uri.query() {
        Some(query) if may_have_ticket => tickets::split_query(query),
        query => (None, query.unwrap_or_default().to_owned()),
    };
    if operation.need != Need::Nothing {
        call.token = match ticket {
            Some(ticket) => {
                let now_ms = call.app.clock.monotonic_ms();
                call.app.tickets.redeem(ticket, uri.path(), &query, now_ms)?
            }
            None => bearer(&call.headers)?.map(Secret::from),
        };
        call.seen = call.app.auth.revision();
        let token = call.token.as_ref().and_then(Secret::reveal_text);
        let identity = call.app.identify(call.peer, token).await?;
        call.slot.keep();
        call.listed.iter().for_each(|listed| listed.belong_to(&identity));
        call.request_body.belong_to(&identity);
        call.identity = Some(identity);
        call.permit = call.connection_permit()?;
    }
    call.args = Args::read(operation, words, Some(&query), &call.headers)?;
    call.allow(operation.need)?;
    (operation.handler)(call).await
}

/// Tells the operator which page was refused: the browser hides it from the page's author.
fn warn_of_origin(app: &App, headers: &HeaderMap) {
    let Some(times) = app.refused_origins.lock().ignore_poison().due() else { return };
    let text = |name: HeaderName| {
        let value = headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        value.unwrap_or_default().chars().take(ORIGIN_CHARS_LOGGED).collect::<String>()
    };
    let (origin, host) = (text(header::ORIGIN), text(header::HOST));
    warn!(
        ?origin,
        ?host,
        times,
        "refused a page of this origin; add the origin to `allowed_origins` to let it in"
    );
}

/// The token of `Authorization: Bearer TOKEN`.
pub(crate) fn bearer(headers: &HeaderMap) -> Result<Option<&str>, AuthError> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(AuthError::BadToken("there are two"));
    }
    let malformed = AuthError::BadToken("`authorization` is not `Bearer` and a token");
    let (scheme, token) =
        value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or(malformed.clone())?;
    match scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() {
        true => Ok(Some(token.trim())),
        false => Err(malformed),
    }
}

/// Whether the request names one host. Proxies could route a request without a host, or with two,
/// differently.
fn names_host(version: Version, headers: &HeaderMap) -> bool {
    let hosts = headers.get_all(header::HOST).iter().count();
    if version == Version::HTTP_11 { hosts == 1 } else { hosts <= 1 }
}

fn upgrade_required() -> Refusal {
    let message = "this is for WebSocket clients; connect with one, or see /openapi.json for HTTP";
    Refusal::new(StatusCode::UPGRADE_REQUIRED, "upgrade_required", message)
        .header(header::UPGRADE, HeaderValue::from_static("websocket"))
}

/// The `allow` header for these verbs; GET includes HEAD.
fn allow(verbs: &[Verb]) -> HeaderValue {
    let mut names: Vec<&str> = verbs.iter().map(|verb| verb.as_str()).collect();
    if verbs.contains(&Verb::Get) {
        names.push("HEAD");
    }
    names.push("OPTIONS");
    HeaderValue::from_str(&names.join(", ")).unwrap_or(HeaderValue::from_static("OPTIONS"))
}

fn other_method(verbs: &[Verb]) -> Refusal {
    let allow = allow(verbs);
    let message = format!("this path has only {}; use one of them", allow.to_str().unwrap_or_default());
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message).header(header::ALLOW, allow)
}

/// Answers OPTIONS: the methods of a path and, for a page of an allowed origin, the headers that its scripts
/// may send.
fn options(found: &RouteFound, origin: &PageOrigin, asked: &HeaderMap) -> reply::Reply {
    let RouteFound::OtherMethod(verbs) = found else { return Err(Refusal::nothing_here()) };
    let allow = allow(verbs);
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    if let PageOrigin::Allowed(_) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, allow.clone());
        if let Some(names) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
        }
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(PREFLIGHT_SECS));
    }
    headers.insert(header::ALLOW, allow);
    Ok(response)
}

/// Adds the headers that every answer has, and drops the body for HEAD.
fn finish(
    mut response: Response,
    id: HeaderValue,
    origin: Option<PageOrigin>,
    (method, uri): (&Method, &Uri),
) -> Response {
    let length = response.body().size_hint().exact();
    let response_status = response.status();
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Pages of other origins cannot load an answer as an image or script. What CORS allows is not affected. Health is no
    // secret, and neither is a refused origin: so a page can tell a server that refuses it from one that is away.
    let is_public = origin.is_none() || matches!(uri.path(), "/health" | "/ready");
    let policy = if is_public { "cross-origin" } else { "same-origin" };
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static(policy));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if let Some(PageOrigin::Allowed(origin)) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        let exposed = HeaderValue::from_static("x-request-id, x-next-offset, retry-after, etag");
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
    }
    if *method == Method::HEAD {
        // A 304 would need the length of the whole document, which was not read.
        let length = length.filter(|_| response_status != StatusCode::NOT_MODIFIED);
        if let Some(length) = length {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        *response.body_mut() = Body::empty();
    }
    response
}

impl Operation {
    /// Whether it needs no token.
    pub(super) fn is_open(&self) -> bool {
        self.need == Need::Nothing
    }
}
