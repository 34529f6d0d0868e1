//! Publishing: frames leave without waiting for earlier answers, and are sent again with the same ids until the
//! server has answered.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use promethean_model::wire::PublishOpts;
use promethean_model::{EventId, Offset};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::answers::AnswerSlot;
use crate::client::Client;
use crate::error::ClientError;
use crate::frames::decode::incomplete;
use crate::frames::encode;
use crate::outbox::{FrameToPublish, PublishAnswer};
use crate::shared::ClientShared;

/// What an acknowledged event survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AckDurability {
    /// A power cut.
    Fsync,
    /// A crash of the server.
    Os,
    /// Nothing: the server keeps events in memory.
    Memory,
    /// The loss of a minority of the servers of the database.
    Majority,
    /// A crash of the server, if the first server of the database survives.
    W1,
    /// A word that this client does not know.
    #[serde(other)]
    Unknown,
}

/// The answer to a publish: the event is as durable as `durability` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishReceipt {
    /// The id of the event.
    pub id: EventId,
    /// The offset of the event in its topic.
    pub offset: u64,
    /// The time of the event, in milliseconds since 1970.
    pub ts: i64,
    /// What the event survives.
    pub durability: AckDurability,
    /// The label for routing, if the topic has partitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    /// Whether the event was there already.
    #[serde(default, rename = "duplicate", skip_serializing_if = "std::ops::Not::not")]
    pub is_duplicate: bool,
}

/// The answer to a batch: all its events are there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchReceipt {
    /// How many events the batch has.
    pub count: u64,
    /// The offset of the first event.
    pub first_offset: u64,
    /// The offset of the last event.
    pub last_offset: u64,
    /// The ids of the events, in order.
    pub ids: Vec<EventId>,
    /// How many of the events were there already.
    pub duplicates: u64,
    /// What the events survive.
    pub durability: AckDurability,
}

/// An event to publish: topic, payload and options.
#[derive(Debug, Clone)]
pub struct EventToPublish {
    pub(crate) topic: String,
    /// The JSON of the payload, or why it has none.
    payload: Result<String, ClientError>,
    opts: PublishOpts<'static>,
}

impl EventToPublish {
    /// An event of a topic. `None` and `()` are tombstones.
    pub fn new<T: Serialize + ?Sized>(topic: impl Into<String>, payload: &T) -> Self {
        let payload = encode::payload_json(payload);
        Self { topic: topic.into(), payload, opts: PublishOpts::default() }
    }

    /// Sets the id. Without it the client mints one.
    #[must_use]
    pub fn id(mut self, id: EventId) -> Self {
        self.opts.id = Some(id);
        self
    }

    /// Sets what the event is about.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.opts.key = Some(key.into().into());
        self
    }

    /// Sets the time, in milliseconds since 1970. Without it the server's time is taken.
    #[must_use]
    pub fn ts(mut self, ts: i64) -> Self {
        self.opts.ts = Some(ts);
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.opts.headers.get_or_insert_with(BTreeMap::new).insert(name.into(), value.into());
        self
    }

    /// Adds a tag.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.opts.tags.get_or_insert_with(Vec::new).push(tag.into());
        self
    }

    /// Adds an event that led to this one.
    #[must_use]
    pub fn caused_by(mut self, id: EventId) -> Self {
        self.opts.caused_by.get_or_insert_with(Vec::new).push(id);
        self
    }

    /// Sets the publisher's session.
    #[must_use]
    pub fn sid(mut self, sid: impl Into<String>) -> Self {
        self.opts.sid = Some(sid.into());
        self
    }

    /// Sets the label for routing.
    #[must_use]
    pub fn partition(mut self, partition: u32) -> Self {
        self.opts.partition = Some(partition);
        self
    }

    /// Publishes only if the topic's next offset is this one; otherwise the publish fails with `conflict`.
    #[must_use]
    pub fn expected_offset(mut self, offset: u64) -> Self {
        self.opts.expected_offset = Some(Offset(offset));
        self
    }

    /// Publishes only if the key's latest event has this offset; `None`: if the key has no event.
    #[must_use]
    pub fn expected_key_offset(mut self, offset: Option<u64>) -> Self {
        self.opts.expected_key_offset = Some(offset.map(Offset));
        self
    }

    pub(crate) fn has_cause(&self) -> bool {
        self.opts.caused_by.is_some()
    }

    /// The id and the JSON of the payload.
    fn ready(&mut self, shared: &ClientShared) -> Result<(EventId, &str), ClientError> {
        let id = *self.opts.id.get_or_insert_with(|| shared.mint());
        let payload = self.payload.as_deref().map_err(|error| error.clone())?;
        Ok((id, payload))
    }

    fn frame(mut self, shared: &ClientShared, overdue_at: Instant) -> Result<FrameToPublish, ClientError> {
        let (id, _) = self.ready(shared)?;
        let text = encode::publish(&self.topic, self.payload.as_deref().unwrap_or_default(), &self.opts);
        Ok(FrameToPublish { text, id, overdue_at })
    }
}

