//! `promethean schema`, and schemas from a folder.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use super::running_server::RunningServer;
use super::{promethean, stderr, stdout};

const ONE: &str = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}"#;
const WIDER: &str =
    r#"{"type":"object","properties":{"n":{"type":"number"}},"required":["n"],"additionalProperties":false}"#;
const OTHER: &str = r#"{"type":"object","properties":{"count":{"type":"integer"}},"required":["count"]}"#;

/// Starts a server with this configuration.
fn start(dir: &Path, config: &str) -> RunningServer {
    fs::write(dir.join("c.toml"), config).unwrap();
    RunningServer::start(dir, &["--config", "c.toml"])
}

impl RunningServer {
    fn schema(&self, dir: &Path, args: &[&str]) -> Output {
        promethean(dir, &[&["schema"], args, &["--server", &self.url()]].concat())
    }

    /// The output of `promethean schema`, which must exit with `code`.
    fn says(&self, dir: &Path, args: &[&str], code: i32) -> String {
        let output = self.schema(dir, args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {} {}", stdout(&output), stderr(&output));
        stdout(&output)
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
    let server = start(dir, "store = \"memory\"");
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
    // Requests that cannot be done exit with another code and a reason.
    let failed = server.schema(dir, &["show", "t", "5"]);
    assert_eq!(failed.status.code(), Some(5));
    assert!(stderr(&failed).contains("unknown_schema"), "{}", stderr(&failed));
    let failed = server.schema(dir, &["add", "t", "bad.json"]);
    assert!(stderr(&failed).contains("bad_schema"), "{}", stderr(&failed));
    // A topic that does not exist is no topic without schemas.
    server.ask("PUT", "/topics/without.schema", "{}");
    assert_eq!(server.says(dir, &["list", "without.schema"], 0), "");
    assert!(server.says(dir, &["migrate", "without.schema", "--dry-run"], 0).starts_with("0 events"));
    for args in [&["list", "none.such"][..], &["migrate", "none.such", "--dry-run"]] {
        let failed = server.schema(dir, args);
        assert_eq!(failed.status.code(), Some(5), "{args:?}");
        assert!(stderr(&failed).contains("unknown_topic"), "{}", stderr(&failed));
    }
    server.stop();
    let failed = promethean(dir, &["schema", "list", "--server", "http://127.0.0.1:9"]);
    assert_eq!(failed.status.code(), Some(3));
    assert!(stderr(&failed).contains("--url"), "{}", stderr(&failed));
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
    let server = start(dir, config);
    assert_eq!(server.says(dir, &["list"], 0), "t  v1  1 version(s)\n");
    server.stop();
    fs::write(folder.join("v2.json"), OTHER).unwrap();
    fs::write(folder.join("v1-to-v2.jq"), "{count: .n}").unwrap();
    let server = start(dir, config);
    assert_eq!(server.says(dir, &["list"], 0), "t  v2  2 version(s)\n");
    server.stop();
    // The schema of a registered version must not change.
    fs::write(folder.join("v1.json"), WIDER).unwrap();
    let refused = promethean(dir, &["serve", "--config", "c.toml", "--listen", "127.0.0.1:0"]);
    assert!(!refused.status.success());
    assert!(stderr(&refused).contains("v1.json"), "{}", stderr(&refused));
}
