//! Frames that clients send.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;

use super::op::{Op, OpNames};
use super::opts::{PublishOpts, SeekOpts, SubscribeOpts};
use crate::json::minify;
use crate::plain::json_reason;

/// The client's own mark on a frame, which the reply repeats: the text of any JSON value.
pub type Corr<'a> = Option<&'a RawValue>;

/// The longest `corr`, in bytes.
const CORR_BYTES_MAX: usize = 256;

/// A frame of a client. Names in it are not parsed yet, so that a bad name is answered as such and not as bad
/// JSON.
#[derive(Debug, Clone)]
pub enum ClientFrame<'a> {
    /// Tells the server who the client is.
    Auth {
        /// Its token, if it has one.
        token: Option<Cow<'a, str>>,
    },
    /// Publishes one event.
    Publish(PublishItem<'a>),
    /// Publishes several events, committed together.
    PublishMany(Vec<PublishItem<'a>>),
    /// Starts a subscription.
    Subscribe {
        /// A topic or pattern.
        topic: Cow<'a, str>,
        /// The group.
        group: Cow<'a, str>,
        /// Whether deliveries come as `EVENTS`.
        batch: bool,
        /// Options of group and member.
        opts: Box<SubscribeOpts<'a>>,
    },
    /// Ends a subscription.
    Unsubscribe(FrameTarget<'a>),
    /// Finishes deliveries of these events.
    Ack(FrameTarget<'a>, Vec<Cow<'a, str>>),
    /// Gives events back, to be delivered again.
    Nack {
        /// The subscription.
        target: FrameTarget<'a>,
        /// The events.
        ids: Vec<Cow<'a, str>>,
        /// The least delay before the next delivery.
        delay_ms: Option<u64>,
        /// Why: a text, or the JSON text of another value.
        reason: Option<Cow<'a, str>>,
    },
    /// Extends the leases of events.
    Modack {
        /// The subscription.
        target: FrameTarget<'a>,
        /// The events.
        ids: Vec<Cow<'a, str>>,
        /// The new time to the deadline, counted from now.
        extend_ms: Option<u64>,
    },
    /// Stops deliveries for now.
    Pause(FrameTarget<'a>),
    /// Starts deliveries again after a pause.
    Resume(FrameTarget<'a>),
    /// Asks for events, in a subscription that pulls.
    Fetch {
        /// The subscription.
        target: FrameTarget<'a>,
        /// The most events to send.
        max: Option<usize>,
        /// The longest wait for the first event.
        wait_ms: Option<u64>,
    },
    /// Moves the group's cursor on a topic.
    Seek(FrameTarget<'a>, SeekOpts<'a>),
}

/// A subscription, by topic or pattern and group.
#[derive(Debug, Clone)]
pub struct FrameTarget<'a> {
    /// The topic or pattern.
    pub topic: Cow<'a, str>,
    /// The group.
    pub group: Cow<'a, str>,
}

/// One event to publish.
#[derive(Debug, Clone)]
pub struct PublishItem<'a> {
    /// Its topic.
    pub topic: Cow<'a, str>,
    /// Its payload, as it was sent.
    pub payload: &'a RawValue,
    /// Its options.
    pub opts: PublishOpts<'a>,
}

/// Why a frame was not understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FrameError {
    /// It is not JSON.
    #[error("the frame cannot be read: {0}; send one JSON object")]
    BadJson(String),
    /// It is JSON, but not a frame of the protocol.
    #[error("{0}")]
    BadRequest(String),
    /// Its `op` is unknown.
    #[error("unknown op `{0}`; use {OpNames}")]
    UnknownOp(String),
}

impl FrameError {
    /// The stable error code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::BadJson(_) => "bad_json",
            Self::BadRequest(_) => "bad_request",
            Self::UnknownOp(_) => "unknown_op",
        }
    }
}

/// The fields of all frames. A frame ignores the fields of other frames and unknown fields: clients of later
/// versions may send more.
#[derive(Deserialize)]
struct FrameFields<'a> {
    #[serde(borrow)]
    op: Cow<'a, str>,
    #[serde(borrow)]
    corr: Corr<'a>,
    #[serde(borrow)]
    token: Option<Cow<'a, str>>,
    #[serde(borrow)]
    topic: Option<Cow<'a, str>>,
    #[serde(borrow)]
    group: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "given")]
    payload: Option<&'a RawValue>,
    #[serde(borrow)]
    events: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    opts: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    ids: Option<Vec<Cow<'a, str>>>,
    delay_ms: Option<u64>,
    #[serde(borrow)]
    reason: Option<&'a RawValue>,
    extend_ms: Option<u64>,
    batch: Option<bool>,
    max: Option<usize>,
    wait_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ItemFields<'a> {
    #[serde(borrow)]
    topic: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "given")]
    payload: Option<&'a RawValue>,
    #[serde(borrow)]
    opts: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct CorrField<'a> {
    #[serde(borrow)]
    corr: Corr<'a>,
}

