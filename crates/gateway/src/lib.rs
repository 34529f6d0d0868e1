//! The bus over the network: WebSocket and HTTP on one listener, with authentication and limits.
//!
//! | module | holds |
//! | --- | --- |
//! | [`gateway`], `app`, [`options`] | starting and stopping, the state that connections share, the options |
//! | [`auth`] | the crate `promethean-auth`: who a client is, and what that client may do |
//! | `metrics` | what is counted, one declaration per metric |
//! | `listen` | accepting connections, their timeouts, origins, TLS |
//! | `ws` | the WebSocket protocol |
//! | `http` | the HTTP routes |
//! | `audit` | audit records: who did what, as events of a topic |
//! | `usage` | what clients use, against their quotas |
//! | `events` | events on their way in and out, the same over HTTP and WebSocket |
//! | `codes` | the list of error codes |
//! | `tickets` | texts for a URL that stand for a token, once |
//! | `refusal` | refusals: code, status and message of every error |

mod app;
mod audit;
mod codes;
mod events;
pub mod gateway;
mod http;
mod listen;
mod metrics;
pub mod options;
mod refusal;
mod tickets;
mod usage;
mod ws;

pub use gateway::Gateway;
pub use options::GatewayOptions;
pub use promethean_auth as auth;
