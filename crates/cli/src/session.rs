//! Running the work of a command with a client of the server.

use anyhow::{Context, Result};
use promethean_client::Client;
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{CommandFailure, client_error};
use crate::target::TargetArgs;

/// Runs work with a client of the server that the flags name. A server that is not there is named, with what to do.
pub(crate) fn with_client<T>(target: &TargetArgs, work: impl AsyncFnOnce(&Client) -> Result<T>) -> Result<T> {
    let target = target.resolve()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let done = runtime.context("start a runtime")?.block_on(async {
        let client = target.client()?;
        work(&client).await
    });
    done.map_err(|error| match client_error(&error) {
        Some(cause) if cause.code() == "unreachable" => {
            CommandFailure::unreachable(&target.url, cause).into()
        }
        _ => error,
    })
}

/// Connects for publishing and subscribing, and fails at once where the client would go on trying.
pub(crate) async fn connect(client: &Client) -> Result<()> {
    // The first request shows within moments whether there is a server.
    client.admin().health().await?;
    Ok(client.connect().await?)
}

/// The signals that end a command, of which the first ends it in good order.
pub(crate) struct Interrupt {
    interrupted: tokio::signal::unix::Signal,
    terminated: tokio::signal::unix::Signal,
}

impl Interrupt {
    /// Listens for Ctrl-C and SIGTERM.
    pub(crate) fn new() -> Result<Self> {
        let interrupted = signal(SignalKind::interrupt()).context("listen for signals")?;
        let terminated = signal(SignalKind::terminate()).context("listen for signals")?;
        Ok(Self { interrupted, terminated })
    }

    /// Waits for a signal.
    pub(crate) async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupted.recv() => {}
            _ = self.terminated.recv() => {}
        }
    }
}
