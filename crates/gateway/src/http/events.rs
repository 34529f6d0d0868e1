//! Events as JSON, their payloads passed through.

use promethean_bus::StoredEvent;
use promethean_model::EventMeta;
use promethean_model::wire::server::{EventView, event_json};

use crate::refusal::Refusal;

/// Bytes of an event's JSON beside key, meta and payload, about.
pub(crate) const EVENT_BYTES: usize = 160;

/// Appends the event.
pub(crate) fn write(out: &mut Vec<u8>, event: &StoredEvent) -> Result<(), Refusal> {
    // Bytes that passed their checksum and cannot be read: a newer release wrote them.
    let meta = EventMeta::decode(event.meta()).map_err(|_| Refusal::internal())?;
    let view = EventView {
        id: &event.id,
        ts: event.ts,
        topic: event.topic.as_str(),
        offset: event.offset,
        key: event.key(),
        meta: &meta,
        payload: event.payload(),
    };
    event_json(out, &view);
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