/// A publish of one event. Await it, or [`send`](PublishBuilder::send) it and await its answer later.
#[derive(Debug)]
#[must_use = "the event is published when this is awaited or sent"]
pub struct PublishBuilder {
    client: Client,
    event: EventToPublish,
    timeout: Duration,
}

macro_rules! event_options {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),+);)+) => {
        impl PublishBuilder {
            $(
                $(#[$doc])*
                pub fn $name(mut self, $($arg: $type),+) -> Self {
                    self.event = self.event.$name($($arg),+);
                    self
                }
            )+
        }
    };
}

event_options! {
    /// Sets the id. Without it the client mints one.
    id(id: EventId);
    /// Sets what the event is about.
    key(key: impl Into<String>);
    /// Sets the time, in milliseconds since 1970. Without it the server's time is taken.
    ts(ts: i64);
    /// Adds a header.
    header(name: impl Into<String>, value: impl Into<String>);
    /// Adds a tag.
    tag(tag: impl Into<String>);
    /// Adds an event that led to this one.
    caused_by(id: EventId);
    /// Sets the publisher's session.
    sid(sid: impl Into<String>);
    /// Sets the label for routing.
    partition(partition: u32);
    /// Publishes only if the topic's next offset is this one; otherwise the publish fails with `conflict`.
    expected_offset(offset: u64);
    /// Publishes only if the key's latest event has this offset; `None`: if the key has no event.
    expected_key_offset(offset: Option<u64>);
}

impl PublishBuilder {
    pub(crate) fn new(client: Client, event: EventToPublish) -> Self {
        let timeout = client.shared.options.publish_timeout;
        Self { client, event, timeout }
    }

    /// Sets how long the publish is tried (60 s); waiting for a place in the queue counts.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Queues the event now; the returned future is its answer. Fails with `outbox_full` if too many publishes
    /// wait. The event is published even if the future is dropped.
    pub fn send(self) -> Result<PendingPublish, ClientError> {
        let Self { client, event, timeout } = self;
        let frame = event.frame(&client.shared, Instant::now() + timeout)?;
        Ok(PendingPublish(push(&client, frame)?))
    }
}

impl IntoFuture for PublishBuilder {
    type Output = Result<PublishReceipt, ClientError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { client, event, timeout } = self;
        let overdue_at = Instant::now() + timeout;
        Box::pin(async move {
            let frame = event.frame(&client.shared, overdue_at)?;
            PendingPublish(push_in_time(&client, frame).await?).await
        })
    }
}

/// The answer to a publish that was sent. Dropping it does not take the publish back.
#[derive(Debug)]
#[must_use = "only the answer says that the event is durable"]
pub struct PendingPublish(AwaitedAnswer);

impl Future for PendingPublish {
    type Output = Result<PublishReceipt, ClientError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|answer| match answer? {
            PublishAnswer::One(receipt) => Ok(receipt),
            PublishAnswer::Many(_) => Err(incomplete("id")),
        })
    }
}

