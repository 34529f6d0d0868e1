//! Subscribers of a server: their requests and their acks.

use std::time::Duration;

use anyhow::{Context, Result};

use super::plan::IN_FLIGHT;
use super::server_process::ServerProcess;
use crate::timing::{Epoch, Samples};
use crate::wire::events::{Scanner, is_ok};
use crate::wire::socket::{ClientSocket, put_text};

/// How a subscriber acks events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AckManner {
    /// One ack for each event.
    Each,
    /// Many events in a frame, and one ack for all of them.
    Batched,
    /// No acks: the server acks events when it has written them.
    None,
}

impl AckManner {
    pub(super) fn name(self) -> &'static str {
        match self {
            AckManner::Each => "each",
            AckManner::Batched => "batched",
            AckManner::None => "none",
        }
    }
}

/// The only member of a group of one topic.
#[derive(Debug)]
pub(super) struct Subscriber {
    socket: ClientSocket,
    topic: String,
    group: String,
    acks: AckManner,
    scanner: Scanner,
    /// The part of an ack before its ids.
    ack: Vec<u8>,
    /// Buffer for the next ack.
    text: Vec<u8>,
}

/// The end of the last ack, which asks for a reply; it comes when all acks are durable.
const LAST: &[u8] = br#","corr":"last"}"#;

impl Subscriber {
    /// Connects without subscribing.
    pub(super) async fn join(
        server: &ServerProcess,
        topic: &str,
        group: &str,
        acks: AckManner,
        payload_bytes: usize,
    ) -> Result<Subscriber> {
        let ids = if acks == AckManner::Batched { "ids" } else { "id" };
        let ack = format!(r#"{{"op":"ACK","topic":"{topic}","group":"{group}","{ids}":"#).into_bytes();
        let scanner = Scanner::new(payload_bytes);
        let (topic, group) = (topic.to_owned(), group.to_owned());
        Ok(Subscriber { socket: server.open().await?, topic, group, acks, scanner, ack, text: Vec::new() })
    }

    /// Subscribes from the latest event on and waits for the reply.
    pub(super) async fn listen(&mut self) -> Result<()> {
        let wanted = self.wanted("latest");
        self.socket.request(&wanted).await?;
        Ok(())
    }

    fn wanted(&self, from: &str) -> String {
        let batch = self.acks == AckManner::Batched;
        let opts = serde_json::json!({
            "from": from, "maxInFlight": IN_FLIGHT, "batchSize": IN_FLIGHT, "manualAck": self.acks != AckManner::None,
        });
        serde_json::json!({
            "op": "SUBSCRIBE", "topic": self.topic, "group": self.group, "batch": batch, "opts": opts, "corr": "s",
        })
        .to_string()
    }

    /// Subscribes from the first event on, acks `events` events, and waits until all acks are durable.
    pub(super) async fn drain(&mut self, events: u64) -> Result<()> {
        let wanted = self.wanted("earliest");
        self.socket.text(&wanted);
        self.socket.flush().await?;
        let (mut left, mut replies) = (events, 0);
        // One reply to the subscription, one to the last ack.
        while left > 0 || replies < 2 {
            self.socket.fill().await?;
            while let Some(text) = self.socket.input.next_text()? {
                if is_ok(text)? {
                    replies += 1;
                    continue;
                }
                let ids = self.scanner.ids(text);
                let acks =
                    AckWriter { out: &mut self.socket.output, text: &mut self.text, before: &self.ack };
                left = acks.write(ids, left, self.acks).context("more events than were published")?;
            }
            self.socket.flush().await?;
        }
        Ok(())
    }

    /// Receives and acks `events` events; returns how long each took to arrive.
    pub(super) async fn receive(&mut self, epoch: Epoch, events: u64) -> Result<Samples> {
        let (mut left, mut samples) = (events, Samples::default());
        while left > 0 {
            self.socket.fill().await?;
            while let Some(text) = self.socket.input.next_text()? {
                if is_ok(text)? {
                    continue;
                }
                let stamp = self.scanner.stamp(text).context("an event without its time")?;
                samples.push(Duration::from_micros(epoch.stamp().saturating_sub(stamp)));
                if self.acks == AckManner::None {
                    left = left.saturating_sub(1);
                    continue;
                }
                let ids = self.scanner.ids(text);
                let acks =
                    AckWriter { out: &mut self.socket.output, text: &mut self.text, before: &self.ack };
                left = acks.write(ids, left, self.acks).context("more events than were published")?;
            }
            self.socket.flush().await?;
        }
        Ok(samples)
    }
}

/// Writes the acks of one message.
struct AckWriter<'a> {
    out: &'a mut Vec<u8>,
    text: &'a mut Vec<u8>,
    before: &'a [u8],
}

impl AckWriter<'_> {
    /// Returns how many events are left; `None` if there were too many. The ack of the last event asks for a
    /// reply.
    fn write<'i>(self, ids: impl Iterator<Item = &'i [u8]>, left: u64, acks: AckManner) -> Option<u64> {
        let AckWriter { out, text, before } = self;
        let mut left = left;
        let begin = |text: &mut Vec<u8>| {
            text.clear();
            text.extend_from_slice(before);
        };
        let end = |left: u64| if left == 0 { LAST } else { &b"}"[..] };
        if acks == AckManner::Batched {
            begin(text);
            let mut between = b'[';
            for id in ids {
                left = left.checked_sub(1)?;
                text.push(between);
                put_id(text, id);
                between = b',';
            }
            text.push(b']');
            text.extend_from_slice(end(left));
            put_text(out, text);
        } else {
            for id in ids {
                left = left.checked_sub(1)?;
                begin(text);
                put_id(text, id);
                text.extend_from_slice(end(left));
                put_text(out, text);
            }
        }
        Some(left)
    }
}

fn put_id(text: &mut Vec<u8>, id: &[u8]) {
    text.push(b'"');
    text.extend_from_slice(id);
    text.push(b'"');
}
