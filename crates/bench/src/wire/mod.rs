//! A client for measurements only. It shares the machine with the server, so it uses as little processor time
//! as possible: one thread, many frames in one write, and replies that are recognised by their bytes instead
//! of being parsed.
//!
//! `frame` encodes frames, `socket` is a WebSocket, `events` makes publishes and finds events in messages,
//! `pump` publishes with a window or at a rate, `http` reads pages.

pub(crate) mod events;
mod frame;
pub(crate) mod http;
pub(crate) mod pump;
pub(crate) mod socket;

use std::future::Future;

use anyhow::{Context, Result};
use tokio::runtime::Builder;

/// Runs a client's work on this thread alone.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    Builder::new_current_thread().enable_all().build().context("start a client's runtime")?.block_on(work)
}
