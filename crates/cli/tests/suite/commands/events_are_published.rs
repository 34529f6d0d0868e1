//! `promethean pub`.

use super::super::{json_lines, stderr, stdout};
use super::Shell;

#[test]
fn an_argument_is_an_event() {
    let shell = Shell::new();
    let said = shell.says(&["pub", "hello", r#"{"x": 1}"#]);
    assert!(said.starts_with("hello offset 0") && said.contains("durability memory"), "{said}");
    let id = "0b7a34f2-9a53-4f8e-8f0a-3a1c0c7d5e11";
    let args =
        ["pub", "hello", "2", "--key", "k", "-H", "x-region: eu", "--tag", "web", "--id", id, "--json"];
    let first = json_lines(&shell.says(&args)).remove(0);
    assert_eq!((&first["offset"], &first["id"], &first["topic"]), (&1.into(), &id.into(), &"hello".into()));
    assert_eq!(json_lines(&shell.says(&args))[0]["duplicate"], true);
    let event = json_lines(&shell.says(&["tail", "hello", "-n", "1"])).remove(0);
    assert_eq!(
        (&event["key"], &event["headers"]["x-region"], &event["tags"][0], &event["payload"]),
        (&"k".into(), &"eu".into(), &"web".into(), &2.into())
    );
    assert_eq!(shell.says(&["pub", "hello", "3", "--quiet"]), "");
    shell.says(&["pub", "hello", "plain text", "--text"]);
    assert_eq!(shell.says(&["tail", "hello", "-n", "1", "--format", "raw"]), "\"plain text\"\n");
}

#[test]
fn wrong_input_is_named() {
    let shell = Shell::new();
    assert!(shell.fails(&["pub", "hello", "hi"], 2).contains("add --text"));
    assert!(shell.fails(&["pub", "Bad Name", "1"], 2).contains("Bad Name"));
    assert!(shell.fails(&["pub", "hello", "1", "-H", "none"], 2).contains("NAME: VALUE"));
    assert!(shell.fails(&["pub", "hello", "{{m}}", "--template"], 2).contains("has no meaning"));
    assert!(shell.fails(&["pub", "hello", "--file", "none.txt"], 2).contains("none.txt"));
    assert!(shell.fails(&["pub", "a.dlq", "1"], 1).contains("reserved_name"));
}

#[test]
fn lines_are_events_in_their_order() {
    let shell = Shell::new();
    let lines: String = (0..5_000).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    let output = shell.run(&["pub", "many.lines", "--json"], &lines);
    assert!(output.status.success(), "{}", stderr(&output));
    let said = json_lines(&stdout(&output)).remove(0);
    assert_eq!((&said["published"], &said["last_offset"]), (&5_000.into(), &4_999.into()));
    let printed = shell.says(&["tail", "many.lines", "--from", "earliest", "--format", "raw"]);
    assert!(printed == lines, "order or content differs");
    std::fs::write(shell.path().join("f.txt"), "1\n\n2\n").unwrap();
    let output = shell.run(&["pub", "from.file", "--file", "f.txt", "--key", "{{count}}", "--template"], "");
    assert!(
        stderr(&output).contains("published 2 event(s) to `from.file`, up to offset 1"),
        "{}",
        stderr(&output)
    );
    let keys = shell.says(&["tail", "from.file", "--template", "{{key}}={{payload}}"]);
    assert_eq!(keys, "1=1\n2=2\n");
}

#[test]
fn a_refused_line_is_named_and_the_others_are_published_if_wanted() {
    let shell = Shell::new();
    std::fs::write(shell.path().join("s.json"), r#"{"type": "integer"}"#).unwrap();
    shell.server.ask("POST", "/schemas/only.numbers", r#"{"type": "integer"}"#);
    let lines = "1\n2\n\"three\"\nnot json\n5\n";
    let output = shell.run(&["pub", "only.numbers", "--keep-going"], lines);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("event 3 is refused") && said.contains("schema_rejected"), "{said}");
    assert!(said.contains("event 4 is refused") && said.contains("published 3 event(s)"), "{said}");
    assert_eq!(shell.says(&["tail", "only.numbers", "--format", "raw"]), "1\n2\n5\n");
    let output = shell.run(&["pub", "only.numbers", "--batch", "1"], "6\n\"seven\"\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("published 1 event(s)"), "{}", stderr(&output));
}

#[test]
fn templates_make_events_at_a_rate() {
    let shell = Shell::new();
    let payload = r#"{"n":{{count}},"r":{{random 5 6}},"c":"{{pick a b}}","t":{{time}},"id":"{{id}}"}"#;
    let args = ["pub", "load.test", payload, "--template", "--count", "40", "--rate", "200", "--json"];
    let said = json_lines(&shell.says(&args)).remove(0);
    assert_eq!(said["published"], 40);
    assert!(said["ms"].as_u64().unwrap() >= 150, "40 events at 200/s take about 200 ms: {said}");
    let events = json_lines(&shell.says(&["tail", "load.test", "-n", "40"]));
    for (at, event) in events.iter().enumerate() {
        let payload = &event["payload"];
        assert_eq!(payload["n"], at + 1);
        assert!([5, 6].contains(&payload["r"].as_u64().unwrap()), "{payload}");
        assert!(["a", "b"].contains(&payload["c"].as_str().unwrap()), "{payload}");
    }
    assert_ne!(events[0]["payload"]["id"], events[1]["payload"]["id"]);
}
