//! `promethean schema`, and schemas from a folder.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use super::{own_address, promethean, stderr, stdout};

const ONE: &str = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}"#;
const WIDER: &str =
    r#"{"type":"object","properties":{"n":{"type":"number"}},"required":["n"],"additionalProperties":false}"#;
const OTHER: &str = r#"{"type":"object","properties":{"count":{"type":"integer"}},"required":["count"]}"#;

/// A server on memory, ended with the test.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(dir: &Path, config: &str) -> Self {
        fs::write(dir.join("c.toml"), config).unwrap();
        let address = own_address();
        let child = Command::new(env!("CARGO_BIN_EXE_promethean"))
            .current_dir(dir)
            .args(["serve", "--config", "c.toml", "--listen", &address.to_string()])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { child, url: format!("http://{address}") };
        // Each try is a process of its own, which takes some milliseconds.
        let ready = (0..2_000).any(|_| server.schema(dir, &["list"]).status.success());
        assert!(ready, "the server does not start");
        server
    }

    fn schema(&self, dir: &Path, args: &[&str]) -> Output {
        let mut all = vec!["schema"];
        all.extend(args);
        all.extend(["--server", &self.url]);
        promethean(dir, &all)
    }

    /// What it prints, if it exits as it should.
    fn says(&self, dir: &Path, args: &[&str], code: i32) -> String {
        let output = self.schema(dir, args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {} {}", stdout(&output), stderr(&output));
        stdout(&output)
    }

    fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

/// A test that fails leaves no server behind.
impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn schemas_are_added_shown_compared_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for (name, text) in
        [("one.json", ONE), ("wider.json", WIDER), ("other.json", OTHER), ("bad.json", "{\"type\":5}")]
    {
        fs::write(dir.join(name), text).unwrap();
    }
    let server = Server::start(dir, "store = \"memory\"");
    assert!(server.says(dir, &["add", "t", "one.json"], 0).contains("version 1"));
    assert!(server.says(dir, &["add", "t", "one.json"], 0).contains("already"));
    assert!(server.says(dir, &["check", "t", "wider.json"], 0).contains("compatible"));
    let refused = server.says(dir, &["check", "t", "other.json"], 1);
    assert!(refused.contains("required_added") && refused.contains("for example"), "{refused}");
    assert!(server.says(dir, &["add", "t", "other.json"], 1).contains("required_added"));
    assert!(server.says(dir, &["add", "t", "wider.json", "--dry-run"], 0).contains("would"));
    assert!(server.says(dir, &["add", "t", "wider.json", "--as-version", "5"], 0).contains("version 5"));
    assert_eq!(server.says(dir, &["list"], 0), "t  v5  2 version(s)\n");
    assert_eq!(server.says(dir, &["list", "t"], 0).lines().count(), 2);
    let shown: Value = serde_json::from_str(&server.says(dir, &["show", "t", "1"], 0)).unwrap();
    assert_eq!(shown, serde_json::from_str::<Value>(ONE).unwrap());
    let diff = server.says(dir, &["diff", "t", "1", "5"], 0);
    assert!(diff.starts_with("backward") && diff.contains("type_narrowed"), "{diff}");
    fs::write(dir.join("p.json"), "{\"n\": \"x\"}").unwrap();
    assert!(server.says(dir, &["validate", "t", "p.json"], 1).contains("/n"));
    assert!(server.says(dir, &["migrate", "t", "--dry-run"], 0).starts_with("0 events"));
    assert!(server.says(dir, &["delete", "t", "5"], 0).contains("gone"));
    let json = server.says(dir, &["list", "t", "--json"], 0);
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["versions"][0]["version"], 1);
    // What cannot be done says why, with another code.
    let failed = server.schema(dir, &["show", "t", "5"]);
    assert_eq!(failed.status.code(), Some(2));
    assert!(stderr(&failed).contains("unknown_schema"), "{}", stderr(&failed));
    let failed = server.schema(dir, &["add", "t", "bad.json"]);
    assert!(stderr(&failed).contains("bad_schema"), "{}", stderr(&failed));
    server.stop();
    let failed = promethean(dir, &["schema", "list", "--server", "http://127.0.0.1:9"]);
    assert_eq!(failed.status.code(), Some(2));
    assert!(stderr(&failed).contains("--server"), "{}", stderr(&failed));
}

#[test]
fn files_are_compared_without_a_server() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for (name, text) in [("one.json", ONE), ("wider.json", WIDER)] {
        fs::write(dir.join(name), text).unwrap();
    }
    let check = |args: &[&str]| promethean(dir, &[&["schema", "check"], args].concat());
    assert_eq!(check(&["wider.json", "--against", "one.json"]).status.code(), Some(0));
    let forward = check(&["wider.json", "--against", "one.json", "--compat", "forward"]);
    assert_eq!(forward.status.code(), Some(1));
    assert!(
        stdout(&forward).contains("0.5") || stdout(&forward).contains("accepts and"),
        "{}",
        stdout(&forward)
    );
    let diff = promethean(dir, &["schema", "diff", "one.json", "wider.json", "--json"]);
    let lines: Vec<Value> = stdout(&diff).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["verdict"], &lines[1]["verdict"]), (&"compatible".into(), &"incompatible".into()));
    assert_eq!(check(&["wider.json", "--against", "none.json"]).status.code(), Some(2));
}

#[test]
fn a_folder_is_applied_at_every_start() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let folder = dir.join("schemas/t");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("v1.json"), ONE).unwrap();
    let config = "data = \"data\"\nschemas = \"schemas\"\n[topics.t]\ncompat = \"none\"\n";
    let server = Server::start(dir, config);
    assert_eq!(server.says(dir, &["list"], 0), "t  v1  1 version(s)\n");
    server.stop();
    fs::write(folder.join("v2.json"), OTHER).unwrap();
    fs::write(folder.join("v1-to-v2.jq"), "{count: .n}").unwrap();
    let server = Server::start(dir, config);
    assert_eq!(server.says(dir, &["list"], 0), "t  v2  2 version(s)\n");
    server.stop();
    // A version that is registered cannot be another one all of a sudden.
    fs::write(folder.join("v1.json"), WIDER).unwrap();
    let refused = promethean(dir, &["serve", "--config", "c.toml", "--listen", "127.0.0.1:0"]);
    assert!(!refused.status.success());
    assert!(stderr(&refused).contains("v1.json"), "{}", stderr(&refused));
}
