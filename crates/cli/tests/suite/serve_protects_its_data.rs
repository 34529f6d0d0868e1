//! `promethean serve` refuses other machines without tokens, and keeps its data private.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

/// Runs a server that is expected to fail; after 60 s it has started by mistake and is killed.
fn serve(args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60", env!("CARGO_BIN_EXE_promethean"), "serve", "--store", "memory"]);
    command.env_remove("PROMETHEAN_TOKEN").env_remove("PROMETHEAN_LISTEN");
    let output = command.args(args).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn other_machines_are_not_served_without_tokens() {
    for address in ["0.0.0.0:0", "[::]:0"] {
        let (code, said) = serve(&["--listen", address]);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("--token") && said.contains("--insecure"), "{said}");
    }
}

#[test]
fn only_the_user_of_the_server_can_read_its_data() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_promethean"))
        .current_dir(dir.path())
        .args(["serve", "--listen", "127.0.0.1:0", "--data", "new/data"])
        .env_remove("PROMETHEAN_LISTEN")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let mode = std::fs::metadata(dir.path().join("new/data")).map(|data| data.permissions().mode() & 0o777);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(mode.unwrap(), 0o700, "{line}");
}
