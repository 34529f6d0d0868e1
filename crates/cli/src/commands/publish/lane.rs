//! Batches on their way to the server: several at a time, answered in order.

use std::collections::VecDeque;

use anyhow::Result;
use futures_util::future::{BoxFuture, FutureExt};
use promethean_client::{BatchReceipt, Client, ClientError};

use super::PreparedEvent;

/// Batches that are sent and not answered, at most.
const IN_FLIGHT: usize = 16;
/// Refused events that are named; more are only counted.
const NAMED_MAX: u64 = 20;

/// What became of the events so far.
#[derive(Debug, Default)]
pub(in crate::commands) struct LaneCounts {
    pub(in crate::commands) published: u64,
    pub(in crate::commands) refused: u64,
    pub(in crate::commands) duplicates: u64,
    pub(in crate::commands) last_offset: Option<u64>,
    /// Every event up to this line is published, or refused and passed over.
    pub(in crate::commands) line: u64,
}

/// The batches that have no answer yet.
pub(in crate::commands) struct PublishLane {
    client: Client,
    keep_going: bool,
    flying: VecDeque<FlyingBatch>,
    /// How many events were sent.
    pub(in crate::commands) sent: u64,
    pub(in crate::commands) counts: LaneCounts,
}

struct FlyingBatch {
    events: Vec<PreparedEvent>,
    answer: BoxFuture<'static, Result<BatchReceipt, ClientError>>,
}

impl PublishLane {
    pub(in crate::commands) fn new(client: Client, keep_going: bool) -> Self {
        Self { client, keep_going, flying: VecDeque::new(), sent: 0, counts: LaneCounts::default() }
    }

    /// Sends a batch; waits for an earlier answer if too many are under way.
    pub(in crate::commands) async fn send(&mut self, events: Vec<PreparedEvent>) -> Result<()> {
        self.sent += events.len() as u64;
        if events.is_empty() {
            return Ok(());
        }
        let (client, batch) =
            (self.client.clone(), events.iter().map(|one| one.event.clone()).collect::<Vec<_>>());
        let mut answer = async move { client.publish_many(batch).await }.boxed();
        // The first poll queues the batch, so batches leave in the order of their lines.
        match (&mut answer).now_or_never() {
            Some(done) => self.settle(events, done).await?,
            None => self.flying.push_back(FlyingBatch { events, answer }),
        }
        while let Some(done) = self.flying.front_mut().and_then(|first| (&mut first.answer).now_or_never()) {
            self.settle_first(done).await?;
        }
        while self.flying.len() >= IN_FLIGHT {
            self.wait_first().await?;
        }
        Ok(())
    }

    /// Waits for all answers.
    pub(in crate::commands) async fn finish(&mut self) -> Result<()> {
        while !self.flying.is_empty() {
            self.wait_first().await?;
        }
        Ok(())
    }

    /// Whether an event was refused after which no more are wanted.
    pub(in crate::commands) fn is_stopped(&self) -> bool {
        self.counts.refused > 0 && !self.keep_going
    }

    /// Counts and names an event that is not published.
    pub(in crate::commands) fn refused(&mut self, line: u64, why: &str) {
        self.counts.refused += 1;
        if self.counts.refused <= NAMED_MAX {
            eprintln!("promethean: event {line} is refused: {why}");
        }
    }

    async fn wait_first(&mut self) -> Result<()> {
        let Some(first) = self.flying.front_mut() else { return Ok(()) };
        let done = (&mut first.answer).await;
        self.settle_first(done).await
    }

    async fn settle_first(&mut self, done: Result<BatchReceipt, ClientError>) -> Result<()> {
        let Some(first) = self.flying.pop_front() else { return Ok(()) };
        self.settle(first.events, done).await
    }

    async fn settle(
        &mut self,
        events: Vec<PreparedEvent>,
        done: Result<BatchReceipt, ClientError>,
    ) -> Result<()> {
        let last = events.last().map_or(0, |event| event.line);
        match done {
            Ok(receipt) => {
                self.counts.published += receipt.count - receipt.duplicates;
                self.counts.duplicates += receipt.duplicates;
                self.counts.last_offset = self.counts.last_offset.max(Some(receipt.last_offset));
            }
            Err(error) if is_about_an_event(&error) => self.one_by_one(events).await?,
            Err(error) => return Err(error.into()),
        }
        // After a refusal, the events behind it are not published.
        if !self.is_stopped() {
            self.counts.line = last;
        }
        Ok(())
    }

    /// Publishes the events of a refused batch by themselves, to find the ones that are refused.
    async fn one_by_one(&mut self, events: Vec<PreparedEvent>) -> Result<()> {
        for PreparedEvent { line, event } in events {
            match self.client.publish_event(event).await {
                Ok(receipt) => {
                    self.counts.published += u64::from(!receipt.is_duplicate);
                    self.counts.duplicates += u64::from(receipt.is_duplicate);
                    self.counts.last_offset = self.counts.last_offset.max(Some(receipt.offset));
                }
                Err(error) if is_about_an_event(&error) => {
                    self.refused(line, &format!("{error} ({})", error.code()));
                    if self.is_stopped() {
                        return Ok(());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Whether the server refused what an event has, so that other events may pass.
fn is_about_an_event(error: &ClientError) -> bool {
    let is_about_all =
        ["unauthorized", "bad_token", "forbidden", "bad_name", "reserved_name", "client_closed"];
    error.has_no_side_effects() && !error.is_retryable() && !is_about_all.contains(&error.code())
}
