//! The server that is measured: a process `promethean serve` of this binary, with its own directory and port.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::GatewayRun;
use crate::child::status_kib_of;
use crate::output::JsonLine;
use crate::scratch::FreshDir;
use crate::timing::now;
use crate::wire::http;
use crate::wire::socket::ClientSocket;

/// How long a server may take to be ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How often `/ready` is asked.
const ASK_EVERY: Duration = Duration::from_millis(1);
/// Prefixes of the environment variables that a server reads; the measured server must not see them.
const SETTING_PREFIXES: [&str; 3] = ["PROMETHEAN_", "WS_", "MONGO_"];

/// A running server; killed when dropped.
#[derive(Debug)]
pub(super) struct ServerProcess {
    child: Child,
    /// `HOST:PORT`.
    pub(super) address: String,
    dir: FreshDir,
}

impl ServerProcess {
    /// Starts a server on an empty directory.
    pub(super) async fn start(bench: &GatewayRun, name: &str) -> Result<ServerProcess> {
        let dir = bench.scratch.fresh(name)?;
        let mut server = ServerProcess { child: spawn(&dir)?, address: String::new(), dir };
        server.ready().await?;
        Ok(server)
    }

    /// Kills the server and starts another on its directory, at another address; returns the time until it is
    /// ready.
    pub(super) async fn kill_and_restart(&mut self) -> Result<Duration> {
        self.child.kill()?;
        self.child.wait()?;
        let start = now();
        self.child = spawn(&self.dir)?;
        self.ready().await?;
        Ok(start.elapsed())
    }

    async fn ready(&mut self) -> Result<()> {
        let deadline = now() + READY_WITHIN;
        let mut ask = tokio::time::interval(ASK_EVERY);
        loop {
            ask.tick().await;
            let said = fs::read_to_string(self.dir.path().join(STDERR_FILE))?;
            if let Some(address) = listens_on(&said)
                && http::is_there(address, "/ready").await
            {
                self.address = address.to_owned();
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended with {status}: {said}");
            }
            if now() > deadline {
                bail!("the server was not ready in time: {said}");
            }
        }
    }

    /// Opens an authenticated socket.
    pub(super) async fn open(&self) -> Result<ClientSocket> {
        ClientSocket::open(&self.address, None).await
    }

    /// Publishes an event, which creates the topic; returns the durability that the reply names.
    pub(super) async fn sync(&self, topic: &str) -> Result<String> {
        let publish = serde_json::json!({ "op": "PUBLISH", "topic": topic, "payload": 0, "corr": 0 });
        let reply = self.open().await?.request(&publish.to_string()).await?;
        let durability = reply.get("durability").and_then(Value::as_str);
        Ok(durability.context("the reply does not say how durable the event is")?.to_owned())
    }

    /// Processor time of the server, to a hundredth of a second.
    pub(super) fn processor(&self) -> Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))
            .context("read the times of the server")?;
        // The name, in brackets, may contain blanks. User and system time are the 14th and 15th field.
        let (_, fields) = stat.rsplit_once(')').context("a process without a name")?;
        let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
        let ticks: u64 = ticks.sum::<Result<_, _>>()?;
        Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }

    /// Resident memory, in bytes.
    pub(super) fn resident(&self) -> Result<f64> {
        self.status("VmRSS")
    }

    /// A figure of `/proc/PID/status`, in bytes.
    pub(super) fn status(&self, name: &str) -> Result<f64> {
        Ok(status_kib_of(&self.child.id().to_string(), name)? as f64 * 1024.0)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // The process may have ended already; its directory is removed too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The file that gets the standard error of the server.
const STDERR_FILE: &str = "said";

/// The address in the standard error of the server, once it listens.
fn listens_on(said: &str) -> Option<&str> {
    let (_, behind) = said.split_once("promethean listens on ")?;
    Some(behind.split_once(';')?.0)
}

/// Starts the process with port 0: the system chooses a free port, and a port chosen here could be taken
/// meanwhile.
fn spawn(dir: &FreshDir) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    for (name, _) in std::env::vars_os() {
        if SETTING_PREFIXES.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(dir.path().join("data"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(dir.path().join(STDERR_FILE))?)
        .spawn()
        .context("start a server")
}

/// Adds the resident memory of the server.
pub(super) fn with_resident(line: JsonLine, server: &ServerProcess) -> Result<JsonLine> {
    Ok(line.figure("server_rss_mb", server.resident()? / 1e6))
}
