//! PUBLISH: events that were read in one turn go to the bus together.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use promethean_bus::publish::Ready;
use promethean_bus::publish::{Publish, Published};
use promethean_bus::{BusError, Publisher};
use promethean_model::TopicName;
use promethean_model::wire::{Corr, PublishItem};
use serde_json::value::RawValue;

use super::auth::ClientAuth;
use super::connection::SavedCorr;
use super::output::Output;
use crate::auth::Access;
use crate::events::{self, PublishedBatch};
use crate::refusal::Refusal;

/// Events handed to the bus and not answered, at most; above that nothing more is read.
const UNANSWERED_MAX: usize = 16_384;
/// As [`UNANSWERED_MAX`], in bytes of frames.
const UNANSWERED_BYTES_MAX: usize = 32 << 20;
/// Events handed to the bus at once.
const BURST_MAX: usize = 1_000;

type Commit = Pin<Box<dyn Future<Output = PublishOutcome> + Send>>;

/// The results of the frames of one [`Commit`].
enum PublishOutcome {
    Each(Vec<SavedCorr>, Vec<Result<Published, BusError>>),
    Batch(SavedCorr, Result<Vec<Published>, BusError>),
    Refused(SavedCorr, Box<Refusal>),
}

/// The events that a connection publishes.
pub(super) struct Publishes {
    publisher: Publisher,
    /// The topic published to last; the client may publish to it.
    last_topic: Option<TopicName>,
    /// Events that were read and not handed to the bus yet.
    burst: Vec<Ready>,
    burst_corrs: Vec<SavedCorr>,
    burst_bytes: usize,
    /// Replies are written in the order of the frames.
    commits: FuturesOrdered<Commit>,
    /// The events and bytes of each commit.
    sizes: VecDeque<(usize, usize)>,
    /// The events of all commits.
    unanswered: usize,
    /// The bytes of all commits and of the burst.
    unanswered_bytes: usize,
}

impl Publishes {
    pub(super) fn new(publisher: Publisher) -> Self {
        Self {
            publisher,
            last_topic: None,
            burst: Vec::new(),
            burst_corrs: Vec::new(),
            burst_bytes: 0,
            commits: FuturesOrdered::new(),
            sizes: VecDeque::new(),
            unanswered: 0,
            unanswered_bytes: 0,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.unanswered < UNANSWERED_MAX && self.unanswered_bytes < UNANSWERED_BYTES_MAX
    }

    /// Bytes of frames that are not answered.
    pub(super) fn unanswered_bytes(&self) -> usize {
        self.unanswered_bytes
    }

    pub(super) fn is_idle(&self) -> bool {
        self.commits.is_empty() && self.burst.is_empty()
    }

    /// Forgets what the client may do, because its identity changed.
    pub(super) fn forget_access(&mut self) {
        self.last_topic = None;
    }

    /// Publishes one event. It goes to the bus together with the events that are read right after it.
    pub(super) fn publish(
        &mut self,
        auth: &ClientAuth,
        corr: Corr<'_>,
        item: PublishItem<'_>,
        bytes: usize,
    ) -> Result<(), Refusal> {
        let event = self.event(auth, item)?;
        if let Err(refusal) = auth.pay_for(std::slice::from_ref(&event), bytes) {
            self.refuse_in_order(refusal, corr, bytes);
            return Ok(());
        }
        self.unanswered_bytes += bytes;
        self.burst_bytes += bytes;
        self.burst.push(self.publisher.check(event));
        self.burst_corrs.push(corr.map(RawValue::to_owned));
        if self.burst.len() >= BURST_MAX {
            self.hand_over();
        }
        Ok(())
    }

    /// Publishes events that are committed together.
    pub(super) fn publish_many(
        &mut self,
        auth: &ClientAuth,
        corr: Corr<'_>,
        items: Vec<PublishItem<'_>>,
        bytes: usize,
    ) -> Result<(), Refusal> {
        if items.is_empty() {
            return Err(Refusal::bad_request("`events` is empty; give at least one event"));
        }
        let events: Vec<_> =
            items.into_iter().map(|item| self.event(auth, item)).collect::<Result<_, _>>()?;
        if let Err(refusal) = auth.pay_for(&events, bytes) {
            self.refuse_in_order(refusal, corr, bytes);
            return Ok(());
        }
        self.hand_over();
        let (count, corr) = (events.len(), corr.map(RawValue::to_owned));
        let committed = self.publisher.commit_batch(events);
        self.unanswered_bytes += bytes;
        self.push((count, bytes), Box::pin(async move { PublishOutcome::Batch(corr, committed.await) }));
        Ok(())
    }

    fn event<'a>(&mut self, auth: &ClientAuth, item: PublishItem<'a>) -> Result<Publish<'a>, Refusal> {
        let topic = match &self.last_topic {
            Some(last) if last.as_str() == &*item.topic => last.clone(),
            _ => self.allowed_topic(auth, &item.topic)?,
        };
        Ok(events::publish(topic, item.payload, item.opts))
    }

    fn allowed_topic(&mut self, auth: &ClientAuth, topic: &str) -> Result<TopicName, Refusal> {
        let topic: TopicName = topic.parse().map_err(BusError::from)?;
        if !auth.may(&Access::Publish(&topic)) {
            return Err(auth.forbidden_to_publish(topic));
        }
        self.last_topic = Some(topic.clone());
        Ok(topic)
    }

    /// Refuses a frame after the events before it are answered.
    fn refuse_in_order(&mut self, refusal: Refusal, corr: Corr<'_>, bytes: usize) {
        self.hand_over();
        let (corr, refusal) = (corr.map(RawValue::to_owned), Box::new(refusal));
        self.unanswered_bytes += bytes;
        self.push((1, bytes), Box::pin(std::future::ready(PublishOutcome::Refused(corr, refusal))));
    }

    /// Hands the burst to the bus.
    pub(super) fn hand_over(&mut self) {
        if self.burst.is_empty() {
            return;
        }
        let corrs = std::mem::take(&mut self.burst_corrs);
        let committed = self.publisher.commit_each(std::mem::take(&mut self.burst));
        let bytes = std::mem::take(&mut self.burst_bytes);
        self.push(
            (corrs.len(), bytes),
            Box::pin(async move { PublishOutcome::Each(corrs, committed.await) }),
        );
    }

    fn push(&mut self, size: (usize, usize), commit: Commit) {
        self.sizes.push_back(size);
        self.unanswered += size.0;
        self.commits.push_back(commit);
    }

    /// Writes the replies of finished commits; whether there were any.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, out: &mut Output) -> bool {
        let mut any = false;
        while let Poll::Ready(Some(outcome)) = self.commits.poll_next_unpin(cx) {
            any = true;
            let (events, bytes) = self.sizes.pop_front().unwrap_or_default();
            self.unanswered -= events;
            self.unanswered_bytes -= bytes;
            outcome.write(out);
        }
        any
    }
}

impl PublishOutcome {
    fn write(self, out: &mut Output) {
        match self {
            Self::Each(corrs, results) => {
                for (corr, result) in corrs.iter().zip(results) {
                    match result {
                        Ok(published) => out.ok_with(corr.as_deref(), &published),
                        Err(error) => out.refuse(corr.as_deref(), &error.into()),
                    }
                }
            }
            Self::Batch(corr, Ok(published)) => {
                out.ok_with(corr.as_deref(), &PublishedBatch::of(&published));
            }
            Self::Batch(corr, Err(error)) => out.refuse(corr.as_deref(), &error.into()),
            Self::Refused(corr, refusal) => out.refuse(corr.as_deref(), &refusal),
        }
    }
}
