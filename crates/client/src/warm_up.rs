//! Starting with the snapshots of a topic, and going on with its events, without a gap.

use std::collections::HashMap;

use futures_util::stream::{StreamExt, TryStreamExt};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::consume::{ConsumerHandle, HandlerError};
use crate::error::ClientError;
use crate::event::TypedEvent;
use crate::http::reader::EventStream;
use crate::lease::TypedLease;
use crate::start_from::StartFrom;
use crate::subscribe::SubscribeBuilder;

const PAGE: usize = 10_000;

/// The state of a key as of its snapshot.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedState<T> {
    /// The state of the key.
    pub payload: T,
    /// The time of the last event in it, in milliseconds since 1970.
    pub ts: i64,
    /// The offset after the last event in it.
    pub offset: u64,
}

/// The state of every key of a topic as of its snapshots, and the events after them.
#[derive(Debug)]
pub struct LoadedSnapshots<T> {
    /// The state of each key that has one.
    pub state: HashMap<String, LoadedState<T>>,
    /// The offset to go on from.
    pub offset: u64,
    client: Client,
    topic: String,
    /// Where the snapshot of each key ends.
    ends: HashMap<String, u64>,
}

/// The payload of a snapshot.
#[derive(Deserialize)]
struct SnapshotPayload<T> {
    key: String,
    payload: Option<T>,
    ts: i64,
}

impl Client {
    /// Loads the snapshots of a topic from `<topic>.snapshot`, which a compactor writes. Without snapshots the state
    /// is empty and all events of the topic follow.
    pub async fn warm_up<T: DeserializeOwned + Send + 'static>(
        &self,
        topic: &str,
    ) -> Result<LoadedSnapshots<T>, ClientError> {
        self.warm_up_from(topic, &format!("{topic}.snapshot")).await
    }

    /// As [`warm_up`](Client::warm_up), with snapshots from another topic.
    pub async fn warm_up_from<T: DeserializeOwned + Send + 'static>(
        &self,
        topic: &str,
        snapshots: &str,
    ) -> Result<LoadedSnapshots<T>, ClientError> {
        let mut loaded = LoadedSnapshots {
            state: HashMap::new(),
            offset: 0,
            client: self.clone(),
            topic: topic.to_owned(),
            ends: HashMap::new(),
        };
        let mut events = self.reader().replay(snapshots, StartFrom::Earliest, PAGE);
        loop {
            match events.try_next().await {
                Ok(Some(event)) => loaded.load(event),
                Ok(None) => return Ok(loaded),
                // The compactor has written no snapshot yet: every event is after the snapshots.
                Err(error) if error.is("unknown_topic") => return Ok(loaded),
                Err(error) => return Err(error),
            }
        }
    }
}

impl<T: DeserializeOwned + Send + 'static> LoadedSnapshots<T> {
    /// Whether the state has this event already.
    pub fn contains<P>(&self, event: &TypedEvent<P>) -> bool {
        event.key.as_ref().and_then(|key| self.ends.get(key)).is_some_and(|end| event.offset < *end)
    }

    /// The events after the snapshots, as they come, without a group: for a view of the whole state.
    pub fn follow<P: DeserializeOwned + Send + 'static>(&self) -> EventStream<P> {
        let ends = self.ends.clone();
        let events = self.client.reader().follow(self.topic.as_str(), StartFrom::Offset(self.offset));
        events
            .try_filter(move |event: &TypedEvent<P>| {
                let end = event.key.as_ref().and_then(|key| ends.get(key));
                let is_new = end.is_none_or(|end| event.offset >= *end);
                std::future::ready(is_new)
            })
            .boxed()
    }

    /// Handles the events after the snapshots as a new group; `options` are those of the subscription.
    pub async fn handle<P, H, Fut>(
        &self,
        group: &str,
        options: impl FnOnce(SubscribeBuilder<P>) -> SubscribeBuilder<P>,
        handler: H,
    ) -> Result<ConsumerHandle, ClientError>
    where
        P: DeserializeOwned + Send + 'static,
        H: Fn(TypedLease<P>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let ends = self.ends.clone();
        let subscription = options(self.client.subscribe(self.topic.as_str(), group));
        subscription
            .from(StartFrom::Offset(self.offset))
            .handle(move |lease: TypedLease<P>| {
                let end = lease.key.as_ref().and_then(|key| ends.get(key));
                let work = end.is_none_or(|end| lease.offset >= *end).then(|| handler(lease));
                async move {
                    match work {
                        Some(work) => work.await,
                        None => Ok(()),
                    }
                }
            })
            .await
    }

    fn load(&mut self, event: TypedEvent<SnapshotPayload<T>>) {
        let header = |name: &str| event.headers.get(&format!("x-snapshot-{name}"));
        let Some(offset) = header("offset").and_then(|offset| offset.parse::<u64>().ok()) else { return };
        // Only the last event of a key matters to the reducer `latest`; other reducers need every event.
        let is_latest = header("by").is_some_and(|by| by.split(';').next() == Some("latest"));
        let floor = header("floor").and_then(|floor| floor.parse().ok()).unwrap_or(0);
        self.offset = self.offset.max(if is_latest { offset } else { floor });
        let SnapshotPayload { key, payload, ts } = event.payload;
        self.ends.insert(key.clone(), offset);
        match payload {
            Some(payload) => self.state.insert(key, LoadedState { payload, ts, offset }),
            None => self.state.remove(&key),
        };
    }
}
