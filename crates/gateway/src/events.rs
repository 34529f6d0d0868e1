//! Events on their way in and out, whatever they come over: from options to what is published, and from what is stored
//! to JSON with the payload passed through.

use promethean_bus::StoredEvent;
use promethean_bus::publish::{Publish, Published};
use promethean_model::wire::PublishOpts;
use promethean_model::wire::server::{EventView, event_json};
use promethean_model::{EventId, EventMeta, Offset, TopicName};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::refusal::Refusal;

/// Bytes of an event's JSON beside key, meta and payload, about.
pub(crate) const EVENT_BYTES: usize = 160;

/// Appends the event.
pub(crate) fn write(out: &mut Vec<u8>, event: &StoredEvent) -> Result<(), Refusal> {
    // Bytes that passed their checksum and cannot be read: a newer release wrote them.
    let meta = EventMeta::decode(event.meta()).map_err(|_| Refusal::internal())?;
    event_json(out, &view(event, &meta));
    Ok(())
}

/// Appends events with a comma between each two.
pub(crate) fn write_list<'a>(
    out: &mut Vec<u8>,
    events: impl IntoIterator<Item = &'a StoredEvent>,
) -> Result<(), Refusal> {
    for (index, event) in events.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(out, event)?;
    }
    Ok(())
}

/// The event as it is written.
pub(crate) fn view<'a>(event: &'a StoredEvent, meta: &'a EventMeta) -> EventView<'a> {
    EventView {
        id: &event.id,
        ts: event.ts,
        topic: event.topic.as_str(),
        offset: event.offset,
        key: event.key(),
        meta,
        payload: event.payload(),
    }
}

/// The event that is to be published with these options.
pub(crate) fn publish<'a>(topic: TopicName, payload: &'a RawValue, opts: PublishOpts<'_>) -> Publish<'a> {
    let mut event = Publish::new(topic, payload);
    let PublishOpts { id, ts, key, headers, tags, caused_by, sid, partition, .. } = opts;
    if let Some(id) = id {
        event = event.id(id);
    }
    if let Some(ts) = ts {
        event = event.ts(ts);
    }
    if let Some(key) = key {
        event = event.key(key);
    }
    if let Some(headers) = headers {
        event = event.headers(headers);
    }
    if let Some(tags) = tags {
        event = event.tags(tags);
    }
    if let Some(caused_by) = caused_by {
        event = event.caused_by(caused_by);
    }
    if let Some(sid) = sid {
        event = event.sid(sid);
    }
    if let Some(partition) = partition {
        event = event.partition(partition);
    }
    if let Some(expected) = opts.expected_offset {
        event = event.expected_offset(expected);
    }
    if let Some(expected) = opts.expected_key_offset {
        event = event.expected_key_offset(expected);
    }
    event
}

/// What became of a batch.
#[derive(Debug, Serialize)]
pub(crate) struct PublishedBatch {
    count: usize,
    first_offset: Offset,
    last_offset: Offset,
    ids: Vec<EventId>,
    duplicates: usize,
    durability: &'static str,
}

impl PublishedBatch {
    /// Of these events; a batch has at least one.
    pub(crate) fn of(published: &[Published]) -> Self {
        let offsets = || published.iter().map(|event| event.offset);
        Self {
            count: published.len(),
            first_offset: offsets().min().unwrap_or_default(),
            last_offset: offsets().max().unwrap_or_default(),
            ids: published.iter().map(|event| event.id).collect(),
            duplicates: published.iter().filter(|event| event.duplicate).count(),
            durability: published.first().map_or("memory", |event| event.durability),
        }
    }
}
