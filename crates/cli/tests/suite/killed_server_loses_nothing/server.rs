//! A server process that can be killed and started again on its data.

use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::{own_address, promethean, stderr, stdout};
use super::until;

pub(in crate::suite) struct KillableServer {
    dir: TempDir,
    pub(in crate::suite) address: SocketAddr,
    child: Child,
}

fn spawn(dir: &TempDir, address: SocketAddr) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_promethean"));
    command.current_dir(dir.path()).args(["serve", "--listen", &address.to_string(), "--data", "data"]);
    command.args(["--config", "config.toml"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// The status and the body of an answer; `None` if the connection ended before.
pub(super) async fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    // With HTTP/1.0 the body ends with the connection; its length shows that it is whole.
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.0\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.trim_end().to_owned()))
}

/// The body of an answer with status 200.
async fn get(address: SocketAddr, path: &str) -> Option<String> {
    ask(address, "GET", path, "").await.filter(|(status, _)| *status == 200).map(|(_, body)| body)
}

impl KillableServer {
    pub(in crate::suite) async fn start() -> Self {
        Self::with_config("").await
    }

    /// Starts a server with this configuration file.
    pub(in crate::suite) async fn with_config(config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.toml"), config).unwrap();
        let address = own_address();
        let server = Self { child: spawn(&dir, address), dir, address };
        server.ready().await;
        server
    }

    async fn ready(&self) {
        until("the server is ready", async || get(self.address, "/ready").await.is_some()).await;
    }

    /// Starts the server on the same data.
    pub(in crate::suite) async fn restart(&mut self) {
        self.child = spawn(&self.dir, self.address);
        self.ready().await;
    }

    /// Kills the process.
    pub(in crate::suite) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Checks the data of a server that does not run: `promethean verify` finds no damage.
    pub(in crate::suite) fn verify(&self) {
        let checked = promethean(self.dir.path(), &["verify", "--data", "data"]);
        assert!(checked.status.success(), "{}{}", stdout(&checked), stderr(&checked));
    }

    /// Sends SIGTERM and waits for the end, which takes at most ten seconds unless the machine is busy.
    pub(in crate::suite) async fn terminate(&mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let mut often = tokio::time::interval(Duration::from_millis(10));
        let ended = async {
            loop {
                if let Some(status) = self.child.try_wait().unwrap() {
                    return status;
                }
                often.tick().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), ended).await.unwrap()
    }

    pub(in crate::suite) async fn get(&self, path: &str) -> String {
        get(self.address, path).await.unwrap_or_else(|| panic!("no answer to {path}"))
    }
}

/// Kills the server, also when a test fails.
impl Drop for KillableServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
