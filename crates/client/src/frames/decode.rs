//! Frames of the server. Unknown fields are ignored; an unknown `op` is an error.

use std::borrow::Cow;
use std::fmt;

use promethean_model::EventId;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::encode::FrameMark;
use crate::error::ClientError;
use crate::publish::AckDurability;

/// A frame of the server.
#[derive(Debug)]
pub(crate) enum ServerFrame<'a> {
    /// A request was done.
    Ok(Box<OkFields>),
    /// A request was refused, or a subscription ended.
    Err(Box<ErrFields>),
    /// Deliveries, one or several.
    Events(EventsFields<'a>),
    /// The partitions of a member changed.
    Rebalance(RebalanceFields<'a>),
}

/// The fields of every `OK`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct OkFields {
    pub(crate) corr: Mark,
    pub(crate) id: Option<EventId>,
    pub(crate) offset: Option<u64>,
    pub(crate) ts: Option<i64>,
    pub(crate) durability: Option<AckDurability>,
    pub(crate) partition: Option<u32>,
    pub(crate) duplicate: Option<bool>,
    pub(crate) count: Option<u64>,
    pub(crate) first_offset: Option<u64>,
    pub(crate) last_offset: Option<u64>,
    pub(crate) ids: Option<Vec<EventId>>,
    pub(crate) duplicates: Option<u64>,
    pub(crate) stale: Option<bool>,
    pub(crate) stale_ids: Option<Vec<EventId>>,
    pub(crate) from: Option<u64>,
    pub(crate) to: Option<u64>,
    pub(crate) replayed: Option<u64>,
    pub(crate) skipped: Option<u64>,
    pub(crate) applied: Option<bool>,
}

/// The fields of an `ERR`.
#[derive(Debug)]
pub(crate) struct ErrFields {
    pub(crate) corr: Mark,
    pub(crate) topic: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) error: ClientError,
}

/// The fields of an `EVENT` or `EVENTS`.
#[derive(Debug)]
pub(crate) struct EventsFields<'a> {
    pub(crate) corr: Mark,
    pub(crate) topic: Cow<'a, str>,
    pub(crate) group: Cow<'a, str>,
    pub(crate) events: Vec<DeliveryFields<'a>>,
}

/// One event with its lease.
#[derive(Debug, Deserialize)]
pub(crate) struct DeliveryFields<'a> {
    #[serde(borrow)]
    pub(crate) event: EventFields<'a>,
    pub(crate) ctx: LeaseContext,
}

/// The attempt and the deadline of a delivery.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct LeaseContext {
    pub(crate) attempt: u32,
    pub(crate) ack_deadline_ms: u64,
}

/// The fields of an event.
#[derive(Debug, Deserialize)]
pub(crate) struct EventFields<'a> {
    pub(crate) id: EventId,
    pub(crate) ts: i64,
    #[serde(borrow)]
    pub(crate) topic: Cow<'a, str>,
    pub(crate) offset: u64,
    #[serde(default)]
    pub(crate) key: Option<String>,
    #[serde(default)]
    pub(crate) partition: Option<u32>,
    #[serde(default)]
    pub(crate) headers: Option<std::collections::BTreeMap<String, String>>,
    #[serde(borrow)]
    pub(crate) payload: &'a RawValue,
    #[serde(default)]
    pub(crate) tags: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) caused_by: Option<Vec<EventId>>,
    #[serde(default)]
    pub(crate) sid: Option<String>,
}

/// The fields of a `REBALANCE`.
#[derive(Debug, Deserialize)]
pub(crate) struct RebalanceFields<'a> {
    #[serde(borrow)]
    pub(crate) topic: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) group: Cow<'a, str>,
    pub(crate) epoch: u64,
    #[serde(default)]
    pub(crate) assigned: Vec<u32>,
    #[serde(default)]
    pub(crate) revoked: Vec<u32>,
}

/// The `corr` of a frame: one of this client's marks, or none that it knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mark(pub(crate) Option<FrameMark>);

