//! The client: one connection with its publishes and subscriptions.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::address::ServerAddress;
use crate::builder::ClientBuilder;
use crate::connection;
use crate::consume::check_not_handling;
use crate::core::ConnectionState;
use crate::error::ClientError;
use crate::http::HttpCall;
use crate::http::admin::Admin;
use crate::http::backups::BackupReader;
use crate::http::reader::TopicReader;
use crate::http::state::StateReader;
use crate::publish::{self, BatchReceipt, EventToPublish, PublishBuilder};
use crate::shared::ClientShared;
use crate::subscribe::SubscribeBuilder;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// A client of one server. It connects when it is first used, and again whenever the connection is lost. Clones
/// are the same client; when the last one is dropped, the client ends without waiting for anything.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<ClientShared>,
    guard: Arc<ClientGuard>,
}

/// Ends the client with its last handle.
struct ClientGuard {
    shared: Arc<ClientShared>,
}

impl Drop for ClientGuard {
    fn drop(&mut self) {
        self.shared.end(None);
    }
}

impl Client {
    /// Creates a client for a URL such as `ws://127.0.0.1:8090`; `wss`, `http` and `https` work too.
    pub fn new(url: &str) -> Result<Self, ClientError> {
        Self::builder(url).build()
    }

    /// Creates a client with a token or other options.
    pub fn builder(url: &str) -> ClientBuilder {
        ClientBuilder::new(url)
    }

    pub(crate) fn from_shared(shared: ClientShared) -> Self {
        let shared = Arc::new(shared);
        Self { guard: Arc::new(ClientGuard { shared: Arc::clone(&shared) }), shared }
    }

    /// The address of the server.
    pub fn address(&self) -> &ServerAddress {
        &self.shared.dialer.address
    }

    /// Where the connection stands.
    pub fn state(&self) -> ConnectionState {
        self.shared.core().phase
    }

    /// Follows the state of the connection.
    pub fn watch_state(&self) -> tokio::sync::watch::Receiver<ConnectionState> {
        self.shared.state.subscribe()
    }

    /// How many publishes have no answer yet.
    pub fn pending_publishes(&self) -> usize {
        self.shared.core().outbox.pending()
    }

    /// Waits until the client is connected and its token is accepted. Calling it is optional; it shows mistakes
    /// early. After `unreachable` the client keeps trying until it is closed.
    pub async fn connect(&self) -> Result<(), ClientError> {
        self.connect_within(CONNECT_TIMEOUT).await
    }

    /// As [`connect`](Client::connect), with another limit than 15 s.
    pub async fn connect_within(&self, timeout: Duration) -> Result<(), ClientError> {
        self.start();
        self.shared.when_open(timeout).await
    }

    /// Publishes an event: await the result, or send it and await the answer later. The answer comes when the
    /// event is durable. The id is minted before the first try, so tries after a lost answer never publish twice.
    pub fn publish<T: Serialize + ?Sized>(&self, topic: impl Into<String>, payload: &T) -> PublishBuilder {
        PublishBuilder::new(self.clone(), EventToPublish::new(topic, payload))
    }

    /// Publishes an event that was made before.
    pub fn publish_event(&self, event: EventToPublish) -> PublishBuilder {
        PublishBuilder::new(self.clone(), event)
    }

    /// Publishes up to 1,000 events, also of several topics, in one commit: all of them, or none.
    pub async fn publish_many(
        &self,
        events: impl IntoIterator<Item = EventToPublish>,
    ) -> Result<BatchReceipt, ClientError> {
        let timeout = self.shared.options.publish_timeout;
        publish::publish_many(self, events.into_iter().collect(), timeout).await
    }

    /// Waits until a publish would be sent at once: back-pressure for code that does not await each publish.
    pub async fn room(&self) {
        self.shared.room().await;
    }

