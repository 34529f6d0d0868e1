//! The bus over the network: WebSocket and HTTP on one listener, with authentication and limits.
//!
//! | module | holds |
//! | --- | --- |
//! | [`gateway`], `app`, [`options`] | starting and stopping, what connections share, what can be set |
//! | [`auth`] | who a client is, and what that client may do |
//! | `metrics` | what is counted, one declaration per metric |
//! | `listen` | accepting connections, their timeouts, origins, TLS |
//! | `ws` | the WebSocket protocol |
//! | `http` | routes |
//! | `audit` | who did what, as events of a topic |
//! | `usage` | how much clients use, and what they may |
//! | `events` | events on their way in and out, whatever they come over |
//! | `refusal` | every answer that says no |
//! | [`trust`] | which servers we believe, where we are the client |

mod app;
mod audit;
pub mod auth;
mod events;
pub mod gateway;
mod http;
mod listen;
mod metrics;
pub mod options;
mod refusal;
pub mod trust;
mod usage;
mod ws;

pub use gateway::Gateway;
pub use options::GatewayOptions;