impl<'a> ClientFrame<'a> {
    /// Reads a frame and its `corr`. A wrong frame still gives its `corr`, if that can be read.
    pub fn read(text: &'a str) -> (Corr<'a>, Result<Self, FrameError>) {
        if let Err(error) = object(text) {
            // `bad_json` is only for text that is not JSON at all.
            let is_json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
            let error = if is_json { FrameError::BadRequest } else { FrameError::BadJson }(error);
            return (None, Err(error));
        }
        match serde_json::from_str::<FrameFields<'a>>(text) {
            Ok(fields) => {
                let corr = fields.corr;
                if corr.is_some_and(|corr| corr.get().len() > CORR_BYTES_MAX) {
                    let error = format!("`corr` is longer than {CORR_BYTES_MAX} bytes; send a shorter one");
                    return (None, Err(FrameError::BadRequest(error)));
                }
                if corr.is_some_and(|corr| !is_echoed(corr)) {
                    let error =
                        "`corr` is not JSON that every client can read; send a text or a number".to_owned();
                    return (None, Err(FrameError::BadRequest(error)));
                }
                (corr, Self::of(fields))
            }
            Err(error) => (corr_of(text), Err(unread(&error))),
        }
    }

    /// The op of this frame.
    pub const fn op(&self) -> Op {
        match self {
            Self::Auth { .. } => Op::Auth,
            Self::Publish(_) | Self::PublishMany(_) => Op::Publish,
            Self::Subscribe { .. } => Op::Subscribe,
            Self::Unsubscribe(_) => Op::Unsubscribe,
            Self::Ack(..) => Op::Ack,
            Self::Nack { .. } => Op::Nack,
            Self::Modack { .. } => Op::Modack,
            Self::Pause(_) => Op::Pause,
            Self::Resume(_) => Op::Resume,
            Self::Fetch { .. } => Op::Fetch,
            Self::Seek(..) => Op::Seek,
        }
    }

    fn of(fields: FrameFields<'a>) -> Result<Self, FrameError> {
        let Some(op) = Op::from_name(&fields.op) else {
            return Err(FrameError::UnknownOp(fields.op.chars().take(40).collect()));
        };
        match op {
            Op::Auth => Ok(Self::Auth { token: fields.token }),
            Op::Publish => publish(fields),
            Op::Subscribe => {
                let opts = options(fields.opts)?;
                let batch = fields.batch.unwrap_or(false);
                let FrameTarget { topic, group } = target(fields.topic, fields.group)?;
                Ok(Self::Subscribe { topic, group, batch, opts: Box::new(opts) })
            }
            Op::Unsubscribe => Ok(Self::Unsubscribe(target(fields.topic, fields.group)?)),
            Op::Ack => Ok(Self::Ack(target(fields.topic, fields.group)?, ids(fields.id, fields.ids)?)),
            Op::Nack => Ok(Self::Nack {
                target: target(fields.topic, fields.group)?,
                ids: ids(fields.id, fields.ids)?,
                delay_ms: fields.delay_ms,
                reason: fields.reason.map(said),
            }),
            Op::Modack => Ok(Self::Modack {
                target: target(fields.topic, fields.group)?,
                ids: ids(fields.id, fields.ids)?,
                extend_ms: fields.extend_ms,
            }),
            Op::Pause => Ok(Self::Pause(target(fields.topic, fields.group)?)),
            Op::Resume => Ok(Self::Resume(target(fields.topic, fields.group)?)),
            Op::Fetch => Ok(Self::Fetch {
                target: target(fields.topic, fields.group)?,
                max: fields.max,
                wait_ms: fields.wait_ms,
            }),
            Op::Seek => Ok(Self::Seek(target(fields.topic, fields.group)?, options(fields.opts)?)),
        }
    }
}

