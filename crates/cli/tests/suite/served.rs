//! A server in memory, for commands that ask one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

pub(crate) struct Served {
    child: Child,
    address: String,
    /// What it says after the first line; kept open, so that it can.
    _says: BufReader<ChildStderr>,
}

impl Served {
    /// Starts it in `dir`, and waits until it listens.
    pub(crate) fn start(dir: &Path, args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_promethean"));
        command.current_dir(dir).args(["serve", "--store", "memory", "--listen", "127.0.0.1:0"]).args(args);
        command.env_remove("PROMETHEAN_LISTEN").stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut says = BufReader::new(child.stderr.take().unwrap());
        says.read_line(&mut line).unwrap();
        let said = line.strip_prefix("promethean listens on ").unwrap_or_else(|| panic!("{line}"));
        let address = said.split_once(';').unwrap().0.to_owned();
        Self { child, address, _says: says }
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

    /// Sends it a signal.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Asks, and demands that it is done.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        // HTTP/1.0 ends an answer by closing, so that nothing has to be taken apart.
        let media = if path.ends_with("/batch") { "application/x-ndjson" } else { "application/json" };
        let head = format!("{method} {path} HTTP/1.0\r\nhost: localhost\r\ncontent-type: {media}\r\n");
        write!(stream, "{head}content-length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 "), "{method} {path}: {answer}");
        body.to_owned()
    }
}

/// A test that fails leaves no server behind.
impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