impl<'a> ServerFrame<'a> {
    /// Reads a frame.
    pub(crate) fn read(text: &'a str) -> Result<Self, ClientError> {
        // The server writes `op` first; any other order is read with one pass more.
        let op = match text.strip_prefix(r#"{"op":""#).and_then(|rest| rest.split_once('"')) {
            Some((op, _)) => Cow::Borrowed(op),
            None => op_of(text)?,
        };
        match &*op {
            "OK" => read_as(text).map(|fields| Self::Ok(Box::new(fields))),
            "ERR" => read_as(text).map(|fields: RawErr| Self::Err(Box::new(fields.into()))),
            "EVENT" => read_as(text).map(|fields: RawEvent<'a>| {
                let RawEvent { topic, group, event, ctx } = fields;
                Self::Events(EventsFields {
                    corr: Mark(None),
                    topic,
                    group,
                    events: vec![DeliveryFields { event, ctx }],
                })
            }),
            "EVENTS" => read_as(text).map(|fields: RawEvents<'a>| {
                let RawEvents { corr, topic, group, events } = fields;
                Self::Events(EventsFields { corr, topic, group, events })
            }),
            "REBALANCE" => read_as(text).map(Self::Rebalance),
            other => Err(unknown_op(other)),
        }
    }
}

/// The mark of a frame that cannot be read otherwise.
pub(crate) fn mark_of(text: &str) -> Mark {
    #[derive(Deserialize)]
    struct MarkField {
        #[serde(default)]
        corr: Mark,
    }
    serde_json::from_str::<MarkField>(text).map(|field| field.corr).unwrap_or_default()
}

fn unknown_op(op: &str) -> ClientError {
    let op: String = op.chars().take(40).collect();
    let message = format!("the server sent a frame with the unknown op `{op}`; use a newer client");
    ClientError::new("unknown_op", message)
}

fn op_of(text: &str) -> Result<Cow<'_, str>, ClientError> {
    #[derive(Deserialize)]
    struct OpField<'a> {
        #[serde(borrow)]
        op: Cow<'a, str>,
    }
    match serde_json::from_str::<OpField<'_>>(text) {
        Ok(OpField { op }) => Ok(op),
        Err(error) if error.is_data() => Err(unknown_op("")),
        Err(error) => Err(bad_json(text, error)),
    }
}

fn read_as<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, ClientError> {
    serde_json::from_str(text).map_err(|error| bad_json(text, error))
}

fn bad_json(text: &str, cause: serde_json::Error) -> ClientError {
    let start: String = text.chars().take(80).collect();
    let message = format!("the server sent a frame that cannot be read ({cause}): {start}");
    ClientError::new("bad_json", message).because(cause)
}

#[derive(Deserialize)]
struct RawEvent<'a> {
    #[serde(borrow)]
    topic: Cow<'a, str>,
    #[serde(borrow)]
    group: Cow<'a, str>,
    #[serde(borrow)]
    event: EventFields<'a>,
    ctx: LeaseContext,
}

#[derive(Deserialize)]
struct RawEvents<'a> {
    #[serde(default)]
    corr: Mark,
    #[serde(borrow)]
    topic: Cow<'a, str>,
    #[serde(borrow)]
    group: Cow<'a, str>,
    #[serde(borrow)]
    events: Vec<DeliveryFields<'a>>,
}

#[derive(Deserialize)]
struct RawErr {
    #[serde(default)]
    corr: Mark,
    code: Option<String>,
    msg: Option<String>,
    topic: Option<String>,
    group: Option<String>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

impl From<RawErr> for ErrFields {
    fn from(raw: RawErr) -> Self {
        let RawErr { corr, code, msg, topic, group, mut more } = raw;
        more.remove("op");
        let code = code.unwrap_or_else(|| "internal".to_owned());
        let msg = msg.unwrap_or_else(|| "the server gave no reason".to_owned());
        Self { corr, topic, group, error: ClientError::refusal(code, msg, more) }
    }
}

impl<'de> Deserialize<'de> for Mark {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MarkVisitor).map(Self)
    }
}

struct MarkVisitor;

impl<'de> Visitor<'de> for MarkVisitor {
    type Value = Option<FrameMark>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(FrameMark::Publish(number)))
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        let number = text.strip_prefix('r').and_then(|number| number.parse().ok());
        Ok(number.map(FrameMark::Request))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

/// The error of an answer that lacks what it must have.
pub(crate) fn incomplete(what: &str) -> ClientError {
    let error = serde_json::Error::custom(format!("no `{what}`"));
    ClientError::new(
        "bad_json",
        format!("the answer of the server lacks `{what}`; use a client of its version"),
    )
    .because(error)
}
