//! Subscribing: the options of the group and of the member.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use promethean_model::wire::SubscribeOpts;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::client::Client;
use crate::consume::{ConsumerHandle, HandlerError, Leases};
use crate::error::ClientError;
use crate::lease::TypedLease;
use crate::member::table::LeaseRules;
use crate::member::{Member, MemberSetup, OnError, OnPartitions, PartitionChange};
use crate::start_from::StartFrom;

const LEASE_MAX: Duration = Duration::from_secs(3_600);
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// The events that a group gets; an empty filter passes all. An event must pass every kind that is given: key, key
/// prefix, each header by its name, tags. It passes a kind if one of the values fits. See `docs/groups.md`.
///
/// ```
/// use promethean_client::EventFilter;
///
/// let filter = EventFilter::default().key_prefix("host:").header("x-region", "eu").tag("hot").tag("cold");
/// let json = r#"{"keyPrefix":["host:"],"headers":{"x-region":["eu"]},"tags":["hot","cold"]}"#;
/// assert_eq!(serde_json::to_string(&filter).unwrap(), json);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventFilter {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    key: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    key_prefix: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
}

impl EventFilter {
    /// Adds a key that passes.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key.push(key.into());
        self
    }

    /// Adds a text that keys which pass begin with.
    #[must_use]
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix.push(prefix.into());
        self
    }

    /// Adds a value of the header `name` that passes.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.entry(name.into()).or_default().push(value.into());
        self
    }

    /// Adds a tag that passes.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }
}

/// The order in which the events of a group are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryOrder {
    /// Any order.
    None,
    /// An event comes only when earlier events of its key are finished.
    Key,
}

/// A subscription to be made. Options that are left out keep what the group has.
#[must_use = "finish it with handle() or leases()"]
pub struct SubscribeBuilder<T> {
    pub(crate) client: Client,
    topic: String,
    group: String,
    opts: SubscribeOpts<'static>,
    filter: Option<Value>,
    meta: Option<Value>,
    concurrency: usize,
    auto_extend: bool,
    lease_max: Duration,
    ready_timeout: Duration,
    on_error: OnError,
    on_partitions: Option<OnPartitions>,
    payload: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned + Send + 'static> SubscribeBuilder<T> {
    pub(crate) fn new(client: Client, topic: String, group: String) -> Self {
        Self {
            on_error: client.shared.on_error(),
            client,
            topic,
            group,
            opts: SubscribeOpts::default(),
            filter: None,
            meta: None,
            concurrency: 1,
            auto_extend: true,
            lease_max: LEASE_MAX,
            ready_timeout: READY_TIMEOUT,
            on_partitions: None,
            payload: PhantomData,
        }
    }

    /// Sets where a new group begins (latest). A group that exists goes on where it was.
    pub fn from(mut self, start: StartFrom) -> Self {
        start.set(&mut self.opts);
        self
    }

    /// Sets which events the group gets: an [`EventFilter`], or JSON of the same form.
    pub fn filter(mut self, filter: impl Serialize) -> Self {
        self.filter = Some(json_of(filter));
        self
    }

    /// Sets the order of deliveries.
    pub fn order(mut self, order: DeliveryOrder) -> Self {
        let word = if order == DeliveryOrder::Key { "key" } else { "none" };
        self.opts.order = Some(word.into());
        self
    }

    /// Makes the group a partitioned one, whose members share `partitions` partitions; this member has the name
    /// `member_id`.
    pub fn partitions(mut self, partitions: u32, member_id: impl Into<String>) -> Self {
        self.opts.partitions = Some(partitions);
        self.opts.member_id = Some(member_id.into().into());
        self
    }

    /// Sets the name of this member.
    pub fn member_id(mut self, member_id: impl Into<String>) -> Self {
        self.opts.member_id = Some(member_id.into().into());
        self
    }

    /// Sets a function that is called when the partitions of this member change.
    pub fn on_partitions(mut self, on_change: impl Fn(PartitionChange) + Send + Sync + 'static) -> Self {
        self.on_partitions = Some(Arc::new(on_change));
        self
    }

