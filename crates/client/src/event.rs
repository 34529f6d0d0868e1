//! Events as the server delivers them.

use std::collections::BTreeMap;

use bytes::Bytes;
use promethean_model::{EventId, EventMeta, TopicName};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::ClientError;
use crate::frames::decode::EventFields;

/// An event with a payload of type `T`. Use [`serde_json::Value`] or `Box<serde_json::value::RawValue>` for
/// payloads of any form, and `Option<T>` where tombstones (`null`) occur.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TypedEvent<T> {
    /// Its id, which names it within its topic.
    pub id: EventId,
    /// Its time, in milliseconds since 1970.
    pub ts: i64,
    /// Its topic.
    pub topic: TopicName,
    /// Its position in the topic.
    pub offset: u64,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// A label for routing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    /// Texts by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Its payload.
    pub payload: T,
    /// Words to filter by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The events that led to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caused_by: Vec<EventId>,
    /// The session of its publisher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sid: Option<String>,
}

/// An event whose payload is not read yet.
#[derive(Debug)]
pub(crate) struct RawDelivery {
    pub(crate) id: EventId,
    pub(crate) topic: TopicName,
    ts: i64,
    offset: u64,
    key: Option<String>,
    /// The fields that most events do not have.
    meta: Option<Box<EventMeta>>,
    payload: Bytes,
}

impl RawDelivery {
    /// Takes an event out of a frame. The payload stays where it was received.
    pub(crate) fn new(fields: EventFields<'_>, topic: TopicName, frame: &Bytes) -> Self {
        let EventFields { id, ts, offset, key, partition, headers, payload, tags, caused_by, sid, .. } =
            fields;
        let is_plain = partition.is_none()
            && headers.is_none()
            && tags.is_none()
            && caused_by.is_none()
            && sid.is_none();
        let meta = (!is_plain).then(|| Box::new(EventMeta { partition, headers, tags, caused_by, sid }));
        Self { id, topic, ts, offset, key, meta, payload: frame.slice_ref(payload.get().as_bytes()) }
    }

    /// Reads the payload.
    pub(crate) fn typed<T: DeserializeOwned>(self) -> Result<TypedEvent<T>, ClientError> {
        let Self { id, topic, ts, offset, key, meta, payload } = self;
        let payload = serde_json::from_slice(&payload).map_err(|cause| {
            let message = format!(
                "the payload of event {id} of `{topic}` does not fit the type of the subscription: {cause}"
            );
            ClientError::new("bad_payload", message).because(cause)
        })?;
        let EventMeta { partition, headers, tags, caused_by, sid } =
            meta.map(|meta| *meta).unwrap_or_default();
        Ok(TypedEvent {
            id,
            ts,
            topic,
            offset,
            key,
            partition,
            headers: headers.unwrap_or_default(),
            payload,
            tags: tags.unwrap_or_default(),
            caused_by: caused_by.unwrap_or_default(),
            sid,
        })
    }
}
