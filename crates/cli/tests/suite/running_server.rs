//! A server as a process, for commands that talk to one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

pub(crate) struct RunningServer {
    child: Child,
    address: String,
    /// Kept open, so that the server can write to it.
    _stderr: BufReader<ChildStderr>,
}

impl RunningServer {
    /// Starts a server in memory, and waits until it listens.
    pub(crate) fn in_memory(dir: &Path, args: &[&str]) -> Self {
        Self::start(dir, &[&["--store", "memory"], args].concat())
    }

    /// Starts a server in `dir`, and waits until it listens.
    pub(crate) fn start(dir: &Path, args: &[&str]) -> Self {
        Self::spawn(Command::new(env!("CARGO_BIN_EXE_promethean")), dir, args)
    }

    /// As [`RunningServer::start`], with `limits`, a shell command that sets limits of the process.
    pub(crate) fn limited(limits: &str, dir: &Path, args: &[&str]) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{limits} && exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_promethean")]);
        Self::spawn(shell, dir, args)
    }

    fn spawn(mut command: Command, dir: &Path, args: &[&str]) -> Self {
        command.current_dir(dir).args(["serve", "--listen", "127.0.0.1:0"]).args(args);
        command.env_remove("PROMETHEAN_LISTEN").stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        stderr.read_line(&mut line).unwrap();
        let listens = line.strip_prefix("promethean listens on ").unwrap_or_else(|| panic!("{line}"));
        let address = listens.split_once(';').unwrap().0.to_owned();
        Self { child, address, _stderr: stderr }
    }

    /// The process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// `HOST:PORT`.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The status of a GET with this token.
    pub(crate) fn status(&self, path: &str, token: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    }

    /// Sends a signal to the server.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Stops the server and checks that it ends well.
    pub(crate) fn stop(mut self) {
        self.signal("TERM");
        assert!(self.child.wait().unwrap().success());
    }

    /// Sends a request and checks that the answer is 200.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let answer = self.answer(method, path, body);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 "), "{method} {path}: {answer}");
        body.to_owned()
    }

    /// Sends a request and returns the whole answer.
    pub(crate) fn answer(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        // With HTTP/1.0 the body ends with the connection, so it needs no parsing.
        let media = if path.ends_with("/batch") { "application/x-ndjson" } else { "application/json" };
        let head = format!("{method} {path} HTTP/1.0\r\nhost: localhost\r\ncontent-type: {media}\r\n");
        write!(stream, "{head}content-length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

/// Kills the server, also when a test fails.
impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
