//! Frames that the server sends, written into a buffer.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::client::Corr;
use crate::id::EventId;
use crate::meta::EventMeta;
use crate::offset::Offset;

/// An event to send. Its payload is JSON text, which is passed through.
#[derive(Debug, Clone, Copy)]
pub struct EventView<'a> {
    /// Its id.
    pub id: &'a EventId,
    /// Its time.
    pub ts: i64,
    /// Its topic.
    pub topic: &'a str,
    /// Its offset.
    pub offset: Offset,
    /// Its key.
    pub key: Option<&'a str>,
    /// Its other fields.
    pub meta: &'a EventMeta,
    /// Its payload, as stored.
    pub payload: &'a [u8],
}

/// The attempt and the deadline of a delivery.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Context {
    /// The number of the attempt; 1 is the first.
    pub attempt: u32,
    /// How long the member may work on the event, from now.
    pub ack_deadline_ms: u64,
}

/// Writes replies to one frame.
#[derive(Debug)]
pub struct Reply<'a> {
    /// The `corr` of that frame, which the reply repeats.
    pub corr: Corr<'a>,
}

impl Reply<'_> {
    /// Writes `OK`.
    pub fn ok(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"op":"OK""#);
        self.end(out);
    }

    /// Writes `OK` with the fields of `more`, which must be a JSON object.
    pub fn ok_with(&self, out: &mut Vec<u8>, more: &impl Serialize) {
        out.extend_from_slice(br#"{"op":"OK""#);
        let at = out.len();
        json(out, more);
        // `{"a":1}` becomes `,"a":1`; an empty object leaves nothing.
        match out.get(at..) {
            Some(b"{}") => out.truncate(at),
            Some([b'{', .., b'}']) => {
                out.pop();
                if let Some(first) = out.get_mut(at) {
                    *first = b',';
                }
            }
            _ => out.truncate(at),
        }
        self.end(out);
    }

    /// Writes `ERR`.
    pub fn err(&self, out: &mut Vec<u8>, code: &str, message: &str, retry_after_ms: Option<u64>) {
        self.err_with(out, code, message, retry_after_ms, &Map::new());
    }

    /// Writes `ERR` with more fields.
    pub fn err_with(
        &self,
        out: &mut Vec<u8>,
        code: &str,
        message: &str,
        retry_after_ms: Option<u64>,
        more: &Map<String, Value>,
    ) {
        out.extend_from_slice(br#"{"op":"ERR","code":"#);
        json(out, code);
        out.extend_from_slice(br#","msg":"#);
        json(out, message);
        if let Some(ms) = retry_after_ms {
            out.extend_from_slice(br#","retry_after_ms":"#);
            json(out, &ms);
        }
        for (name, value) in more {
            out.push(b',');
            json(out, name);
            out.push(b':');
            json(out, value);
        }
        self.end(out);
    }

    fn end(&self, out: &mut Vec<u8>) {
        if let Some(corr) = self.corr {
            out.extend_from_slice(br#","corr":"#);
            out.extend_from_slice(corr.get().as_bytes());
        }
        out.push(b'}');
    }
}

/// Writes `EVENT`. `topic` is the subscribed topic or pattern; the event has its own topic.
pub fn event(out: &mut Vec<u8>, topic: &str, group: &str, event: &EventView<'_>, context: Context) {
    head(out, "EVENT", topic, group);
    out.extend_from_slice(br#","event":"#);
    event_json(out, event);
    out.extend_from_slice(br#","ctx":"#);
    json(out, &context);
    out.push(b'}');
}

/// Writes `EVENTS`: several deliveries in one frame. With `corr` it answers a `FETCH`.
pub fn events<'a>(
    out: &mut Vec<u8>,
    corr: Corr<'_>,
    topic: &str,
    group: &str,
    deliveries: impl Iterator<Item = (EventView<'a>, Context)>,
) {
    head(out, "EVENTS", topic, group);
    out.extend_from_slice(br#","events":["#);
    for (index, (event, context)) in deliveries.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(br#"{"event":"#);
        event_json(out, &event);
        out.extend_from_slice(br#","ctx":"#);
        json(out, &context);
        out.push(b'}');
    }
    out.push(b']');
    Reply { corr }.end(out);
}

/// Writes `REBALANCE`: the member's partitions after a rebalance.
pub fn rebalance(out: &mut Vec<u8>, topic: &str, group: &str, epoch: u64, assigned: &[u32], revoked: &[u32]) {
    head(out, "REBALANCE", topic, group);
    out.extend_from_slice(br#","epoch":"#);
    json(out, &epoch);
    out.extend_from_slice(br#","assigned":"#);
    json(out, assigned);
    out.extend_from_slice(br#","revoked":"#);
    json(out, revoked);
    out.push(b'}');
}

/// Writes an event as JSON, the same as `Event` serialises, without parsing its payload.
pub fn event_json(out: &mut Vec<u8>, event: &EventView<'_>) {
    let mut text = [0; EventId::TEXT_BYTES];
    out.extend_from_slice(br#"{"id":""#);
    out.extend_from_slice(event.id.encode_text(&mut text).as_bytes());
    out.extend_from_slice(br#"","ts":"#);
    json(out, &event.ts);
    out.extend_from_slice(br#","topic":"#);
    json(out, event.topic);
    out.extend_from_slice(br#","offset":"#);
    json(out, &event.offset);
    field(out, "key", event.key);
    field(out, "partition", event.meta.partition);
    field(out, "headers", event.meta.headers.as_ref());
    out.extend_from_slice(br#","payload":"#);
    out.extend_from_slice(event.payload);
    field(out, "tags", event.meta.tags.as_ref());
    field(out, "caused_by", event.meta.caused_by.as_ref());
    field(out, "sid", event.meta.sid.as_ref());
    out.push(b'}');
}

fn head(out: &mut Vec<u8>, op: &str, topic: &str, group: &str) {
    out.extend_from_slice(br#"{"op":""#);
    out.extend_from_slice(op.as_bytes());
    out.extend_from_slice(br#"","topic":"#);
    json(out, topic);
    out.extend_from_slice(br#","group":"#);
    json(out, group);
}

fn field<T: Serialize>(out: &mut Vec<u8>, name: &str, value: Option<T>) {
    if let Some(value) = value {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        json(out, &value);
    }
}

/// Writes texts, numbers and maps of texts, which can all be JSON.
fn json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let at = out.len();
    if serde_json::to_writer(&mut *out, value).is_err() {
        out.truncate(at);
        out.extend_from_slice(b"null");
    }
}

/// Makes a `corr` of text that was kept, so that a later reply can repeat it.
pub fn raw(text: &str) -> Option<&RawValue> {
    serde_json::from_str(text).ok()
}
