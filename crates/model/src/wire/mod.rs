//! The frames of the WebSocket protocol: each is the text of one JSON object. `fixtures/protocol` has one of
//! every kind.
//!
//! - [`client`]: frames of clients, read without copying payloads
//! - [`server`]: frames of the server, written into a buffer with payloads passed through
//! - [`op`]: what a client frame asks for, with its name
//! - [`opts`]: the options of a publish and of a subscription

pub mod client;
pub mod op;
pub mod opts;
pub mod server;

#[cfg(test)]
mod tests;

pub use client::{ClientFrame, Corr, FrameError, PublishItem};
pub use op::Op;
pub use opts::{PublishOpts, SeekOpts, SubscribeOpts};
pub use server::{EventView, Reply};
