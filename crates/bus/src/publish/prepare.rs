//! The checks of a publish, and the event to append.

use std::borrow::Cow;

use promethean_model::limits::{EventParts, PARTITIONS_MAX};
use promethean_model::{EventId, EventMeta, IdMint, Limits, Offset, TopicName, TopicSettings, partition_of};
use promethean_store::port::{AppendEvent, Batch, EventIdSource};

use super::json::{JsonError, JsonFault, minify};
use super::request::{Payload, Publish};
use crate::error::BusError;
use crate::schema::Stamp;

#[cfg(test)]
mod tests;

/// Who publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// A user: the system's topics are refused.
    User,
    /// The system itself: any topic, and a payload of any length.
    System,
}

/// A request that can be published as far as names, limits and JSON go. Between this and [`Checked::prepare`] there is
/// room for rules that need the payload, such as schemas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    topic: TopicName,
    payload: String,
    id: Option<EventId>,
    ts: Option<i64>,
    key: Option<String>,
    meta: EventMeta,
    expected_end: Option<Offset>,
    expected_key: Option<Option<Offset>>,
}

/// An event ready to be committed, and what must hold for that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    /// The event.
    pub event: AppendEvent,
    /// Its label.
    pub partition: Option<u32>,
    /// What the topic's next offset must be.
    pub expected_end: Option<Offset>,
    /// What the offset of the key's latest event must be. Only with a key.
    pub expected_key: Option<Option<Offset>>,
    /// The version of the schema it is stamped with.
    pub stamp: Option<Stamp>,
}

/// What the answer needs besides the receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// The event's id.
    pub id: EventId,
    /// Its topic.
    pub topic: TopicName,
    /// Its label.
    pub partition: Option<u32>,
}

/// Checks everything about a request that needs no setting of its topic.
pub fn check(request: Publish<'_>, writer: Writer, limits: &Limits) -> Result<Checked, BusError> {
    let Publish { topic, payload, id, ts, key, meta, expected_end, expected_key } = request;
    if writer == Writer::User && topic.is_system() {
        // Parsing again is how the model says which rule the name breaks.
        TopicName::parse_user(topic.as_str())?;
    }
    if expected_key.is_some() && key.is_none() {
        return Err(BusError::ExpectationWithoutKey);
    }
    let payload = minimal(payload)?;
    let payload_bytes = if writer == Writer::User { payload.len() } else { 0 };
    limits.check_event(&EventParts { key: key.as_deref(), payload_bytes, meta: &meta })?;
    check_lines(&meta)?;
    Ok(Checked { topic, payload, id, ts, key, meta, expected_end, expected_key })
}

impl Checked {
    /// The topic.
    pub fn topic(&self) -> &TopicName {
        &self.topic
    }

    /// The payload as it will be stored.
    pub fn payload(&self) -> &str {
        &self.payload
    }

    /// Sets a header in the system's name; the caps on headers are for publishers.
    pub fn set_header(&mut self, name: &str, value: String) {
        self.meta.headers.get_or_insert_default().insert(name.to_owned(), value);
    }

    /// Takes a header out.
    pub fn take_header(&mut self, name: &str) -> Option<String> {
        let headers = self.meta.headers.as_mut()?;
        let value = headers.remove(name)?;
        if headers.is_empty() {
            self.meta.headers = None;
        }
        Some(value)
    }

    /// Applies the topic's settings, gives an id and a label where there is none, and encodes.
    pub fn prepare(
        mut self,
        settings: &TopicSettings,
        mint: &IdMint,
        wall_ms: i64,
    ) -> Result<Prepared, BusError> {
        if settings.compacted && self.key.is_none() {
            return Err(BusError::KeyRequired { topic: self.topic });
        }
        let id = match self.id {
            Some(id) => EventIdSource::Given(id),
            None => EventIdSource::Minted(mint.mint(u64::try_from(wall_ms).unwrap_or(0))),
        };
        let key = self.key.as_deref();
        let partition = label(self.meta.partition, settings.partitions, |n| partition_of(key, &id.id(), n))?;
        self.meta.partition = partition;
        let mut meta = Vec::new();
        self.meta.encode(&mut meta);
        let event =
            AppendEvent { topic: self.topic, id, ts: self.ts, key: self.key, meta, payload: self.payload };
        let Self { expected_end, expected_key, .. } = self;
        Ok(Prepared { event, partition, expected_end, expected_key, stamp: None })
    }
}

impl Prepared {
    /// Whether it can be appended whatever else is there.
    pub const fn expects_nothing(&self) -> bool {
        self.expected_end.is_none() && self.expected_key.is_none()
    }

    /// Adds event and expectations to a batch.
    pub fn add_to(self, batch: &mut Batch) -> Pending {
        let topic = &self.event.topic;
        if let Some(end) = self.expected_end {
            batch.expected_ends.push((topic.clone(), end));
        }
        if let (Some(latest), Some(key)) = (self.expected_key, &self.event.key) {
            batch.expected_keys.push((topic.clone(), key.clone(), latest));
        }
        let pending = Pending { id: self.event.id.id(), topic: topic.clone(), partition: self.partition };
        batch.events.push(self.event);
        pending
    }
}

fn minimal(payload: Payload<'_>) -> Result<String, BusError> {
    let text = match payload {
        Payload::Text(text) => text,
        Payload::Bytes(bytes) => Cow::Borrowed(
            str::from_utf8(bytes)
                .map_err(|error| JsonError { fault: JsonFault::Utf8, at: error.valid_up_to() })?,
        ),
    };
    match text {
        Cow::Borrowed(text) => Ok(minify(text)?.into_owned()),
        Cow::Owned(text) => {
            let small = match minify(&text)? {
                Cow::Borrowed(same) if same.len() == text.len() => None,
                small => Some(small.into_owned()),
            };
            Ok(small.unwrap_or(text))
        }
    }
}

fn label(
    given: Option<u32>,
    partitions: Option<u32>,
    computed: impl FnOnce(u32) -> u32,
) -> Result<Option<u32>, BusError> {
    let Some(given) = given else { return Ok(partitions.map(computed)) };
    let partitions = partitions.unwrap_or(PARTITIONS_MAX);
    if given < partitions { Ok(Some(given)) } else { Err(BusError::BadPartition { given, partitions }) }
}

/// Headers and sessions end up in lines of other protocols and of logs.
fn check_lines(meta: &EventMeta) -> Result<(), BusError> {
    let breaks = |text: &str| text.bytes().any(|byte| byte.is_ascii_control());
    let refuse = |what| Err(BusError::ControlCharacter { what });
    for (name, value) in meta.headers.iter().flatten() {
        if breaks(name) {
            return refuse("the name of a header".to_owned());
        }
        if breaks(value) {
            return refuse(format!("header `{name}`"));
        }
    }
    match &meta.sid {
        Some(sid) if breaks(sid) => refuse("`sid`".to_owned()),
        _ => Ok(()),
    }
}
