//! `/publish/{topic}`: one event.

use axum::http::{HeaderValue, header};
use promethean_bus::publish::Publish;
use promethean_model::{EventId, Offset};

use super::params::EXACT;
use crate::http::call::Call;
use crate::http::operation::{Answer, Body, Media, Need, Operation, Param, Verb};
use crate::http::param_type::ParamType;
use crate::http::reply::{self, Reply};
use crate::http::stored_headers::is_form;
use crate::refusal::Refusal;

pub(in crate::http) const OPERATIONS: &[Operation] = &[Operation {
    verb: Verb::Post,
    path: "/publish/{topic}",
    id: "publish",
    summary: "Publish one event; the body is its payload. Of the request's headers only `x-*`, `t0`, `traceparent`, \
              `tracestate` and `content-type` are stored, and none that looks like a credential; the server's \
              `stored_headers` may say otherwise.",
    params: &[
        Param::path("topic", ParamType::UserTopic, "the topic"),
        Param::header(
            "x-event-id",
            ParamType::Id,
            "the event's id: sent again, the event is not published twice",
        ),
        Param::header("x-event-key", ParamType::Ascii, "the event's key; `key` in the query takes any text"),
        Param::query("key", ParamType::Text, "the event's key, at most 1,024 bytes"),
        Param::query("ts", EXACT, "the event's time, epoch ms; the server's if left out"),
        Param::query("tags", ParamType::Text, "words to filter by").times(0, 32),
        Param::query("caused_by", ParamType::Id, "ids of the events that led to this one").times(0, 64),
        Param::query("sid", ParamType::Text, "the publisher's session"),
        Param::query(
            "partition",
            ParamType::Int(0, 4095),
            "a label for routing, below the topic's `partitions`",
        ),
        Param::query(
            "expected_offset",
            ParamType::Offset,
            "publish only if the topic's next offset is this one",
        ),
        Param::query(
            "expected_key_offset",
            ParamType::OffsetOrNone,
            "publish only if the key's latest event is at this offset, or if it has `none`",
        ),
    ],
    body: Some(Body { media: Media::Json, schema: "Payload" }),
    answer: Answer::json("Published", "The event is in the log"),
    refusals: &[404, 409, 422, 429, 507],
    need: Need::Publish,
    handler: |call| Box::pin(publish(call)),
}];

async fn publish(call: &mut Call) -> Reply {
    let body = call.body().await?;
    let event = event(call, &body)?;
    call.pay_for(event.topic(), 1, body.len())?;
    let published = match &call.publisher {
        Some(publisher) => publisher.publish(event).await,
        None => call.app.bus.publish(event).await,
    };
    reply::json(&published?)
}

fn event<'b>(call: &Call, body: &'b [u8]) -> Result<Publish<'b>, Refusal> {
    let args = &call.args;
    let mut event = Publish::new(call.topic()?, body);
    if let Some(id) = args.parse::<EventId>("x-event-id")? {
        event = event.id(id);
    }
    match (args.get("key"), args.get("x-event-key")) {
        (Some(query), Some(header)) if query != header => {
            let message = "`key` and `x-event-key` differ; send one of them";
            return Err(Refusal::bad_request(message).with("parameter", "key"));
        }
        (Some(key), _) | (None, Some(key)) => event = event.key(key),
        (None, None) => {}
    }
    if let Some(ts) = args.parse("ts")? {
        event = event.ts(ts);
    }
    let tags: Vec<String> = args.all("tags").map(str::to_owned).collect();
    if !tags.is_empty() {
        event = event.tags(tags);
    }
    let causes: Vec<EventId> = args.all("caused_by").filter_map(|id| id.parse().ok()).collect();
    if !causes.is_empty() {
        event = event.caused_by(causes);
    }
    if let Some(sid) = args.get("sid") {
        event = event.sid(sid);
    }
    if let Some(partition) = args.parse("partition")? {
        event = event.partition(partition);
    }
    if let Some(offset) = args.parse("expected_offset")? {
        event = event.expected_offset(Offset(offset));
    }
    if let Some(offset) = args.get("expected_key_offset") {
        event = event.expected_key_offset(offset.parse().ok().map(Offset));
    }
    with_headers(event, call)
}

/// Adds the headers of the request that are stored to the event.
fn with_headers<'b>(mut event: Publish<'b>, call: &Call) -> Result<Publish<'b>, Refusal> {
    let (headers, stored) = (&call.headers, &call.app.stored_headers);
    let is_form = is_form(&call.media_type());
    let names = headers.keys().filter(|name| stored.has(name.as_str()));
    for name in names.filter(|name| !(is_form && **name == header::CONTENT_TYPE)) {
        let values: Result<Vec<&str>, _> = headers.get_all(name).iter().map(HeaderValue::to_str).collect();
        let bad = |_| {
            let message = format!("header `{name}` has bytes that are not visible ASCII; encode them");
            Refusal::bad_request(message).with("parameter", name.as_str())
        };
        event = event.header(name.as_str(), values.map_err(bad)?.join(", "));
    }
    Ok(event)
}
