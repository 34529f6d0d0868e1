//! The options of a client.

use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use crate::address::ServerAddress;
use crate::backoff::Backoff;
use crate::client::Client;
use crate::core::Core;
use crate::dial::Dialer;
use crate::error::ClientError;
use crate::member::OnError;
use crate::outbox::{Outbox, OutboxLimits};
use crate::shared::{ClientShared, ConnectionOptions};
use crate::token::TokenSource;

/// The shortest time between two looks at a silent server.
const PING_MIN: Duration = Duration::from_millis(10);

/// The options of a client; [`build`](ClientBuilder::build) makes it.
#[must_use = "build() makes the client"]
pub struct ClientBuilder {
    url: String,
    token: TokenSource,
    authorities: Option<Vec<u8>>,
    on_error: OnError,
    open_timeout: Duration,
    ping_every: Duration,
    ping_timeout: Duration,
    reconnect: Backoff,
    publish_timeout: Duration,
    limits: OutboxLimits,
}

impl ClientBuilder {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            token: TokenSource::None,
            authorities: None,
            on_error: Arc::new(|error| warn!(code = error.code(), "{error}")),
            open_timeout: Duration::from_secs(10),
            ping_every: Duration::from_secs(10),
            ping_timeout: Duration::from_secs(10),
            reconnect: Backoff::default(),
            publish_timeout: Duration::from_secs(60),
            limits: OutboxLimits { outstanding_max: 1_024, queued_max: 10_000, bytes_max: 64 << 20 },
        }
    }

    /// Sets the token: a text, or [`TokenSource::provider`].
    pub fn token(mut self, token: impl Into<TokenSource>) -> Self {
        self.token = token.into();
        self
    }

    /// Trusts the certificate authorities in this PEM text instead of the machine's, and servers that show one of its
    /// certificates as their own.
    pub fn authorities(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authorities = Some(pem.into());
        self
    }

    /// Sets a function that is called for failures that no call reports. Without it they are logged.
    pub fn on_error(mut self, on_error: impl Fn(&ClientError) + Send + Sync + 'static) -> Self {
        self.on_error = Arc::new(on_error);
        self
    }

    /// Sets the longest time to open a connection (10 s).
    pub fn open_timeout(mut self, timeout: Duration) -> Self {
        self.open_timeout = timeout;
        self
    }

    /// Sets after which silence the client asks whether the server is there (10 s), and how long the server may
    /// take to answer before the connection is given up (10 s). Both are at least 10 ms.
    pub fn keep_alive(mut self, ping_every: Duration, ping_timeout: Duration) -> Self {
        (self.ping_every, self.ping_timeout) = (ping_every.max(PING_MIN), ping_timeout.max(PING_MIN));
        self
    }

    /// Sets the first and the longest wait before a new connection (100 ms, 10 s).
    pub fn reconnect(mut self, min: Duration, max: Duration) -> Self {
        self.reconnect = Backoff { min, max };
        self
    }

    /// Sets how long a publish is tried (60 s).
    pub fn publish_timeout(mut self, timeout: Duration) -> Self {
        self.publish_timeout = timeout;
        self
    }

    /// Sets the most publishes that are sent and not answered (1024).
    pub fn max_outstanding(mut self, frames: usize) -> Self {
        self.limits.outstanding_max = frames.max(1);
        self
    }

    /// Sets the most publishes that wait to be sent (10,000), and the most bytes of all publishes (64 MiB).
    pub fn max_queued(mut self, frames: usize, bytes: usize) -> Self {
        (self.limits.queued_max, self.limits.bytes_max) = (frames.max(1), bytes);
        self
    }

    /// Makes the client. It connects when it is first used.
    pub fn build(self) -> Result<Client, ClientError> {
        let address = ServerAddress::parse(&self.url)?;
        let dialer = Dialer::new(address, self.authorities.as_deref(), self.open_timeout)?;
        let core = Core::new(Outbox::new(self.limits), Arc::clone(&self.on_error));
        let options = ConnectionOptions {
            token: self.token,
            open_timeout: self.open_timeout,
            ping_every: self.ping_every,
            ping_timeout: self.ping_timeout,
            reconnect: self.reconnect,
            publish_timeout: self.publish_timeout,
            on_error: self.on_error,
        };
        ClientShared::new(core, dialer, options).map(Client::from_shared)
    }
}
