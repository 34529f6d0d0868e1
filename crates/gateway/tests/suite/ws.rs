//! The WebSocket protocol, over real sockets.

mod auth;
mod client;
mod delivery;
mod document;
mod fetch;
mod limits;
mod publish;
mod world;