/// The place where an answer is awaited.
pub(crate) struct AwaitedAnswer {
    shared: Arc<ClientShared>,
    slot: AnswerSlot,
}

impl std::fmt::Debug for AwaitedAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("AwaitedAnswer").field(&self.slot).finish()
    }
}

impl Future for AwaitedAnswer {
    type Output = Result<PublishAnswer, ClientError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut core = self.shared.core();
        match core.outbox.answers.poll(self.slot, cx.waker()) {
            Poll::Ready(Some(answer)) => Poll::Ready(answer),
            Poll::Ready(None) => Poll::Ready(Err(core.over_error())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for AwaitedAnswer {
    fn drop(&mut self) {
        self.shared.core().outbox.answers.close(self.slot);
    }
}

impl ClientShared {
    /// Waits until a publish would be sent at once, or the client is over.
    pub(crate) async fn room(&self) {
        std::future::poll_fn(|cx| {
            let mut core = self.core();
            if core.is_closing || core.is_over() || core.outbox.has_room() {
                return Poll::Ready(());
            }
            core.outbox.watch(cx.waker());
            Poll::Pending
        })
        .await;
    }

    /// Waits until every publish has its answer.
    pub(crate) async fn drained(&self) {
        std::future::poll_fn(|cx| {
            let mut core = self.core();
            if core.is_over() || core.outbox.pending() == 0 {
                return Poll::Ready(());
            }
            core.outbox.watch(cx.waker());
            Poll::Pending
        })
        .await;
    }
}

fn push(client: &Client, frame: FrameToPublish) -> Result<AwaitedAnswer, ClientError> {
    client.start();
    let shared = &client.shared;
    let slot = {
        let mut core = shared.core();
        if core.is_closing || core.is_over() {
            return Err(core.over_error());
        }
        core.outbox.push(frame)?
    };
    shared.connection.wake();
    Ok(AwaitedAnswer { shared: Arc::clone(shared), slot })
}

/// Queues a frame; waits for a place if there is none, until the publish is overdue.
async fn push_in_time(client: &Client, frame: FrameToPublish) -> Result<AwaitedAnswer, ClientError> {
    client.start();
    let shared = &client.shared;
    let (id, overdue_at) = (frame.id, frame.overdue_at);
    let mut frame = Some(frame);
    let pushing = std::future::poll_fn(|cx| {
        let mut core = shared.core();
        if core.is_closing || core.is_over() {
            return Poll::Ready(Err(core.over_error()));
        }
        if core.outbox.is_full() {
            core.outbox.watch(cx.waker());
            return Poll::Pending;
        }
        let frame = frame.take().ok_or_else(|| core.over_error());
        Poll::Ready(frame.and_then(|frame| core.outbox.push(frame)))
    });
    let slot = tokio::time::timeout_at(overdue_at, pushing).await.unwrap_or_else(|_| {
        let message = "the publish was given up: the queue of publishes stayed full; it was not sent";
        Err(ClientError::new("timeout", message).with_side_effects(false).with_detail("id", id.to_string()))
    })?;
    shared.connection.wake();
    Ok(AwaitedAnswer { shared: Arc::clone(shared), slot })
}

/// Publishes several events in one commit.
pub(crate) async fn publish_many(
    client: &Client,
    mut events: Vec<EventToPublish>,
    timeout: Duration,
) -> Result<BatchReceipt, ClientError> {
    let overdue_at = Instant::now() + timeout;
    let mut first = None;
    for event in &mut events {
        let (id, _) = event.ready(&client.shared)?;
        first.get_or_insert(id);
    }
    let Some(id) = first else {
        return Err(ClientError::new("bad_request", "the batch has no events; give at least one"));
    };
    let items = events.iter().map(|event| {
        (event.topic.as_str(), event.payload.as_deref().unwrap_or_default(), event.opts.clone())
    });
    let text = encode::publish_many(items, None);
    match push_in_time(client, FrameToPublish { text, id, overdue_at }).await?.await? {
        PublishAnswer::Many(receipt) => Ok(receipt),
        PublishAnswer::One(_) => Err(incomplete("count")),
    }
}
