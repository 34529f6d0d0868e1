//! `promethean bench gateway` with the smallest load.

use std::collections::BTreeMap;

use super::{json_lines, promethean, stderr, stdout};

#[test]
fn a_server_is_measured_and_gone_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["bench", "gateway", "--quick", "--events", "1000", "--sockets", "20,40"];
    let few = ["--subscribers", "3", "--rate", "5000", "--fanout-rate", "2000"];
    let output = promethean(dir.path(), &[&args[..], &few].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let lines = json_lines(&stdout(&output));
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for line in &lines {
        *names.entry(line["bench"].as_str().unwrap()).or_default() += 1;
    }
    let expected = [
        ("client", 4),
        ("drain", 4),
        ("fanout", 2),
        ("idle", 2),
        ("latency", 1),
        ("memory", 2),
        ("publish", 4),
        ("publish_batch", 4),
        ("replay", 1),
        ("restart", 1),
        ("single", 1),
        ("summary", 1),
    ];
    assert_eq!(names, BTreeMap::from(expected));
    for line in lines.iter().filter(|line| line["bench"] != "summary") {
        assert_eq!(line["sync"], "fsync", "{line}");
        assert!(line["server_rss_mb"].is_number(), "{line}");
    }
    let publish = lines.iter().find(|line| line["bench"] == "publish").unwrap();
    assert_eq!((&publish["events"], &publish["payload_bytes"]), (&1000.into(), &100.into()));
    for rate in ["events_per_s", "server_us_per_event", "client_us_per_event"] {
        assert!(publish[rate].is_number(), "{publish}");
    }
    for line in lines.iter().filter(|line| line["bench"] == "client") {
        assert!(line["ratio"].as_f64().unwrap() > 0.0, "{line}");
    }
    let summary = lines.last().unwrap();
    assert_eq!((&summary["bench"], &summary["of"]), (&"summary".into(), &24.into()));
    for target in summary["targets"].as_array().unwrap() {
        assert!(target["measured"].is_number() && target["met"].is_boolean(), "{target}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "files were left behind");
}

#[test]
fn measurements_can_be_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let only = ["--only", "publish_batch,single", "--data", "kept"];
    let args = ["bench", "gateway", "--quick", "--events", "1000"];
    let output = promethean(dir.path(), &[&args[..], &only].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let lines = json_lines(&stdout(&output));
    let names: Vec<&str> = lines.iter().map(|line| line["bench"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["publish_batch", "publish_batch", "publish_batch", "publish_batch", "single", "summary"]
    );
    assert_eq!(std::fs::read_dir(dir.path().join("kept")).unwrap().count(), 0, "files were left behind");
}
