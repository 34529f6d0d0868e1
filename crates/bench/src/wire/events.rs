//! The bytes of publishes, and of the messages that come back.

use anyhow::{Result, bail};
use memchr::memmem::Finder;

use super::socket::put_text;

const STAMP: &str = r#""t0us":"#;
const STAMP_DIGITS: usize = 16;
const ANY_STAMP: u64 = 1_000_000_000_000_000;
const NUMBER: &str = r#""seq":"#;
const NUMBER_DIGITS: usize = 10;
/// The first number; all numbers have the same count of digits.
const FIRST_NUMBER: u64 = 1_000_000_000;
const PAD: &str = r#","pad":""#;
const EVENT_ID: &[u8] = br#""event":{"id":""#;
/// Least number of bytes of an event before its payload.
const BEFORE_PAYLOAD: usize = 64;

/// A JSON text of `bytes` bytes, or of the least possible number: the time it is due, its number, and text
/// that does not repeat itself.
pub(crate) fn payload(bytes: usize) -> String {
    let mut text = format!("{{{STAMP}{ANY_STAMP},{NUMBER}{FIRST_NUMBER}{PAD}");
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    while text.len() + 2 < bytes {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        text.push(char::from(b'A' + (random % 26) as u8));
    }
    text.push_str("\"}");
    text
}

/// A frame that is sent many times with other numbers in it.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    frame: Vec<u8>,
    stamp: Option<usize>,
    number: Option<usize>,
    /// Events in the frame.
    pub(crate) events: u64,
}

impl Template {
    /// A frame that publishes one event.
    pub(crate) fn one(topic: &str, payload: &str) -> Template {
        let text = format!(r#"{{"op":"PUBLISH","topic":"{topic}","payload":{payload},"corr":"p"}}"#);
        Template::new(&text, 1)
    }

    /// A frame that publishes many events in one commit.
    pub(crate) fn batch(topic: &str, payload: &str, events: usize) -> Template {
        let event = format!(r#"{{"payload":{payload}}}"#);
        let events_text = vec![event; events].join(",");
        let text = format!(r#"{{"op":"PUBLISH","topic":"{topic}","events":[{events_text}],"corr":"p"}}"#);
        Template { stamp: None, number: None, ..Template::new(&text, events as u64) }
    }

    fn new(text: &str, events: u64) -> Template {
        let mut frame = Vec::new();
        put_text(&mut frame, text.as_bytes());
        let behind = |name: &str| Some(memchr::memmem::find(&frame, name.as_bytes())? + name.len());
        let (stamp, number) = (behind(STAMP), behind(NUMBER));
        Template { stamp, number, frame, events }
    }

    /// Appends the frame with this time and number.
    pub(crate) fn put(&self, out: &mut Vec<u8>, stamp: u64, number: u64) {
        let start = out.len();
        out.extend_from_slice(&self.frame);
        for (at, value, digits) in
            [(self.stamp, stamp, STAMP_DIGITS), (self.number, FIRST_NUMBER + number, NUMBER_DIGITS)]
        {
            if let Some(field) = at.and_then(|at| out.get_mut(start + at..start + at + digits)) {
                write_digits(field, value);
            }
        }
    }
}

fn write_digits(field: &mut [u8], mut value: u64) {
    for digit in field.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

/// Whether a message is an `OK`; an `ERR` is returned as an error.
pub(crate) fn is_ok(text: &[u8]) -> Result<bool> {
    if text.starts_with(br#"{"op":"OK""#) {
        return Ok(true);
    }
    if text.starts_with(br#"{"op":"ERR""#) {
        bail!("the server answered {}", String::from_utf8_lossy(text));
    }
    Ok(false)
}

/// Finds events in messages.
#[derive(Debug, Clone)]
pub(crate) struct Scanner {
    ids: Finder<'static>,
    stamps: Finder<'static>,
    /// Bytes after an id that cannot hold the next one.
    skip: usize,
}

impl Scanner {
    /// A scanner for payloads of `payload_bytes` bytes.
    pub(crate) fn new(payload_bytes: usize) -> Scanner {
        let skip = BEFORE_PAYLOAD + payload_bytes;
        Scanner { ids: Finder::new(EVENT_ID), stamps: Finder::new(STAMP.as_bytes()), skip }
    }

    /// The ids of the events in an `EVENT` or `EVENTS`.
    pub(crate) fn ids<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = text;
        std::iter::from_fn(move || {
            let from = self.ids.find(rest)? + EVENT_ID.len();
            let id = rest.get(from..)?;
            let id = id.get(..memchr::memchr(b'"', id)?)?;
            rest = rest.get(from + self.skip..).unwrap_or_default();
            Some(id)
        })
    }

    /// The time an event was due.
    pub(crate) fn stamp(&self, text: &[u8]) -> Option<u64> {
        let from = self.stamps.find(text)? + STAMP.len();
        let digits = text.get(from..from + STAMP_DIGITS)?;
        Some(digits.iter().fold(0, |value, digit| value * 10 + u64::from(digit.wrapping_sub(b'0'))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_have_the_length_asked_for_and_are_json() {
        for bytes in [60, 100, 1024] {
            let payload = payload(bytes);
            assert_eq!(payload.len(), bytes);
            let value: serde_json::Value = serde_json::from_str(&payload).unwrap();
            assert_eq!(value["t0us"], 1_000_000_000_000_000_u64);
            assert_eq!(value["seq"], 1_000_000_000);
        }
    }

    #[test]
    fn frames_carry_their_numbers() {
        let template = Template::one("t", &payload(100));
        let mut out = Vec::new();
        template.put(&mut out, 1_000_000_000_000_123, 7);
        let text = out.get(8..).unwrap();
        let value: serde_json::Value = serde_json::from_slice(text).unwrap();
        assert_eq!(value["payload"]["t0us"], 1_000_000_000_000_123_u64);
        assert_eq!(value["payload"]["seq"], 1_000_000_007);
        assert_eq!(Scanner::new(100).stamp(&out), Some(1_000_000_000_000_123));
    }

    #[test]
    fn events_are_found_one_by_one_and_in_batches() {
        let event = |id: &str| {
            let fields = r#""ts":1700000000000,"topic":"t","offset":0"#;
            format!(r#"{{"event":{{"id":"{id}",{fields},"payload":{}}},"ctx":{{}}}}"#, payload(100))
        };
        let id = "0b7a34f2-9a53-4f8e-8f0a-3a1c0c7d5e11";
        let text = format!(r#"{{"op":"EVENTS","events":[{},{}]}}"#, event(id), event(id));
        let scanner = Scanner::new(100);
        assert_eq!(scanner.ids(text.as_bytes()).collect::<Vec<_>>(), [id.as_bytes(); 2]);
        assert!(is_ok(br#"{"op":"OK","corr":1}"#).unwrap());
        assert!(!is_ok(text.as_bytes()).unwrap());
        assert!(is_ok(br#"{"op":"ERR","code":"x"}"#).is_err());
    }
}
