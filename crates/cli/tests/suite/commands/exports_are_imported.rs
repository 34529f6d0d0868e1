//! `promethean export` and `promethean import`.

use std::fs;

use super::super::{json_lines, stderr, stdout};
use super::Shell;

fn with_events() -> Shell {
    let shell = Shell::new();
    let lines: String = (0..2_000).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    let args = ["pub", "a.b", "--key", "k{{count}}", "-H", "x-a: b", "--template", "-q"];
    assert!(shell.run(&args, &lines).status.success());
    shell
}

fn events(shell: &Shell, topic: &str) -> Vec<(u64, String, String)> {
    let text = shell.says(&["tail", topic, "--from", "earliest", "--json"]);
    let event = |event: &serde_json::Value| {
        let parts = serde_json::json!([event["key"], event["headers"], event["payload"], event["ts"]]);
        (event["offset"].as_u64().unwrap(), event["id"].as_str().unwrap().to_owned(), parts.to_string())
    };
    json_lines(&text).iter().map(event).collect()
}

#[test]
fn a_file_has_everything_and_is_imported_once() {
    let shell = with_events();
    for file in ["all.ndjson", "all.ndjson.gz"] {
        let output = shell.run(&["export", "a.b", file], "");
        assert!(stderr(&output).contains("2,000 event(s)"), "{}", stderr(&output));
    }
    let plain = fs::read_to_string(shell.path().join("all.ndjson")).unwrap();
    assert_eq!(plain, shell.says(&["export", "a.b"]));
    assert!(fs::metadata(shell.path().join("all.ndjson.gz")).unwrap().len() < plain.len() as u64 / 4);
    assert!(shell.fails(&["export", "a.b", "all.ndjson"], 2).contains("--replace"));
    shell.says(&["export", "a.b", "all.ndjson", "--replace"]);
    let first = json_lines(&shell.says(&["import", "copied", "all.ndjson.gz", "--json"])).remove(0);
    assert_eq!((&first["published"], &first["duplicates"]), (&2_000.into(), &0.into()));
    let second = json_lines(&shell.says(&["import", "copied", "all.ndjson", "--json"])).remove(0);
    assert_eq!((&second["published"], &second["duplicates"]), (&0.into(), &2_000.into()));
    assert_eq!(events(&shell, "copied"), events(&shell, "a.b"));
    let piped = shell.run(&["import", "piped", "--new-ids", "--json"], &plain);
    assert_eq!(json_lines(&stdout(&piped))[0]["published"], 2_000);
    let part = shell.says(&["export", "a.b", "--offset", "1990"]);
    assert_eq!(part.lines().count(), 10);
    assert_eq!(shell.says(&["export", "a.b", "--until", "1h ago"]), "");
}

#[test]
fn an_export_goes_on_where_it_ended() {
    let shell = with_events();
    for file in ["r.ndjson", "r.ndjson.gz"] {
        let args = ["export", "a.b", file, "--resume", "--json"];
        assert_eq!(
            json_lines(&shell.says(&args))[0]["next"],
            json_lines(&shell.says(&["topics", "show", "a.b", "--json"]))[0]["end"]
        );
        // What a killed export wrote after its last position is cut off.
        let path = shell.path().join(file);
        let mut bytes = fs::read(&path).unwrap();
        bytes.extend_from_slice(b"half a li");
        fs::write(&path, bytes).unwrap();
        shell.says(&["pub", "a.b", "{\"n\":\"new\"}", "--key", "k"]);
        assert_eq!(json_lines(&shell.says(&args))[0]["events"], 1);
        assert_eq!(json_lines(&shell.says(&args))[0]["events"], 0);
        let topic = format!("into.{}", file.len());
        let done = json_lines(&shell.says(&["import", &topic, file, "--json"])).remove(0);
        assert_eq!(done["refused"], 0);
        assert_eq!(events(&shell, &topic), events(&shell, "a.b"));
    }
    fs::write(shell.path().join("r.ndjson.exported"), "{}").unwrap();
    assert!(shell.fails(&["export", "a.b", "r.ndjson", "--resume"], 2).contains("r.ndjson.exported"));
}

#[test]
fn an_import_says_in_plain_words_what_is_wrong_with_a_line() {
    let shell = Shell::new();
    let lines =
        "nonsense\n{\"payload\": 1, \"ts\": \"now\"}\n{\"payload\": 1, \"tags\": \"one\"}\n{\"payload\": 1\n";
    fs::write(shell.path().join("f.ndjson"), lines).unwrap();
    let output = shell.run(&["import", "to", "f.ndjson", "--keep-going"], "");
    let said = stderr(&output);
    for reason in [
        "the text \"now\" was given; give a whole number",
        "the text \"one\" was given; give a list",
        "the text ends before the JSON is complete",
    ] {
        assert!(said.contains(reason), "{reason}: {said}");
    }
    for word in ["expected", "EOF", "i64", "sequence"] {
        assert!(!said.contains(word), "{word}: {said}");
    }
}

#[test]
fn an_import_names_lines_that_are_no_events() {
    let shell = with_events();
    let lines = "{\"payload\": 1}\n{\"load\": 2}\nnonsense\n{\"payload\": 4}\n";
    fs::write(shell.path().join("f.ndjson"), lines).unwrap();
    let output = shell.run(&["import", "to", "f.ndjson", "--keep-going"], "");
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("event 2 is refused") && said.contains("event 3 is refused"), "{said}");
    assert_eq!(shell.says(&["tail", "to", "--format", "raw"]), "1\n4\n");
    // The position counts lines, so a second run publishes only what was added.
    let resume = ["import", "again", "g.ndjson", "--resume", "--new-ids", "--json"];
    for (added, published) in [("1 2 3", 3), ("", 0), ("4 5", 2)] {
        let path = shell.path().join("g.ndjson");
        let mut text = fs::read_to_string(&path).unwrap_or_default();
        text.extend(added.split_whitespace().map(|n| format!("{{\"payload\": {n}}}\n")));
        fs::write(&path, text).unwrap();
        assert_eq!(json_lines(&shell.says(&resume))[0]["published"], published, "{added}");
    }
    assert_eq!(shell.says(&["tail", "again", "--format", "raw"]), "1\n2\n3\n4\n5\n");
}
