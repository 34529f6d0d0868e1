//! `promethean serve`: what it writes to standard error.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Starts a server in memory and returns the first lines of its log, up to one that has `says`.
fn log_of_server(dir: &Path, args: &[&str], mongo: &str, says: &str) -> Vec<String> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_promethean"))
        .current_dir(dir)
        .args(["serve", "--listen", "127.0.0.1:0", "--store", "memory"])
        .args(args)
        .env_remove("PROMETHEAN_LISTEN")
        .env("MONGO_URL", mongo)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = Vec::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        said.push(line.unwrap());
        if said.last().is_some_and(|line| line.contains(says)) {
            break;
        }
    }
    // It may have ended already.
    let _ = child.kill();
    child.wait().unwrap();
    said
}

#[test]
fn every_line_is_json_if_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let json = ["--log-format", "json"];
    let started = log_of_server(dir.path(), &json, "mongodb://db", "listens on");
    let failed =
        log_of_server(dir.path(), &[&json[..], &["--config", "none.toml"]].concat(), "", "none.toml");
    for line in started.iter().chain(&failed) {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for field in ["timestamp", "level", "fields", "target"] {
            assert!(!line[field].is_null(), "{field}: {line}");
        }
    }
    let last: Value = serde_json::from_str(started.last().unwrap()).unwrap();
    assert!(last["fields"]["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{last}");
    assert!(failed.last().unwrap().contains("cannot read"), "{failed:?}");
}

#[test]
fn a_variable_that_is_not_used_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let names = |mongo: &str| {
        let said = log_of_server(dir.path(), &[], mongo, "listens on").join("\n");
        said.contains("MONGO_URL is set, but not used") && said.contains("memory")
    };
    assert!(names("mongodb://db") && !names(""));
}
