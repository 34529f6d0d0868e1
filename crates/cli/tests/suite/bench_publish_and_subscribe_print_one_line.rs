//! `promethean bench publish` and `promethean bench subscribe`.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::running_server::RunningServer;
use super::{json_lines, promethean, stderr, stdout};

/// The only line of output; it must have exactly these fields, in this order, with a number in each.
fn figures(dir: &Path, args: &[&str], fields: &[&str]) -> Value {
    let output = promethean(dir, args);
    assert!(output.status.success(), "{}", stderr(&output));
    let mut lines = json_lines(&stdout(&output));
    assert_eq!(lines.len(), 1);
    let line = lines.remove(0);
    let text = stdout(&output);
    let places: Vec<usize> = fields.iter().map(|name| text.find(&format!("\"{name}\":")).unwrap()).collect();
    assert!(places.is_sorted() && line.as_object().unwrap().len() == fields.len(), "{text}");
    assert!(line.as_object().unwrap().values().all(Value::is_number), "{text}");
    line
}

const PUBLISHED: [&str; 3] = ["published", "ms", "mps"];
const RECEIVED: [&str; 6] = ["n", "p50", "p90", "p99", "max", "avg"];

#[test]
fn a_bus_inside_the_process_is_measured_on_either_store() {
    let dir = tempfile::tempdir().unwrap();
    for store in ["memory", "embedded"] {
        let line = figures(dir.path(), &["bench", "publish", "--n", "300", "--store", store], &PUBLISHED);
        assert_eq!(line["published"], 300);
        let args = ["bench", "subscribe", "--n", "300", "--window", "8", "--store", store];
        let line = figures(dir.path(), &args, &RECEIVED);
        assert_eq!(line["n"], 300);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "files were left behind");
}

#[test]
fn the_number_and_the_topic_may_come_from_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let run = |topic: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_promethean"));
        command.current_dir(dir.path()).args(["bench", "publish"]).env("N", "7").env("TOPIC", topic);
        command.output().unwrap()
    };
    assert_eq!(json_lines(&stdout(&run("a.b")))[0]["published"], 7);
    let refused = run("no spaces");
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
}

#[test]
fn a_server_is_measured_over_the_wire() {
    let dir = tempfile::tempdir().unwrap();
    let server = RunningServer::start(dir.path(), &["--token", "let me in"]);
    let url = format!("ws://{}/", server.address());
    let to = ["--url", url.as_str(), "--token", "let me in"];
    let publish = [&["bench", "publish", "--n", "200", "--window", "32"][..], &to].concat();
    assert_eq!(figures(dir.path(), &publish, &PUBLISHED)["published"], 200);
    // Twice, because events of earlier runs in the topic must not count.
    for _ in 0..2 {
        let subscribe = [&["bench", "subscribe", "--n", "200"][..], &to].concat();
        assert_eq!(figures(dir.path(), &subscribe, &RECEIVED)["n"], 200);
    }
    let refused =
        promethean(dir.path(), &["bench", "publish", "--n", "1", "--url", url.as_str(), "--token", "x"]);
    assert!(stderr(&refused).contains("bad_token"), "{}", stderr(&refused));
}
