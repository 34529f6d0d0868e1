//! Handling each event once, with a store of the user's choice that remembers handled events; and publishing
//! because of events, each once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hyper::Method;
use promethean_model::{EventId, IgnorePoison};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::client::Client;
use crate::consume::{ConsumerHandle, HandlerError};
use crate::error::ClientError;
use crate::http::{HttpCall, HttpClient};
use crate::lease::TypedLease;
use crate::publish::EventToPublish;
use crate::subscribe::SubscribeBuilder;

/// How long a mark lives: 7 days.
const MARK_TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);
const MEMORY_MAX: usize = 100_000;

/// The name of a mark: an event, as one group handles it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MarkName {
    /// The topic of the event.
    pub topic: String,
    /// The group.
    pub group: String,
    /// The event.
    pub id: EventId,
}

/// Remembers handled events.
#[async_trait]
pub trait MarkStore: Send + Sync {
    /// Whether the event is marked.
    async fn seen(&self, name: &MarkName) -> Result<bool, HandlerError>;

    /// Marks the event.
    async fn mark(&self, name: &MarkName, ttl: Duration) -> Result<(), HandlerError>;

    /// Does the work of an event and marks it, or does nothing if the event is marked.
    ///
    /// Without it, the mark is written after the work, so a process that dies in between does the work again. A store
    /// that can do both in one transaction of its own makes the effect happen once.
    async fn once(
        &self,
        name: &MarkName,
        ttl: Duration,
        work: BoxFuture<'static, Result<(), HandlerError>>,
    ) -> Result<(), HandlerError> {
        if self.seen(name).await? {
            return Ok(());
        }
        work.await?;
        self.mark(name, ttl).await
    }
}

/// Marks on the server (`/dedupe`), which all members of the group share.
#[derive(Clone)]
pub struct ServerMarks {
    http: Arc<HttpClient>,
}

impl ServerMarks {
    /// Marks on the server of this client.
    pub fn new(client: &Client) -> Self {
        Self { http: Arc::clone(&client.shared.http) }
    }
}

