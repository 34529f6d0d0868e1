//! Events on their way in and out, the same over HTTP and WebSocket: from options to an event to publish, and
//! from a stored event to JSON with the payload passed through.

use promethean_bus::publish::{Publish, Published};
use promethean_bus::{EventRef, StoredEvent};
use promethean_model::wire::PublishOpts;
use promethean_model::wire::server::{EventView, event_json};
use promethean_model::{EventId, EventMeta, MetaError, Offset, TopicName};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::refusal::Refusal;

/// About how many bytes the JSON of an event has besides key, meta and payload.
pub(crate) const EVENT_BYTES: usize = 160;

/// Appends an event as JSON.
pub(crate) fn write(out: &mut Vec<u8>, event: &StoredEvent) -> Result<(), Refusal> {
    // The bytes passed their checksum, so only a newer release can have written a form that cannot be read.
    render(out, &event.as_ref()).map_err(|_| Refusal::internal())
}

/// Appends an event that is still in the store's memory.
pub(crate) fn render(out: &mut Vec<u8>, event: &EventRef<'_>) -> Result<(), MetaError> {
    let view = EventView {
        id: &event.id,
        ts: event.ts,
        topic: event.topic.as_str(),
        offset: event.offset,
        // Keys are stored as text, so the check never fails.
        key: event.body.key.and_then(|key| str::from_utf8(key).ok()),
        meta: &EventMeta::decode(event.body.meta)?,
        payload: event.body.payload,
    };
    event_json(out, &view);
    Ok(())
}

/// Appends events, separated by commas.
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

/// A stored event in the form that is written to clients.
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

/// The event to publish for this payload with these options.
pub(crate) fn publish<'a>(topic: TopicName, payload: &'a RawValue, opts: PublishOpts<'_>) -> Publish<'a> {
    let mut event = Publish::new(topic, payload);
    // Every field is named, so that a new one cannot be forgotten.
    let PublishOpts {
        id,
        ts,
        key,
        headers,
        tags,
        caused_by,
        sid,
        partition,
        expected_offset,
        expected_key_offset,
    } = opts;
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
    if let Some(expected) = expected_offset {
        event = event.expected_offset(expected);
    }
    if let Some(expected) = expected_key_offset {
        event = event.expected_key_offset(expected);
    }
    event
}

/// The reply to a batch.
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
    /// The reply for these events; a batch has at least one.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use promethean_bus::EventBody;
    use promethean_model::Event;
    use proptest::prelude::*;

    use super::*;

    fn metas() -> impl Strategy<Value = EventMeta> {
        let texts = || proptest::collection::vec(".{0,6}", 0..3);
        let headers = proptest::collection::btree_map(".{0,6}", ".{0,6}", 0..3);
        let ids = proptest::collection::vec(any::<[u8; 16]>().prop_map(EventId::from_bytes), 0..3);
        let parts = (
            proptest::option::of(any::<u32>()),
            proptest::option::of(headers),
            proptest::option::of(texts()),
            proptest::option::of(ids),
            proptest::option::of(".{0,6}"),
        );
        parts.prop_map(|(partition, headers, tags, caused_by, sid): (_, Option<BTreeMap<_, _>>, _, _, _)| {
            EventMeta { partition, headers, tags, caused_by, sid }
        })
    }

    fn json(parts: Event, stored: &StoredEvent) {
        let mut out = Vec::new();
        write(&mut out, stored).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(&parts).unwrap());
    }

    proptest! {
        /// An event is written with the same bytes that `serde_json` would write.
        #[test]
        fn an_event_is_written_as_the_model_would_write_it(
            (id, ts, offset) in (any::<[u8; 16]>(), any::<i64>(), any::<u64>()),
            key in proptest::option::of(".{0,10}"),
            meta in metas(),
            payload in prop_oneof!["[0-9]{1,4}", ".{0,20}".prop_map(|text| serde_json::to_string(&text).unwrap())],
        ) {
            // A JSON number does not begin with 0.
            let payload = format!("[{}]", payload.trim_start_matches('0'));
            let (id, topic): (_, TopicName) = (EventId::from_bytes(id), "a.b".parse().unwrap());
            let mut bytes = Vec::new();
            meta.encode(&mut bytes);
            let body = EventBody {
                key: key.as_deref().map(str::as_bytes),
                meta: &bytes,
                payload: payload.as_bytes(),
            };
            let stored = StoredEvent::new(topic.clone(), Offset(offset), id, ts).with_body(body);
            let EventMeta { partition, headers, tags, caused_by, sid } = meta;
            let payload = RawValue::from_string(payload).unwrap();
            let offset = Offset(offset);
            json(Event { id, ts, topic, offset, key, partition, headers, payload, tags, caused_by, sid }, &stored);
        }
    }
}
