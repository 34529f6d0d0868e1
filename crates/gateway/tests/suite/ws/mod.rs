//! The WebSocket protocol, over real sockets.

mod auth;
mod chaos;
pub(super) mod client;
mod delivery;
mod document;
mod endings;
mod fetch;
mod limits;
mod publish;
pub(super) mod world;