#[async_trait]
impl MarkStore for ServerMarks {
    async fn seen(&self, name: &MarkName) -> Result<bool, HandlerError> {
        // An answer to HEAD could not say why it is refused.
        let call = HttpCall::get(&["dedupe", &name.topic, &name.group, &name.id.to_string()]);
        match self.http.send(call).await {
            Ok(answer) => {
                self.http.whole(answer).await?;
                Ok(true)
            }
            Err(error) if error.is("not_found") => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn mark(&self, name: &MarkName, ttl: Duration) -> Result<(), HandlerError> {
        let call = HttpCall::new(Method::PUT, &["dedupe", &name.topic, &name.group, &name.id.to_string()]);
        let answer = self.http.send(call.query("ttl_ms", ttl.as_millis())).await?;
        self.http.whole(answer).await?;
        Ok(())
    }
}

/// Marks in this process, for tests and for effects that live no longer than the process. Forgets the oldest.
#[derive(Debug)]
pub struct MemoryMarks {
    max: usize,
    marks: Mutex<RememberedMarks>,
}

#[derive(Debug, Default)]
struct RememberedMarks {
    ends: HashMap<MarkName, Instant>,
    order: VecDeque<MarkName>,
}

impl MemoryMarks {
    /// A store of at most `max` marks.
    pub fn new(max: usize) -> Self {
        Self { max: max.max(1), marks: Mutex::default() }
    }
}

impl Default for MemoryMarks {
    fn default() -> Self {
        Self::new(MEMORY_MAX)
    }
}

#[async_trait]
impl MarkStore for MemoryMarks {
    async fn seen(&self, name: &MarkName) -> Result<bool, HandlerError> {
        let marks = self.marks.lock().ignore_poison();
        Ok(marks.ends.get(name).is_some_and(|end| *end > Instant::now()))
    }

    async fn mark(&self, name: &MarkName, ttl: Duration) -> Result<(), HandlerError> {
        let mut marks = self.marks.lock().ignore_poison();
        if marks.ends.insert(name.clone(), Instant::now() + ttl).is_none() {
            marks.order.push_back(name.clone());
        }
        if marks.ends.len() > self.max
            && let Some(oldest) = marks.order.pop_front()
        {
            marks.ends.remove(&oldest);
        }
        Ok(())
    }
}

impl<T: DeserializeOwned + Send + 'static> SubscribeBuilder<T> {
    /// Handles each event of the group once: marked events are passed over, and an event is marked after its
    /// handler. If the process dies between the work and the mark, the work is done again; only a store whose
    /// [`once`](MarkStore::once) commits the work together with the mark excludes this.
    ///
    /// A handler whose lease is lost (the network was cut, or the process stood still) may run beside the handler of
    /// another member that got the event, because neither has marked it yet. Look at [`TypedLease::is_held`] before an
    /// effect that must not happen twice, or stop with [`TypedLease::lost`].
    pub async fn handle_once<S, H, Fut>(self, marks: S, handler: H) -> Result<ConsumerHandle, ClientError>
    where
        S: MarkStore + 'static,
        H: Fn(TypedLease<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let (marks, handler) = (Arc::new(marks), Arc::new(handler));
        self.handle(move |lease| {
            let (marks, handler) = (Arc::clone(&marks), Arc::clone(&handler));
            async move {
                let name = MarkName {
                    topic: lease.topic.as_str().to_owned(),
                    group: lease.group().to_owned(),
                    id: lease.id,
                };
                let work = async move { handler(lease).await }.boxed();
                marks.once(&name, MARK_TTL, work).await
            }
        })
        .await
    }

    /// Publishes events because of events, each exactly once. The events that `transform` returns for an event
    /// are published in one commit, with ids that are derived from that event, before the event is acked. If the
    /// event comes again, its products are recognised as duplicates (within the `dedupe_window` of their topics, a
    /// day by default). So `transform` must return the same products each time; other products are refused with
    /// `id_conflict`.
    pub async fn transform<F, Fut>(self, transform: F) -> Result<ConsumerHandle, ClientError>
    where
        T: Sync,
        F: Fn(&TypedLease<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<EventToPublish>, HandlerError>> + Send + 'static,
    {
        // The handler must not keep its own client alive.
        let client = self.client.weak();
        self.handle(move |lease| {
            let (products, client) = (transform(&lease), client.clone());
            async move {
                let products = products.await?;
                if products.is_empty() {
                    return Ok(());
                }
                let events = products.into_iter().zip(0..).map(|(event, n)| {
                    let event = if event.has_cause() { event } else { event.caused_by(lease.id) };
                    event.id(lease.produced_id(n))
                });
                let Some(client) = client.upgrade() else {
                    return Err(HandlerError::new("the client is closed"));
                };
                client.publish_many(events).await?;
                Ok(())
            }
        })
        .await
    }
}

/// The id of the `n`th event that a group publishes because of an event: the same at every delivery of that
/// event, and the same in every client and in the server.
pub fn produced_id(group: &str, topic: &str, id: &EventId, n: u32) -> EventId {
    let names = [group.as_bytes(), &[0], topic.as_bytes(), &[0]].concat();
    EventId::derive(b"produced", &[names.as_slice(), id.as_bytes(), &n.to_be_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Ids that the server and all clients derive.
    const GOLDEN: &str = include_str!("../../../fixtures/protocol/produced-ids.jsonl");

    #[test]
    fn produced_ids_are_the_golden_ones() {
        for line in GOLDEN.lines() {
            let golden: Value = serde_json::from_str(line).unwrap();
            let text = |name: &str| golden[name].as_str().unwrap();
            let (id, n) = (text("id").parse().unwrap(), golden["n"].as_u64().unwrap() as u32);
            let produced = produced_id(text("group"), text("topic"), &id, n).to_string();
            assert_eq!(produced, text("produced"), "{line}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn memory_marks_end_and_are_bounded() {
        let (store, second) = (MemoryMarks::new(2), Duration::from_secs(1));
        let name = |n: u8| MarkName {
            topic: "t".to_owned(),
            group: "g".to_owned(),
            id: EventId::from_bytes([n; 16]),
        };
        store.mark(&name(1), second).await.unwrap();
        assert!(store.seen(&name(1)).await.unwrap());
        tokio::time::advance(Duration::from_millis(1_001)).await;
        assert!(!store.seen(&name(1)).await.unwrap());
        for n in 1..=3 {
            store.mark(&name(n), second).await.unwrap();
        }
        let mut seen = Vec::new();
        for n in 1..=3 {
            seen.push(store.seen(&name(n)).await.unwrap());
        }
        assert_eq!(seen, [false, true, true]);
    }
}
