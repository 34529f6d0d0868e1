//! The frames of the WebSocket protocol: JSON text, one object each. `fixtures/protocol` has one of every kind.
//!
//! - [`client`]: what clients send, read without copying payloads
//! - [`server`]: what the server sends, written into a buffer with payloads passed through
//! - [`op`]: what a client frame asks for, with its name
//! - [`opts`]: the options of a publish and of a subscription

pub mod client;
pub mod op;
pub mod opts;
pub mod server;

#[cfg(test)]
mod tests;

pub use client::{ClientFrame, Corr, FrameError, Item};
pub use op::Op;
pub use opts::{PublishOpts, SeekOpts, SubscribeOpts};
pub use server::{EventView, Reply};