    /// A subscription to a topic or pattern in a group: finish it with
    /// [`handle`](SubscribeBuilder::handle) or [`leases`](SubscribeBuilder::leases).
    pub fn subscribe<T: DeserializeOwned + Send + 'static>(
        &self,
        topic: impl Into<String>,
        group: impl Into<String>,
    ) -> SubscribeBuilder<T> {
        SubscribeBuilder::new(self.clone(), topic.into(), group.into())
    }

    /// One topic with the type of its payload.
    pub fn topic<T>(&self, name: impl Into<String>) -> TypedTopic<T> {
        TypedTopic { client: self.clone(), name: name.into(), payload: PhantomData }
    }

    /// Shows a new token on the open connection. Tokens from a function are renewed before they expire without
    /// this.
    pub async fn renew_token(&self) -> Result<(), ClientError> {
        connection::renew(Arc::clone(&self.shared)).await.map(|_| ())
    }

    /// Closes the client and loses nothing: waits for handlers, which may still publish, for their acks and for
    /// outstanding publishes, and gives all other events back. After 30 s it closes anyway and fails with
    /// `timeout`; handlers that still run are left behind. A handler cannot await it.
    pub async fn close(&self) -> Result<(), ClientError> {
        self.close_within(CLOSE_TIMEOUT).await
    }

    /// As [`close`](Client::close), with another limit than 30 s.
    pub async fn close_within(&self, timeout: Duration) -> Result<(), ClientError> {
        check_not_handling(&self.shared)?;
        let (shared, deadline) = (&self.shared, Instant::now() + timeout);
        let members: Vec<u64> = {
            let mut core = shared.core();
            core.is_leaving = true;
            core.members.keys().copied().collect()
        };
        // Handlers publish until they are done; then there are no more publishes.
        let leaving = members.into_iter().map(|id| shared.close_member(id, deadline));
        let left: Result<(), ClientError> =
            futures_util::future::join_all(leaving).await.into_iter().collect();
        shared.change(|core, effects| {
            core.is_closing = true;
            core.outbox.wake_watchers(effects);
        });
        // The count tells what became of them.
        let _ = tokio::time::timeout_at(deadline, shared.drained()).await;
        let unanswered = shared.core().outbox.pending();
        shared.end(None);
        shared.tasks.wait().await;
        let workers = tokio::time::timeout_at(deadline, shared.workers.wait()).await;
        if unanswered > 0 {
            let message = format!("{unanswered} publishes had no answer when the client was closed");
            return Err(ClientError::new("timeout", message));
        }
        left?;
        workers.map_err(|_| {
            let message = format!("{} handlers still ran when the client was closed", shared.workers.len());
            ClientError::new("timeout", message)
        })
    }

    /// History, exports and events as they come, without a group.
    pub fn reader(&self) -> TopicReader {
        TopicReader::new(Arc::clone(&self.shared.http))
    }

    /// Documents and the state of keys, now and at an earlier time.
    pub fn state_reader(&self) -> StateReader {
        StateReader::new(Arc::clone(&self.shared.http))
    }

    /// Topics, schemas, groups, dead letters and the server itself.
    pub fn admin(&self) -> Admin {
        Admin::new(Arc::clone(&self.shared.http))
    }

    /// Sends a request to a route that has no call of its own here, and returns the bytes of its answer.
    ///
    /// `method` is `GET`, `POST`, `PUT` or `DELETE`; `target` is the path with its query, escaped. A body is sent as
    /// JSON. The error of a refusal has the server's code, and the other fields of its answer as details.
    pub async fn call(
        &self,
        method: &str,
        target: &str,
        body: impl Into<Bytes>,
    ) -> Result<Bytes, ClientError> {
        let http = &self.shared.http;
        let answer = http.send(HttpCall::raw(method, target, body.into())?).await?;
        http.whole(answer).await
    }

    /// Backups of the server, for a token with scope `admin`.
    pub fn backups(&self) -> BackupReader {
        BackupReader::new(Arc::clone(&self.shared.http))
    }

    /// A handle that does not keep the client alive.
    pub(crate) fn weak(&self) -> WeakClient {
        WeakClient { shared: Arc::downgrade(&self.shared), guard: Arc::downgrade(&self.guard) }
    }

    /// Begins to connect, if that has not begun.
    pub(crate) fn start(&self) {
        let shared = &self.shared;
        let is_first = {
            let mut core = shared.core();
            let is_first = core.phase == ConnectionState::Idle;
            if is_first {
                core.phase = ConnectionState::Connecting;
            }
            is_first
        };
        if is_first {
            shared.tasks.spawn(connection::run(Arc::clone(shared)));
        }
    }
}

/// A client that ends when its other handles are dropped.
#[derive(Clone)]
pub(crate) struct WeakClient {
    shared: Weak<ClientShared>,
    guard: Weak<ClientGuard>,
}

impl WeakClient {
    pub(crate) fn upgrade(&self) -> Option<Client> {
        Some(Client { shared: self.shared.upgrade()?, guard: self.guard.upgrade()? })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("address", self.address()).field("state", &self.state()).finish()
    }
}

/// One topic of a client, with the type of its payload.
#[derive(Debug, Clone)]
pub struct TypedTopic<T> {
    client: Client,
    name: String,
    payload: PhantomData<fn(T) -> T>,
}

impl<T> TypedTopic<T> {
    /// The name of the topic.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl<T: Serialize> TypedTopic<T> {
    /// Publishes an event; see [`Client::publish`].
    pub fn publish(&self, payload: &T) -> PublishBuilder {
        self.client.publish(self.name.as_str(), payload)
    }

    /// Publishes events in one commit; see [`Client::publish_many`].
    pub async fn publish_many<'a>(
        &self,
        payloads: impl IntoIterator<Item = &'a T>,
    ) -> Result<BatchReceipt, ClientError>
    where
        T: 'a,
    {
        let events = payloads.into_iter().map(|payload| EventToPublish::new(self.name.as_str(), payload));
        self.client.publish_many(events.collect::<Vec<_>>()).await
    }
}

impl<T: DeserializeOwned + Send + 'static> TypedTopic<T> {
    /// A subscription to this topic; see [`Client::subscribe`].
    pub fn subscribe(&self, group: impl Into<String>) -> SubscribeBuilder<T> {
        self.client.subscribe(self.name.as_str(), group)
    }
}
