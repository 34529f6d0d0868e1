//! Events that came together go to the bus together.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use promethean_bus::publish::Ready;
use promethean_bus::publish::{Publish, Published};
use promethean_bus::{BusError, Publisher};
use promethean_model::wire::{Corr, Reply};
use serde_json::value::RawValue;

use super::connection::Kept;
use super::frames::Frames;
use crate::events::PublishedBatch;
use crate::refusal::Refusal;

/// Events under way at a time; beyond, nothing more is read.
const UNDER_WAY_MAX: usize = 16_384;
/// As [`UNDER_WAY_MAX`], in bytes of frames.
const BYTES_UNDER_WAY_MAX: usize = 32 << 20;
/// Events handed over at once.
const BURST_MAX: usize = 1_000;

type Done = Box<dyn Future<Output = Outcome> + Send>;

enum Outcome {
    Each(Vec<Kept>, Vec<Result<Published, BusError>>),
    Batch(Kept, Result<Vec<Published>, BusError>),
    Refused(Kept, Box<Refusal>),
}

/// What a connection publishes.
pub(super) struct Publishing {
    publisher: Publisher,
    /// Read, but not handed over.
    burst: Vec<Ready>,
    corrs: Vec<Kept>,
    under_way: FuturesOrdered<Pin<Done>>,
    /// How many events and bytes each of them has.
    sizes: VecDeque<(usize, usize)>,
    events_under_way: usize,
    /// Those of the burst too.
    bytes_under_way: usize,
    burst_bytes: usize,
}

impl Publishing {
    pub(super) fn new(publisher: Publisher) -> Self {
        Self {
            publisher,
            burst: Vec::new(),
            corrs: Vec::new(),
            under_way: FuturesOrdered::new(),
            sizes: VecDeque::new(),
            events_under_way: 0,
            bytes_under_way: 0,
            burst_bytes: 0,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.events_under_way < UNDER_WAY_MAX && self.bytes_under_way < BYTES_UNDER_WAY_MAX
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty() && self.burst.is_empty()
    }

    /// One event. It is handed over with those that come right after it.
    pub(super) fn one(&mut self, event: Publish<'_>, corr: Corr<'_>, bytes: usize) {
        self.bytes_under_way += bytes;
        self.burst_bytes += bytes;
        self.burst.push(self.publisher.check(event));
        self.corrs.push(corr.map(RawValue::to_owned));
        if self.burst.len() >= BURST_MAX {
            self.hand_over();
        }
    }

    /// Events that are committed together.
    pub(super) fn batch(&mut self, events: Vec<Publish<'_>>, corr: Corr<'_>, bytes: usize) {
        self.hand_over();
        self.bytes_under_way += bytes;
        let (count, corr) = (events.len(), corr.map(RawValue::to_owned));
        let committed = self.publisher.commit_batch(events);
        self.push((count, bytes), Box::pin(async move { Outcome::Batch(corr, committed.await) }));
    }

    /// What is not to be published. That is said after what came before.
    pub(super) fn refused(&mut self, refusal: Refusal, corr: Corr<'_>, bytes: usize) {
        self.hand_over();
        self.bytes_under_way += bytes;
        let (corr, refusal) = (corr.map(RawValue::to_owned), Box::new(refusal));
        self.push((1, bytes), Box::pin(std::future::ready(Outcome::Refused(corr, refusal))));
    }

    /// Nothing comes right after.
    pub(super) fn hand_over(&mut self) {
        if self.burst.is_empty() {
            return;
        }
        let corrs = std::mem::take(&mut self.corrs);
        let committed = self.publisher.commit_each(std::mem::take(&mut self.burst));
        let bytes = std::mem::take(&mut self.burst_bytes);
        self.push((corrs.len(), bytes), Box::pin(async move { Outcome::Each(corrs, committed.await) }));
    }

    fn push(&mut self, size: (usize, usize), done: Pin<Done>) {
        self.sizes.push_back(size);
        self.events_under_way += size.0;
        self.under_way.push_back(done);
    }

    /// Writes the replies of what is committed; whether there were any.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, out: &mut Frames) -> bool {
        let mut any = false;
        while let Poll::Ready(Some(outcome)) = self.under_way.poll_next_unpin(cx) {
            any = true;
            let (events, bytes) = self.sizes.pop_front().unwrap_or_default();
            self.events_under_way -= events;
            self.bytes_under_way -= bytes;
            match outcome {
                Outcome::Each(corrs, results) => {
                    for (corr, result) in corrs.iter().zip(results) {
                        let reply = Reply { corr: corr.as_deref() };
                        match result {
                            Ok(published) => out.add(|buffer| reply.ok_with(buffer, &published)),
                            Err(error) => refuse(out, &reply, &error.into()),
                        }
                    }
                }
                Outcome::Refused(corr, refusal) => {
                    refuse(out, &Reply { corr: corr.as_deref() }, &refusal);
                }
                Outcome::Batch(corr, result) => {
                    let reply = Reply { corr: corr.as_deref() };
                    match result {
                        Ok(published) => {
                            out.add(|buffer| reply.ok_with(buffer, &PublishedBatch::of(&published)))
                        }
                        Err(error) => refuse(out, &reply, &error.into()),
                    }
                }
            }
        }
        any
    }
}

pub(super) fn refuse(out: &mut Frames, reply: &Reply<'_>, refusal: &Refusal) {
    let Refusal { code, message, retry_after_ms, more, .. } = refusal;
    out.add(|buffer| reply.err_with(buffer, code, message, *retry_after_ms, more));
}