    /// Sets after how many attempts an event becomes a dead letter.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.opts.max_attempts = Some(attempts);
        self
    }

    /// Sets the most events that come at once.
    pub fn batch_size(mut self, events: usize) -> Self {
        self.opts.batch_size = Some(events);
        self
    }

    /// Sets the most events that are unfinished at a time (100).
    pub fn max_in_flight(mut self, events: usize) -> Self {
        self.opts.max_in_flight = Some(events);
        self
    }

    /// Sets how long a lease lasts (30 s) before it must be extended, which the client does by itself.
    pub fn ack_timeout(mut self, timeout: Duration) -> Self {
        self.opts.ack_timeout_ms = Some(timeout.as_millis() as u64);
        self
    }

    /// Lets the server finish an event when it has written it: fast, and an event can be lost.
    pub fn auto_ack(mut self) -> Self {
        self.opts.manual_ack = Some(false);
        self
    }

    /// Sets the member's description of itself.
    pub fn meta(mut self, meta: impl Serialize) -> Self {
        self.meta = Some(json_of(meta));
        self
    }

    /// Lifts old events to the latest version of their schema.
    pub fn normalize(mut self) -> Self {
        self.opts.normalize = Some(true);
        self
    }

    /// Sets how many events are handled at a time (1). 1 keeps the order.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = handlers.max(1);
        self
    }

    /// Lets leases end by themselves, also while events wait here or are handled.
    pub fn without_auto_extend(mut self) -> Self {
        self.auto_extend = false;
        self
    }

    /// Sets the longest time that a lease is kept by extending it (an hour).
    pub fn max_lease(mut self, longest: Duration) -> Self {
        self.lease_max = longest;
        self
    }

    /// Sets how long the server may take to accept the subscription (30 s).
    pub fn ready_timeout(mut self, timeout: Duration) -> Self {
        self.ready_timeout = timeout;
        self
    }

    /// Sets a function that is called when a handler fails, when an ack comes too late, and when the
    /// subscription ends. Without it, that of the client is called.
    pub fn on_error(mut self, on_error: impl Fn(&ClientError) + Send + Sync + 'static) -> Self {
        self.on_error = Arc::new(on_error);
        self
    }

    /// Handles the events of the group. An event is acked when the handler is done, and given back when the
    /// handler fails. Returns when the server has accepted the subscription, which then runs until it or the
    /// client is closed.
    pub async fn handle<H, Fut>(self, handler: H) -> Result<ConsumerHandle, ClientError>
    where
        H: Fn(TypedLease<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let (concurrency, timeout) = (self.concurrency, self.ready_timeout);
        let (client, group, member) = self.add(true)?;
        let handle = ConsumerHandle::start(client, group, member, concurrency, Arc::new(handler));
        handle.ready(timeout).await?;
        Ok(handle)
    }

    /// The leases of the group, as a stream. Returns when the server has accepted the subscription.
    pub async fn leases(self) -> Result<Leases<T>, ClientError> {
        let timeout = self.ready_timeout;
        let (client, group, member) = self.add(false)?;
        let leases = Leases::new(client, group, member);
        leases.ready(timeout).await?;
        Ok(leases)
    }

    /// As [`leases`](SubscribeBuilder::leases), but events come only when [`Leases::fetch`] asks for them.
    pub async fn pull(mut self) -> Result<Leases<T>, ClientError> {
        self.opts.pull = Some(true);
        self.leases().await
    }

    fn add(mut self, has_handler: bool) -> Result<(Client, Arc<str>, u64), ClientError> {
        let filter = self.filter.as_ref().map(raw);
        let meta = self.meta.as_ref().map(raw);
        self.opts.filter = None;
        let opts = SubscribeOpts { filter: filter.as_deref(), meta: meta.as_deref(), ..self.opts };
        let rules = LeaseRules { is_manual: opts.manual_ack != Some(false), is_extended: self.auto_extend };
        let json = serde_json::to_string(&opts).map_err(|cause| {
            ClientError::new("bad_request", format!("the options cannot be JSON: {cause}")).because(cause)
        })?;
        let group: Arc<str> = self.group.into();
        let member = Member::new(MemberSetup {
            topic: self.topic.into(),
            group: Arc::clone(&group),
            opts: json,
            has_handler,
            rules,
            lease_max: self.lease_max,
            on_error: self.on_error,
            on_partitions: self.on_partitions,
        });
        self.client.start();
        let id = self.client.shared.core().add_member(member)?;
        self.client.shared.connection.wake();
        Ok((self.client, group, id))
    }
}

impl<T> fmt::Debug for SubscribeBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubscribeBuilder").field("topic", &self.topic).field("group", &self.group).finish()
    }
}

/// A value as JSON; what cannot be JSON becomes a text that the server refuses by name.
fn json_of(value: impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_else(|error| Value::String(error.to_string()))
}

fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}
