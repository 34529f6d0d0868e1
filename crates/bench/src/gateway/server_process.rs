//! The server that is measured: `promethean serve` of this binary, on a directory and a port of its own.

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
/// How often it is asked.
const ASK_EVERY: Duration = Duration::from_millis(1);
/// What the environment may say to a server.
const SETTINGS: [&str; 8] = [
    "PROMETHEAN_LISTEN",
    "PROMETHEAN_DATA",
    "PROMETHEAN_STORE",
    "PROMETHEAN_TOKEN",
    "PROMETHEAN_LOG",
    "WS_PORT",
    "WS_TOKEN",
    "MONGO_URL",
];

/// A running server; killed when dropped.
#[derive(Debug)]
pub(super) struct ServerProcess {
    child: Child,
    /// `HOST:PORT`.
    pub(super) address: String,
    dir: FreshDir,
}

impl ServerProcess {
    /// Starts one on an empty directory.
    pub(super) async fn start(bench: &GatewayRun, name: &str) -> Result<ServerProcess> {
        let dir = bench.scratch.fresh(name)?;
        let mut server = ServerProcess { child: spawn(&dir)?, address: String::new(), dir };
        server.ready().await?;
        Ok(server)
    }

    /// Kills it and starts another on its directory, at another address; how long that took to be ready.
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
            let said = fs::read_to_string(self.dir.path().join(SAID))?;
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

    /// A socket that the server knows.
    pub(super) async fn open(&self) -> Result<ClientSocket> {
        ClientSocket::open(&self.address, None).await
    }

    /// How durable it says that an event is; makes the topic.
    pub(super) async fn sync(&self, topic: &str) -> Result<String> {
        let publish = serde_json::json!({ "op": "PUBLISH", "topic": topic, "payload": 0, "corr": 0 });
        let reply = self.open().await?.request(&publish.to_string()).await?;
        let durability = reply.get("durability").and_then(Value::as_str);
        Ok(durability.context("the reply does not say how durable the event is")?.to_owned())
    }

    /// Processor time that it has used, to a hundredth of a second.
    pub(super) fn processor(&self) -> Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).context("read its times")?;
        // The name, in brackets, may have anything in it. User and system time are the 14th and 15th field.
        let (_, fields) = stat.rsplit_once(')').context("a process without a name")?;
        let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
        let ticks: u64 = ticks.sum::<Result<_, _>>()?;
        Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }

    /// Resident memory, in bytes.
    pub(super) fn resident(&self) -> Result<f64> {
        self.status("VmRSS")
    }

    /// A figure of its memory, in bytes.
    pub(super) fn status(&self, name: &str) -> Result<f64> {
        Ok(status_kib_of(&self.child.id().to_string(), name)? as f64 * 1024.0)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have ended by itself, and its directory goes too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the server wrote to standard error.
const SAID: &str = "said";

/// The address in what a server wrote, once it listens.
fn listens_on(said: &str) -> Option<&str> {
    let (_, behind) = said.split_once("promethean listens on ")?;
    Some(behind.split_once(';')?.0)
}

/// At a port that the system gives it: one chosen here could be another's by the time it is opened.
fn spawn(dir: &FreshDir) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    for setting in SETTINGS {
        command.env_remove(setting);
    }
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(dir.path().join("data"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(dir.path().join(SAID))?)
        .spawn()
        .context("start a server")
}

/// Adds what the server takes of memory.
pub(super) fn with_resident(line: JsonLine, server: &ServerProcess) -> Result<JsonLine> {
    Ok(line.figure("server_rss_mb", server.resident()? / 1e6))
}
