//! `/stream/{topic}`: events as they are published, for `EventSource` and `curl -N`.

use std::io::Write;
use std::time::Duration;

use axum::http::{HeaderValue, header};
use bytes::Bytes;
use promethean_bus::read::{ReplayPage, Tail};
use promethean_bus::rows::StartPosition;
use promethean_delivery::Subject;
use promethean_model::Offset;
use tokio::time::MissedTickBehavior;
use tracing::warn;

use super::params::{AFTER_ID, FROM, NORMALIZE, OFFSET, TS, start};
use crate::app::App;
use crate::events;
use crate::http::call::{Call, ReadGrant};
use crate::http::operation::{Answer, Media, Need, Operation, Param, Verb};
use crate::http::param_type::ParamType;
use crate::http::reply::{self, BodyWriter, Reply};
use crate::refusal::Refusal;

/// How often a comment is sent, so that proxies and clients see that the stream is alive.
const BEAT: Duration = Duration::from_secs(15);
/// Pages that wait for the client, at most.
const AHEAD: usize = 2;
/// The first bytes: how soon to reconnect, and a sign that the stream is open.
const HELLO: &[u8] = b"retry: 1000\n\n";

pub(in crate::http) const OPERATIONS: &[Operation] = &[Operation {
    verb: Verb::Get,
    path: "/stream/{topic}",
    id: "stream",
    summary: "Events of a topic as they come, as server-sent events whose ids are offsets. A client that reconnects \
              goes on after its `last-event-id`. A comment comes every 15 s; `event: expired` says that retention \
              dropped events before they were read.",
    params: &[
        Param::path("topic", ParamType::Topic, "the topic"),
        Param::header("last-event-id", ParamType::EventPlace, "go on after this event, whatever `from` says"),
        FROM,
        TS,
        AFTER_ID,
        OFFSET,
        NORMALIZE,
    ],
    body: None,
    answer: Answer { media: &[Media::EventStream], schema: "", about: "The events; the answer has no end" },
    refusals: &[404],
    need: Need::Subscribe,
    handler: |call| Box::pin(stream(call)),
}];

async fn stream(call: &mut Call) -> Reply {
    let (topic, app) = (call.topic()?, &call.app);
    let asked = start(&call.args, StartPosition::Latest)?;
    let from = match call.args.get("last-event-id") {
        Some(last) => {
            let (named, offset) = last.rsplit_once(':').unwrap_or((topic.as_str(), last));
            if named != topic.as_str() {
                let message = "`last-event-id` is of another topic; leave it out to begin again";
                return Err(Refusal::bad_request(message).with("parameter", "last-event-id"));
            }
            StartPosition::Offset(offset.parse().map(Offset).unwrap_or_default().next())
        }
        None => asked,
    };
    let permit = call.permit.take();
    let tail = app.bus.tail(&topic, from).await?.normalize(call.args.flag("normalize", false));
    let (writer, body) = reply::stream(AHEAD, Duration::from_millis(app.options.write_timeout_ms));
    let reader = call.reader(Subject::Topic(topic));
    let following = follow(app.clone(), tail, writer, reader);
    app.tasks.spawn(async move {
        following.await;
        drop(permit);
    });
    let mut response = reply::with(Media::EventStream, body);
    // A proxy that buffers whole answers would buffer this one for ever.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform"));
    Ok(response)
}

/// Sends events to one client. A slow client delays only this task.
async fn follow(app: App, mut tail: Tail, writer: BodyWriter, mut reader: ReadGrant) {
    let check_every = app.options.auth_check_every_ms.saturating_mul(2).max(10);
    let mut token_check = tokio::time::interval(Duration::from_millis(check_every));
    token_check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut beat = tokio::time::interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick comes at once.
    beat.tick().await;
    if writer.send(Bytes::from_static(HELLO)).await.is_err() {
        return;
    }
    loop {
        let chunk = tokio::select! {
            () = app.stopping.cancelled() => break,
            () = writer.gone() => return,
            _ = beat.tick() => Bytes::from_static(b":\n\n"),
            _ = token_check.tick() => Bytes::new(),
            page = tail.next_page() => match page {
                Ok(Some(page)) => match encode(&page) {
                    Ok(chunk) => chunk,
                    Err(_) => return,
                },
                // The topic was deleted, or the server stops.
                Ok(None) => break,
                Err(error) => {
                    warn!(%error, "a stream was cut");
                    return;
                }
            },
        };
        if reader.is_expired(&app) || !reader.may_read_on().await {
            break;
        }
        if chunk.is_empty() {
            continue;
        }
        let sent = tokio::select! {
            sent = writer.send(chunk) => sent,
            () = app.stopping.cancelled() => return,
        };
        if sent.is_err() {
            return;
        }
    }
    // The client may be gone.
    let _ = writer.finish().await;
}

fn encode(page: &ReplayPage) -> Result<Bytes, Refusal> {
    let bytes: usize = page.events.iter().map(|event| event.bytes() + events::EVENT_BYTES + 32).sum();
    let mut out = Vec::with_capacity(bytes + 64);
    // Writing to memory does not fail.
    if page.expired > 0 {
        let _ = write!(out, "event: expired\ndata: {{\"expired\":{}}}\n\n", page.expired);
    }
    for event in &page.events {
        // Stored JSON has no line breaks, so one `data:` line holds it.
        let _ = write!(out, "id: {}\ndata: ", event.offset);
        events::write(&mut out, event)?;
        out.extend_from_slice(b"\n\n");
    }
    Ok(out.into())
}
