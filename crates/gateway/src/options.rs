//! The options of a gateway.

use std::collections::BTreeMap;

use promethean_bus::limits::Rate;
use promethean_model::TopicName;
use promethean_model::limits::MESSAGE_BYTES_MAX_DEFAULT;
use serde_json::Value;

use crate::auth::Quota;
pub use crate::http::stored_headers::{HeaderNameError, check_stored_headers, is_credential};
pub use crate::listen::origin::{OriginError, check_origins};
pub use crate::listen::tls::{TlsError, TlsFiles};
pub use crate::usage::failures::FailureLimit;

/// Limits and timeouts of the gateway.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// Connections at a time. Default: 20,000.
    pub connections_max: usize,
    /// Subscriptions of one WebSocket. Default: 1,000.
    pub subscriptions_max: usize,
    /// Bytes of one WebSocket message or request body. Default: 16 MiB.
    pub message_bytes_max: usize,
    /// Bytes of requests and messages that are not whole or not answered, of all clients together. Default:
    /// 256 MiB.
    pub receiving_bytes_max: usize,
    /// As `receiving_bytes_max`, of one token. Default: 64 MiB.
    pub token_receiving_bytes_max: usize,
    /// Bytes of a message before the client has shown a valid token. Default: 8 KiB.
    pub unknown_message_bytes_max: usize,
    /// How long a client may take to show a valid token. Default: 5 s.
    pub auth_timeout_ms: u64,
    /// How long the head of a request, or a TLS handshake, may take. Default: 10 s.
    pub head_timeout_ms: u64,
    /// How long an HTTP/2 connection may have no request. Default: 60 s. An HTTP/1 connection has
    /// `head_timeout_ms` for its next request.
    pub idle_timeout_ms: u64,
    /// How long a request's body, or a message of a WebSocket, may take to come. Default: 30 s.
    pub body_timeout_ms: u64,
    /// How often WebSockets are pinged; a client that does not answer until the next ping is closed. Default:
    /// 25 s.
    pub ping_every_ms: u64,
    /// How long a client may take to read bytes that were written. Default: 30 s.
    pub write_timeout_ms: u64,
    /// How fast one connection may publish. Default: no limit.
    pub publish_rate: Option<Rate>,
    /// How fast events are delivered to one subscription. Default: no limit.
    pub delivery_rate: Option<Rate>,
    /// How long caches may keep a document. Default: 5 s.
    pub snap_max_age_secs: u32,
    /// How often the authenticator looks for changed tokens; an idle connection notices a change within twice
    /// that time more. Default: 5 s.
    pub auth_check_every_ms: u64,
    /// How many invalid tokens one address may show. Default: 20, and one more every 3 s.
    pub auth_failures: FailureLimit,
    /// The quota of identities whose token has none. Default: 10,000 new topics and 10,000 new groups in an hour. An
    /// open gateway has no quotas.
    pub quota: Quota,
    /// The topic for audit records. Default: none.
    pub audit: Option<TopicName>,
    /// Origins of web pages that may connect, besides pages of this server and of this machine.
    pub allowed_origins: Vec<String>,
    /// Headers of requests that become headers of events. Default: `x-*`, `t0`, `traceparent`, `tracestate` and
    /// `content-type`, without those that look like a credential.
    pub stored_headers: Option<Vec<String>>,
    /// The settings that `/admin/config` shows, by their keys in the configuration file. The embedder leaves secrets out.
    /// Default: none.
    pub shown_settings: BTreeMap<String, Value>,
    /// Certificate and key, to serve over TLS only. Default: none.
    pub tls: Option<TlsFiles>,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        Self {
            connections_max: 20_000,
            subscriptions_max: 1_000,
            message_bytes_max: MESSAGE_BYTES_MAX_DEFAULT,
            receiving_bytes_max: 256 << 20,
            token_receiving_bytes_max: 64 << 20,
            unknown_message_bytes_max: 8 << 10,
            auth_timeout_ms: 5_000,
            head_timeout_ms: 10_000,
            idle_timeout_ms: 60_000,
            body_timeout_ms: 30_000,
            ping_every_ms: 25_000,
            write_timeout_ms: 30_000,
            publish_rate: None,
            delivery_rate: None,
            snap_max_age_secs: 5,
            auth_check_every_ms: 5_000,
            auth_failures: FailureLimit::default(),
            quota: Quota::of_tokens(),
            audit: None,
            allowed_origins: Vec::new(),
            stored_headers: None,
            shown_settings: BTreeMap::new(),
            tls: None,
        }
    }
}
