//! `promethean sub` and `promethean tail`.

use std::io::{BufRead, BufReader};
use std::process::Command;

use super::super::{json_lines, stderr};
use super::Shell;

fn with_events(topic: &str, count: usize) -> Shell {
    let shell = Shell::new();
    let lines: String = (0..count).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    assert!(shell.run(&["pub", topic, "-q"], &lines).status.success());
    shell
}

#[test]
fn tail_prints_the_latest_events_in_each_format() {
    let shell = with_events("a.b", 25);
    assert_eq!(json_lines(&shell.says(&["tail", "a.b"])).len(), 10);
    assert_eq!(shell.says(&["tail", "a.b", "-n", "2", "--format", "raw"]), "{\"n\":23}\n{\"n\":24}\n");
    let pretty = shell.says(&["tail", "a.b", "-n", "1", "--format", "pretty"]);
    assert!(pretty.ends_with("  a.b #24  {\"n\":24}\n") && !pretty.contains('\u{1b}'), "{pretty}");
    assert_eq!(json_lines(&shell.says(&["tail", "a.b", "--from", "20"])).len(), 5);
    assert_eq!(json_lines(&shell.says(&["tail", "a.b", "--from", "1h ago"])).len(), 25);
    let filtered = shell.says(&[
        "tail",
        "a.b",
        "--from",
        "earliest",
        "--filter",
        ".payload.n % 10 == 3",
        "--format",
        "raw",
    ]);
    assert_eq!(filtered, "{\"n\":3}\n{\"n\":13}\n{\"n\":23}\n");
    assert!(shell.fails(&["tail", "a.b", "--filter", ".("], 2).contains("--filter"));
    assert!(shell.fails(&["tail", "a.b", "--template", "{{x}}"], 2).contains("has no meaning"));
    assert!(shell.fails(&["tail", "a.*"], 2).contains("pattern"));
    assert!(shell.fails(&["tail", "a.b", "--from", "whenever"], 2).contains("no position"));
}

#[test]
fn sub_without_a_group_only_looks() {
    let shell = with_events("a.b", 5);
    shell.says(&["pub", "a.c", "1"]);
    let args = ["sub", "a.b", "--from", "earliest", "--limit", "3", "--format", "raw"];
    for _ in 0..2 {
        assert_eq!(shell.says(&args), "{\"n\":0}\n{\"n\":1}\n{\"n\":2}\n");
    }
    let both = shell.says(&["sub", "a.*", "--from", "earliest", "--limit", "6"]);
    assert_eq!(json_lines(&both).len(), 6);
    assert!(shell.says(&["groups", "list"]).is_empty());
}

#[test]
fn a_group_finishes_what_was_printed_and_what_the_filter_leaves_out() {
    let shell = with_events("a.b", 10);
    let filter = ["--filter", ".payload.n > 3", "--format", "raw", "--from", "earliest"];
    let args = [&["sub", "a.b", "--group", "g", "--limit", "2"], &filter[..]].concat();
    let output = shell.run(&args, "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "{\"n\":4}\n{\"n\":5}\n");
    assert!(stderr(&output).contains("2 event(s) printed, 4 left out by the filter"), "{}", stderr(&output));
    let group = json_lines(&shell.says(&["groups", "show", "g", "--json"])).remove(0);
    assert_eq!((&group["topics"][0]["floor"], &group["topics"][0]["lag"]), (&6.into(), &4.into()));
    // What is never acked comes again.
    for _ in 0..2 {
        let held = shell.says(&[
            "sub",
            "a.b",
            "--group",
            "g",
            "--limit",
            "4",
            "--ack",
            "none",
            "--template",
            "{{offset}}",
        ]);
        let mut held: Vec<&str> = held.lines().collect();
        held.sort_unstable();
        assert_eq!(held, ["6", "7", "8", "9"], "in any order: the group has none");
    }
    let auto =
        shell.says(&["sub", "a.b", "--group", "g", "--limit", "4", "--ack", "auto", "--format", "raw"]);
    assert_eq!(auto.lines().count(), 4);
    let group = json_lines(&shell.says(&["groups", "show", "g", "--json"])).remove(0);
    assert_eq!(group["topics"][0]["lag"], 0, "{group}");
    assert!(shell.fails(&["sub", "a.b", "a.c", "--group", "g"], 2).contains("one topic"));
}

#[test]
fn ctrl_c_ends_in_good_order() {
    let shell = with_events("a.b", 3);
    let mut child =
        shell.spawn(&["sub", "a.b", "--group", "g", "--from", "earliest", "--template", "{{offset}}"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for expected in ["0", "1", "2"] {
        assert_eq!(lines.next().unwrap().unwrap(), expected);
    }
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("3 event(s) printed; `g` has finished them"), "{}", stderr(&output));
    let group = json_lines(&shell.says(&["groups", "show", "g", "--json"])).remove(0);
    assert_eq!((&group["topics"][0]["lag"], &group["topics"][0]["members"]), (&0.into(), &0.into()));
}

#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let shell = with_events("a.b", 2_000);
    let mut child = shell.spawn(&["tail", "a.b", "--from", "earliest"]);
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}
