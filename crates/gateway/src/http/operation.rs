//! The form of an operation.

use std::pin::Pin;

use axum::http::Method;
use axum::response::Response;

use super::call::Call;
use super::param_type::ParamType;
use crate::refusal::Refusal;

/// One operation: everything that the router, the access check and `/openapi.json` need.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) verb: Verb,
    /// Words after slashes; `{name}` stands for a parameter.
    pub(super) path: &'static str,
    /// Its name in generated clients.
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    pub(super) params: &'static [Param],
    pub(super) body: Option<Body>,
    pub(super) answer: Answer,
    /// Statuses of refusals, besides the common ones.
    pub(super) refusals: &'static [u16],
    pub(super) need: Need,
    pub(super) handler: Handler,
}

pub(super) type Handling<'a> = Pin<Box<dyn Future<Output = Result<Response, Refusal>> + Send + 'a>>;
pub(super) type Handler = for<'a> fn(&'a mut Call) -> Handling<'a>;

/// The methods of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    Put,
    Post,
    Delete,
}

impl Verb {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Put => "PUT",
            Self::Post => "POST",
            Self::Delete => "DELETE",
        }
    }

    /// The verb of a method; HEAD is GET without a body.
    pub(super) fn of(method: &Method) -> Option<Self> {
        match *method {
            Method::GET | Method::HEAD => Some(Self::Get),
            Method::PUT => Some(Self::Put),
            Method::POST => Some(Self::Post),
            Method::DELETE => Some(Self::Delete),
            _ => None,
        }
    }
}

/// A parameter.
#[derive(Debug)]
pub(super) struct Param {
    pub(super) place: ParamPlace,
    pub(super) name: &'static str,
    pub(super) kind: ParamType,
    pub(super) times: Times,
    pub(super) about: &'static str,
}

/// Where a parameter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParamPlace {
    Path,
    Query,
    /// Any name in the query that no other parameter has.
    Fields,
    Header,
}

/// How often a parameter may occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Times {
    Once,
    AtMostOnce,
    /// At least and at most this often.
    Many(usize, usize),
}

impl Param {
    pub(super) const fn path(name: &'static str, kind: ParamType, about: &'static str) -> Self {
        Self { place: ParamPlace::Path, name, kind, times: Times::Once, about }
    }

    pub(super) const fn query(name: &'static str, kind: ParamType, about: &'static str) -> Self {
        Self { place: ParamPlace::Query, name, kind, times: Times::AtMostOnce, about }
    }

    pub(super) const fn needed(name: &'static str, kind: ParamType, about: &'static str) -> Self {
        Self { place: ParamPlace::Query, name, kind, times: Times::Once, about }
    }

    pub(super) const fn header(name: &'static str, kind: ParamType, about: &'static str) -> Self {
        Self { place: ParamPlace::Header, name, kind, times: Times::AtMostOnce, about }
    }

    pub(super) const fn fields(about: &'static str) -> Self {
        Self {
            place: ParamPlace::Fields,
            name: "fields",
            kind: ParamType::Text,
            times: Times::AtMostOnce,
            about,
        }
    }

    pub(super) const fn times(mut self, least: usize, most: usize) -> Self {
        self.times = Times::Many(least, most);
        self
    }
}

/// The body of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Body {
    pub(super) media: Media,
    /// The name of its schema.
    pub(super) schema: &'static str,
}

/// The answer to a request that succeeds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answer {
    pub(super) media: &'static [Media],
    /// The name of its schema, for JSON.
    pub(super) schema: &'static str,
    pub(super) about: &'static str,
}

/// The media types of bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Media {
    Json,
    Ndjson,
    EventStream,
    Text,
    Html,
    JavaScript,
    Css,
    Svg,
    Bytes,
}

impl Media {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Ndjson => "application/x-ndjson",
            Self::EventStream => "text/event-stream",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::Html => "text/html; charset=utf-8",
            Self::JavaScript => "text/javascript; charset=utf-8",
            Self::Css => "text/css; charset=utf-8",
            Self::Svg => "image/svg+xml",
            Self::Bytes => "application/octet-stream",
        }
    }
}

impl Answer {
    pub(super) const fn json(schema: &'static str, about: &'static str) -> Self {
        Self { media: &[Media::Json], schema, about }
    }
}

impl Operation {
    /// Whether it changes something that others use.
    pub(super) fn is_managing(&self) -> bool {
        self.verb != Verb::Get && matches!(self.need, Need::Manage | Need::ManageLetters | Need::Admin)
    }
}

/// The access that an operation needs; `topic` and `group` are the parameters with these names. Default deny:
/// an operation cannot be declared without one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// No access and no token.
    Nothing,
    /// A valid token. The answer is the same for every client, or has only what the client may see.
    Known,
    /// `publish:topic`.
    Publish,
    /// `subscribe:topic`.
    Subscribe,
    /// `subscribe:topic@group`.
    SubscribeAs,
    /// As `SubscribeAs`, also on the topic's dead letters.
    ReadLetters,
    /// `publish`, `subscribe` or `manage` on the topic.
    Any,
    /// `read:collection`; without a parameter of that name, the default collection.
    ReadCollection,
    /// `manage:topic`.
    Manage,
    /// As `Manage`, also on the topic's dead letters.
    ManageLetters,
    /// `admin`.
    Admin,
}

impl Need {
    /// The text in `/openapi.json`.
    pub(super) const fn scope(self) -> &'static str {
        match self {
            Self::Nothing => "none",
            Self::Known => "any token; only what it may see is shown",
            Self::Publish => "publish:{topic}",
            Self::Subscribe => "subscribe:{topic}",
            Self::SubscribeAs => "subscribe:{topic}@{group}",
            Self::ReadLetters => "subscribe:{topic}@{group}, which is nowhere denied for {topic}.dlq",
            Self::Any => "publish:{topic}, subscribe:{topic} or manage:{topic}",
            Self::ReadCollection => "read:{collection}",
            Self::Manage => "manage:{topic}",
            Self::ManageLetters => "manage:{topic}, which is nowhere denied for {topic}.dlq",
            Self::Admin => "admin",
        }
    }
}
