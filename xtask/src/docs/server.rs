//! A server that a document starts, for as long as its commands are run.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

/// Where the documents say it listens.
const READY: &str = "http://127.0.0.1:8090/ready";

/// Stopped when it is dropped.
pub(super) struct Server(Child);

impl Server {
    /// Starts it with data of its own, and waits until it can take traffic.
    pub(super) fn start(mut command: Command, scratch: &Path) -> Result<Self> {
        let child = command
            .env("PROMETHEAN_DATA", scratch.join("data"))
            .stdout(Stdio::null())
            .spawn()
            .context("start a server")?;
        let server = Self(child);
        let ready = format!("until curl -sf {READY} >/dev/null; do sleep 0.1; done");
        // Long enough to build what it serves with.
        let waited = Command::new("timeout").args(["600", "bash", "-c", &ready]).status()?;
        if !waited.success() {
            bail!("{READY} does not answer");
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to stop.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}
