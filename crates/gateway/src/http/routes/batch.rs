//! `/publish/{topic}/batch`: many events in one commit.

use bytes::Bytes;
use promethean_bus::BusError;
use promethean_model::plain::json_reason;
use promethean_model::wire::PublishOpts;
use promethean_model::{EventId, Limits, Offset, TopicName};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::events::{PublishedBatch, publish};
use crate::http::call::Call;
use crate::http::operation::{Answer, Body, Media, Need, Operation, Param, Verb};
use crate::http::param_type::ParamType;
use crate::http::reply::{self, Reply};
use crate::refusal::Refusal;

pub(in crate::http) const OPERATIONS: &[Operation] = &[Operation {
    verb: Verb::Post,
    path: "/publish/{topic}/batch",
    id: "publishBatch",
    summary: "Publish many events in one commit, all or none: one `{\"payload\", \"opts\"?}` on each line",
    params: &[Param::path("topic", ParamType::UserTopic, "the topic")],
    body: Some(Body { media: Media::Ndjson, schema: "BatchLine" }),
    answer: Answer::json("PublishedBatch", "All events are in the log"),
    refusals: &[404, 409, 422, 429, 507],
    need: Need::Publish,
    handler: |call| Box::pin(publish_batch(call)),
}];

/// One line of a batch.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'b> {
    #[serde(borrow)]
    payload: &'b RawValue,
    #[serde(borrow, default)]
    opts: Option<&'b RawValue>,
}

/// The payload of a line and its options.
type Item<'b> = (&'b RawValue, PublishOpts<'b>);

async fn publish_batch(call: &mut Call) -> Reply {
    let topic = call.topic()?;
    let body = call.body().await?;
    let bus = &call.app.bus;
    let mut events = Vec::new();
    for parsed in lines(&body) {
        let (_, item) = parsed?;
        bus.limits().check_batch(events.len() + 1).map_err(|error| Refusal::from(BusError::from(error)))?;
        events.push(publish(topic.clone(), item.0, item.1));
    }
    if events.is_empty() {
        return Err(Refusal::bad_request("the batch has no events; send one JSON object on each line"));
    }
    call.pay_for(&topic, events.len(), body.len())?;
    let published = match &call.publisher {
        Some(publisher) => publisher.publish_batch(events).await,
        None => bus.publish_batch(events).await,
    };
    let published = published.map_err(|error| {
        let end = bus.end_of(&topic);
        blame(error, &topic, &body, bus.limits(), end)
    })?;
    reply::json(&PublishedBatch::of(&published))
}

/// The parsed lines that are not blank, with their numbers from 1.
fn lines(body: &Bytes) -> impl Iterator<Item = Result<(usize, Item<'_>), Refusal>> {
    let numbered = body.split(|byte| *byte == b'\n').zip(1..);
    let full = numbered.filter(|(text, _)| !text.trim_ascii().is_empty());
    full.map(|(text, number)| match line(text) {
        Ok(item) => Ok((number, item)),
        Err(reason) => {
            let message = format!("{reason}; write `{{\"payload\": ..., \"opts\": {{...}}}}`");
            Err(Refusal::bad_request(message).on_line(number))
        }
    })
}

fn line(text: &[u8]) -> Result<Item<'_>, String> {
    // serde would also read a list as an object.
    let object = |text: &[u8]| text.trim_ascii_start().first() == Some(&b'{');
    if !object(text) {
        return Err("not a JSON object".to_owned());
    }
    let line: Line<'_> = serde_json::from_slice(text).map_err(|error| json_reason(&error))?;
    let opts = match line.opts.map(RawValue::get) {
        Some(opts) if !object(opts.as_bytes()) => return Err("`opts` is not an object".to_owned()),
        Some(opts) => {
            serde_json::from_str(opts).map_err(|error| format!("`opts`: {}", json_reason(&error)))?
        }
        None => PublishOpts::default(),
    };
    Ok((line.payload, opts))
}

/// Names the line that caused the refusal of the whole batch, if one did. `end` is the end of the topic.
fn blame(error: BusError, topic: &TopicName, body: &Bytes, limits: &Limits, end: Offset) -> Refusal {
    if let BusError::IdConflict { id, offset, .. } = &error
        && *offset >= end
        && let Some((first, again)) = id_twice(body, *id)
    {
        let message = format!(
            "the event has the id of line {first}, and another key or payload; give it an id of its own"
        );
        let mut refusal = Refusal::from(error);
        refusal.message = message;
        return refusal.on_line(again);
    }
    let mut error = error;
    // The bus counts events from 0, and this answer counts the lines of the body from 1, blank ones too.
    if let BusError::SchemaRejected(rejected) = &mut error
        && let Some(index) = rejected.index.take()
        && let Some((number, _)) = lines(body).filter_map(Result::ok).nth(index)
    {
        return Refusal::from(error).on_line(number);
    }
    let guilty = |opts: &PublishOpts<'_>| match &error {
        BusError::IdConflict { id, .. } => opts.id == Some(*id),
        BusError::KeyRequired { .. } => opts.key.is_none(),
        BusError::BadPartition { given, .. } => opts.partition == Some(*given),
        BusError::Conflict { expected, .. } => opts.expected_offset == Some(*expected),
        BusError::KeyConflict { expected, .. } => opts.expected_key_offset == Some(*expected),
        _ => false,
    };
    let found = lines(body).filter_map(Result::ok).find_map(|(number, item)| {
        let fails = |item: Item<'_>| {
            publish(topic.clone(), item.0, item.1).check(limits).err().as_ref() == Some(&error)
        };
        (guilty(&item.1) || fails(item)).then_some(number)
    });
    let refusal = Refusal::from(error);
    found.map_or(refusal.clone(), |number| refusal.on_line(number))
}

/// The first line with an id, and the first one after it that has the id and another key or payload.
fn id_twice(body: &Bytes, id: EventId) -> Option<(usize, usize)> {
    let mut with_id = lines(body).filter_map(Result::ok).filter(|(_, item)| item.1.id == Some(id));
    let (first, (payload, opts)) = with_id.next()?;
    let differs = |item: &Item<'_>| item.1.key != opts.key || item.0.get() != payload.get();
    let (again, _) = with_id.find(|(_, item)| differs(item))?;
    Some((first, again))
}
