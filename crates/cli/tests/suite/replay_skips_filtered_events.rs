//! `promethean replay`: `--map` and `--key` see only the events that `--filter` keeps, and payloads stay as they are.

use serde_json::json;

use super::running_server::RunningServer;
use super::{json_lines, promethean, stderr, stdout};

#[test]
fn programs_do_not_run_on_events_that_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let server = RunningServer::in_memory(dir.path(), &[]);
    // Both programs fail on a text.
    for payload in ["{\"n\": 1}", "\"no object\"", "{\"n\": 3}"] {
        server.ask("POST", "/publish/from.here", payload);
    }
    let url = server.url();
    let replay = |more: &[&str]| {
        let args = ["replay", "--from", "from.here", "--to", "to.there", "--server", &url];
        promethean(dir.path(), &[&args[..], more].concat())
    };
    let programs = ["--map", "{m: .payload.n}", "--key", ".payload.n | tostring"];
    let failed = replay(&programs);
    assert_eq!(failed.status.code(), Some(2));
    assert!(stderr(&failed).contains("--map at offset 1"), "{}", stderr(&failed));
    let done = replay(&[&["--filter", ".payload | type == \"object\""], &programs[..]].concat());
    assert!(done.status.success(), "{}", stderr(&done));
    let counts = &json_lines(&stdout(&done))[0];
    assert_eq!(
        (&counts["read"], &counts["passed_over"], &counts["published"]),
        (&json!(3), &json!(1), &json!(2))
    );
    let there = server.ask("GET", "/replay?topic=to.there&from=earliest", "");
    let there: serde_json::Value = serde_json::from_str(&there).unwrap();
    let events: Vec<_> =
        there["events"].as_array().unwrap().iter().map(|e| (&e["key"], &e["payload"]["m"])).collect();
    assert_eq!(events, [(&json!("1"), &json!(1)), (&json!("3"), &json!(3))]);
    server.stop();
}

#[test]
fn payloads_without_a_map_keep_their_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let server = RunningServer::in_memory(dir.path(), &[]);
    let payload = r#"{"z":12345678901234567890123,"a":1.0,"text":"\u00e9"}"#;
    server.ask("POST", "/publish/from.here", payload);
    let args = ["replay", "--from", "from.here", "--to", "to.there", "--url", &server.url()];
    let done = promethean(dir.path(), &args);
    assert!(done.status.success(), "{}", stderr(&done));
    let there = server.ask("GET", "/replay?topic=to.there&from=earliest", "");
    assert!(there.contains(payload), "{there}");
    server.stop();
}
