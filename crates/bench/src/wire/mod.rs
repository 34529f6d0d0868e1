//! A client that costs as little as it can, since it shares the machine with the server it measures: one thread, many
//! frames in one write, and replies recognised by their bytes instead of being parsed. Not for anything else.
//!
//! `frame` is the form of frames, `socket` a WebSocket, `events` what is published and what comes back, `pump` publishes
//! with a window, `pacer` keeps time, `http` asks for pages.

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
