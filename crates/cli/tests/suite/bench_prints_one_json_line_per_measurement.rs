//! `promethean bench log`, `bus` and `schema` with the smallest load.

use std::collections::BTreeSet;

use super::{json_lines, promethean, stderr, stdout};

#[test]
fn prints_json_lines_and_cleans_up() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["bench", "log", "--quick", "--events", "2000", "--publishers", "4", "--topics", "1,10"];
    let output = promethean(dir.path(), &args);
    assert!(output.status.success(), "{}", stderr(&output));
    let lines = json_lines(&stdout(&output));
    let names: BTreeSet<&str> = lines.iter().map(|line| line["bench"].as_str().unwrap()).collect();
    let expected = ["append", "checkpoint", "lookup", "memory", "raw", "read", "reopen", "single", "summary"];
    assert_eq!(names, BTreeSet::from(expected));
    for line in lines.iter().filter(|line| line["bench"] != "summary") {
        assert!(line["sync"].is_string(), "{line}");
    }
    let summary = lines.last().unwrap();
    assert_eq!(summary["bench"], "summary");
    for target in summary["targets"].as_array().unwrap() {
        assert!(target["measured"].is_number() && target["met"].is_boolean(), "{target}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "files were left behind");
}

#[test]
fn the_named_directory_stays_and_verifies() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["bench", "log", "--quick", "--events", "2000", "--only", "read", "--data", "demo"];
    for _ in 0..2 {
        let output = promethean(dir.path(), &args);
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let verified = promethean(dir.path(), &["verify", "--data", "demo"]);
    assert!(verified.status.success(), "{}", stdout(&verified));
}

#[test]
fn the_bus_is_measured_beside_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let few = ["--groups", "1,3", "--topics", "1,10", "--idle-groups", "20", "--publishers", "4"];
    let mut args = vec!["bench", "bus", "--quick", "--events", "2000"];
    args.extend(few);
    let output = promethean(dir.path(), &args);
    assert!(output.status.success(), "{}", stderr(&output));
    let lines = json_lines(&stdout(&output));
    let names: BTreeSet<&str> = lines.iter().map(|line| line["bench"].as_str().unwrap()).collect();
    let expected =
        ["append", "drain", "groups", "idle", "latency", "publish", "publish_to_ack", "summary", "topics"];
    assert_eq!(names, BTreeSet::from(expected));
    for line in lines.iter().filter(|line| line["bench"] != "summary") {
        assert_eq!(line["sync"], "fsync", "{line}");
    }
    let summary = lines.last().unwrap();
    assert_eq!((&summary["bench"], &summary["of"]), (&"summary".into(), &7.into()));
    for target in summary["targets"].as_array().unwrap() {
        assert!(target["measured"].is_number() && target["met"].is_boolean(), "{target}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "files were left behind");
}

#[test]
fn schemas_are_measured_beside_publishing_without() {
    let dir = tempfile::tempdir().unwrap();
    let output = promethean(dir.path(), &["bench", "schema", "--events", "2000"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let lines = json_lines(&stdout(&output));
    let steps: Vec<&str> = lines.iter().filter_map(|line| line["step"].as_str()).collect();
    assert_eq!(steps, ["parse", "validate", "prepare", "publish"]);
    assert!(lines[2]["us_with"].as_f64().unwrap() > lines[2]["us_without"].as_f64().unwrap(), "{}", lines[2]);
    assert_eq!((&lines[4]["bench"], &lines[4]["of"]), (&"summary".into(), &2.into()));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "files were left behind");
}
