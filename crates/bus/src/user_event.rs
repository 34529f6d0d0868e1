//! A stored event as users see it.

use promethean_model::{Event, EventMeta};
use promethean_store::port::StoredEvent;
use serde_json::value::RawValue;

use crate::error::BusError;

/// The whole event, its payload's bytes as they were stored.
pub fn user_event(stored: &StoredEvent) -> Result<Event, BusError> {
    let unreadable = |what: String| BusError::StorageFailed {
        reason: format!("event {} of topic `{}` cannot be read ({what})", stored.offset, stored.topic),
    };
    let meta = EventMeta::decode(stored.meta()).map_err(|error| unreadable(error.to_string()))?;
    let payload =
        str::from_utf8(stored.payload()).map_err(|error| unreadable(error.to_string())).and_then(|text| {
            RawValue::from_string(text.to_owned()).map_err(|error| unreadable(error.to_string()))
        })?;
    let event = Event {
        id: stored.id,
        ts: stored.ts,
        topic: stored.topic.clone(),
        offset: stored.offset,
        key: stored.key().map(str::to_owned),
        partition: None,
        headers: None,
        payload,
        tags: None,
        caused_by: None,
        sid: None,
    };
    Ok(event.with_meta(meta))
}
