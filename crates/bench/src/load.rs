//! The events that benchmarks publish.

use std::sync::Arc;

use anyhow::{Context, Result};
use promethean_log::{Log, LogBatch, NewEvent, NewId, Topic};
use promethean_model::{Clock, Durability, IdMint, SystemClock, TopicName};

/// Bytes of a record before its key.
const RECORD_HEADER_BYTES: usize = 56;
const KEY_BYTES: usize = 12;
/// Most events in a batch that prepares a measurement.
const PREPARED_BATCH: usize = 500;

/// What publishers publish, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) publishers: usize,
    /// Unacknowledged batches of each publisher.
    pub(crate) outstanding: usize,
    pub(crate) batch_events: usize,
    /// Whether a publisher fills its window in one call, as events that are accepted or refused one by one.
    /// Then `outstanding` counts events.
    pub(crate) one_call: bool,
    /// Events of all publishers together.
    pub(crate) events: u64,
    /// Bytes of a whole record.
    pub(crate) event_bytes: usize,
    /// Number of distinct keys, used in turn.
    pub(crate) keys: u64,
    pub(crate) durability: Durability,
    /// Whether the publisher gives the ids, so that the log checks for duplicates.
    pub(crate) given_ids: bool,
}

impl Load {
    /// A load of one publisher.
    pub(crate) fn small(events: u64) -> Load {
        Load {
            publishers: 1,
            outstanding: 1,
            batch_events: 1,
            one_call: true,
            events,
            event_bytes: 200,
            keys: 1,
            durability: Durability::Fsync,
            given_ids: false,
        }
    }

    /// A JSON payload that makes a record of `event_bytes`.
    pub(crate) fn payload(&self) -> String {
        let payload_bytes = self.event_bytes.saturating_sub(RECORD_HEADER_BYTES + KEY_BYTES).max(2);
        format!("\"{}\"", "p".repeat(payload_bytes - 2))
    }

    /// The number of events of one publisher.
    pub(crate) fn share_of(&self, publisher: usize) -> u64 {
        let (publishers, number) = (self.publishers as u64, publisher as u64);
        self.events / publishers + u64::from(number < self.events % publishers)
    }
}

/// Makes the events of one publisher.
#[derive(Debug)]
pub(crate) struct EventMaker<'a> {
    topics: &'a [Topic],
    load: Load,
    payload: Vec<u8>,
    mint: IdMint,
    clock: SystemClock,
    /// Number of the next event; a publisher takes every n-th number.
    next: u64,
}

impl<'a> EventMaker<'a> {
    pub(crate) fn new(topics: &'a [Topic], load: Load, publisher: usize) -> Result<EventMaker<'a>> {
        let payload = load.payload().into_bytes();
        let (mint, clock) = (IdMint::new()?, SystemClock::new());
        Ok(EventMaker { topics, load, payload, mint, clock, next: publisher as u64 })
    }

    /// A batch of the next `count` events.
    pub(crate) fn batch(&mut self, count: usize) -> Result<LogBatch> {
        let mut batch = if self.load.one_call { LogBatch::each() } else { LogBatch::new() };
        batch.reserve(count, count * self.load.event_bytes);
        for _ in 0..count {
            let number = self.next;
            self.next += self.load.publishers as u64;
            let topic = self.topics.get((number % self.topics.len() as u64) as usize).context("no topics")?;
            let id = self.mint.mint(u64::try_from(self.clock.wall_ms()).unwrap_or(0));
            let id = if self.load.given_ids { NewId::Given(id) } else { NewId::Minted(id) };
            let key = key(number % self.load.keys);
            let (key, payload) = (Some(&key[..]), &self.payload[..]);
            batch.push(topic, NewEvent { id, ts: None, key, meta: &[], payload, tombstone: false })?;
        }
        Ok(batch)
    }
}

/// `k` and the number in eleven digits.
pub(crate) fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [b'0'; KEY_BYTES];
    let mut rest = number;
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key[0] = b'k';
    key
}

/// The topics `bench.NAME.0` and up. Each gets one event, so that all of them exist before anything is timed.
pub(crate) fn topics(log: &Log, name: &str, count: usize, load: Load) -> Result<Arc<[Topic]>> {
    let mut topics = Vec::with_capacity(count);
    for number in 0..count {
        let name: TopicName = format!("bench.{name}.{number}").parse()?;
        topics.push(log.topic_or_create(&name)?);
    }
    let mut maker = EventMaker::new(&topics, Load { publishers: 1, ..load }, 0)?;
    let mut left = count;
    while left > 0 {
        let now = left.min(PREPARED_BATCH);
        log.append(maker.batch(now)?, Durability::Fsync)?;
        left -= now;
    }
    Ok(topics.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinct_and_of_one_length() {
        assert_eq!(&key(0), b"k00000000000");
        assert_eq!(&key(12_345), b"k00000012345");
    }
}
