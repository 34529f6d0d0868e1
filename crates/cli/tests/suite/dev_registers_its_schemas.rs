//! `promethean dev` checks events as `promethean serve --config examples/processes.toml` does.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

/// Sends a request; returns status line and body.
fn ask(address: &str, method: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("{method} {path} HTTP/1.0\r\nhost: localhost\r\ncontent-type: application/json\r\n");
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_wrong_heartbeat_is_refused() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_promethean"))
        .args(["dev", "--listen", "localhost:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    let address = line.strip_prefix("promethean dev listens on ").unwrap().split_once(';').unwrap().0;
    let listed = ask(address, "GET", "/schemas", "");
    let examples = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/schemas"));
    for topic in std::fs::read_dir(examples).unwrap() {
        let topic = topic.unwrap().file_name().into_string().unwrap();
        assert!(listed.contains(&topic), "{topic}: {listed}");
    }
    let refused = ask(address, "POST", "/publish/heartbeat.received", "{\"pid\": \"seven\"}");
    assert!(refused.contains(" 422 ") && refused.contains("schema_rejected"), "{refused}");
    child.kill().unwrap();
    child.wait().unwrap();
}
