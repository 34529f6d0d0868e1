//! The WebSocket protocol, over real sockets.

mod auth;
mod client;
mod delivery;
mod limits;
mod publish;
mod world;