fn publish<'a>(fields: FrameFields<'a>) -> Result<ClientFrame<'a>, FrameError> {
    let Some(events) = fields.events else {
        let topic = fields.topic.ok_or_else(|| missing("topic"))?;
        let payload = fields.payload.ok_or_else(|| missing("payload"))?;
        return Ok(ClientFrame::Publish(PublishItem { topic, payload, opts: options(fields.opts)? }));
    };
    if fields.payload.is_some() || fields.opts.is_some() {
        let error = "give either `events`, or `payload` and `opts`, not both".to_owned();
        return Err(FrameError::BadRequest(error));
    }
    let item = |event: &'a RawValue| {
        let event: ItemFields<'a> = read_object("events", event.get())?;
        let topic = event.topic.or_else(|| fields.topic.clone()).ok_or_else(|| missing("topic"))?;
        let payload = event.payload.ok_or_else(|| missing("payload"))?;
        Ok(PublishItem { topic, payload, opts: options(event.opts)? })
    };
    events.into_iter().map(item).collect::<Result<_, _>>().map(ClientFrame::PublishMany)
}

/// The text of a reason. A value that is no text is taken as its JSON.
fn said(reason: &RawValue) -> Cow<'_, str> {
    match serde_json::from_str::<String>(reason.get()) {
        Ok(text) => Cow::Owned(text),
        Err(_) => Cow::Borrowed(reason.get()),
    }
}

fn target<'a>(
    topic: Option<Cow<'a, str>>,
    group: Option<Cow<'a, str>>,
) -> Result<FrameTarget<'a>, FrameError> {
    Ok(FrameTarget {
        topic: topic.ok_or_else(|| missing("topic"))?,
        group: group.ok_or_else(|| missing("group"))?,
    })
}

fn ids<'a>(
    id: Option<Cow<'a, str>>,
    ids: Option<Vec<Cow<'a, str>>>,
) -> Result<Vec<Cow<'a, str>>, FrameError> {
    match (id, ids) {
        (Some(id), None) => Ok(vec![id]),
        (None, Some(ids)) => Ok(ids),
        (None, None) => Err(missing("id")),
        (Some(_), Some(_)) => Err(FrameError::BadRequest("give either `id` or `ids`, not both".to_owned())),
    }
}

fn options<'a, T: Default + Deserialize<'a>>(opts: Option<&'a RawValue>) -> Result<T, FrameError> {
    match opts {
        None => Ok(T::default()),
        Some(opts) if opts.get() == "null" => Ok(T::default()),
        Some(opts) => read_object("opts", opts.get()),
    }
}

fn read_object<'a, T: Deserialize<'a>>(field: &str, text: &'a str) -> Result<T, FrameError> {
    let wrong = |error: String| FrameError::BadRequest(format!("`{field}`: {error}"));
    object(text).map_err(wrong)?;
    serde_json::from_str(text).map_err(|error| wrong(json_reason(&error)))
}

/// Refuses all but objects: serde would read a list as an object whose fields come in order.
fn object(text: &str) -> Result<(), String> {
    match text.bytes().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => Ok(()),
        _ => Err("it must be a JSON object, `{...}`".to_owned()),
    }
}

/// Reads a field that is present: a payload of `null` is a tombstone, not an absent payload.
fn given<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

fn missing(field: &str) -> FrameError {
    FrameError::BadRequest(format!("`{field}` is missing; add it"))
}

fn unread(error: &serde_json::Error) -> FrameError {
    if error.is_data() {
        FrameError::BadRequest(json_reason(error))
    } else {
        FrameError::BadJson(json_reason(error))
    }
}

/// The `corr` of a wrong frame, if it can be read.
fn corr_of(text: &str) -> Corr<'_> {
    let head = serde_json::from_str::<CorrField<'_>>(text).ok()?;
    head.corr.filter(|corr| corr.get().len() <= CORR_BYTES_MAX && is_echoed(corr))
}

/// Whether a reply may contain this `corr`. A lone surrogate or a huge number would make the reply unreadable to
/// most clients.
fn is_echoed(corr: &RawValue) -> bool {
    let text = corr.get();
    let is_plain_text = text.starts_with('"') && !text.contains('\\');
    is_plain_text || minify(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_corr_that_clients_cannot_read_is_not_echoed() {
        for corr in [r#""\ud800""#, "1e999", r#"{"a":1,"a":2}"#, r#"["\udc00"]"#] {
            for op in ["AUTH", "NONE"] {
                let text = format!(r#"{{"op":"{op}","corr":{corr}}}"#);
                let (echoed, frame) = ClientFrame::read(&text);
                assert!(echoed.is_none() && frame.is_err(), "{text}");
            }
        }
        for corr in [r#""plain""#, r#""\ud83e\udd80 \n""#, "7", "-1.5e3", "null", r#"{"a":[1]}"#] {
            let text = format!(r#"{{"op":"AUTH","corr":{corr}}}"#);
            let (echoed, frame) = ClientFrame::read(&text);
            assert!(frame.is_ok(), "{text}");
            assert_eq!(echoed.map_or("null", RawValue::get), corr);
        }
    }
}
