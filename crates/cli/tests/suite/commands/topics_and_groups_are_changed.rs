//! `promethean topics`, `groups`, `seek`, `ops` and `health`.

use super::super::json_lines;
use super::Shell;

#[test]
fn topics_are_listed_changed_and_deleted() {
    let shell = Shell::new();
    assert_eq!(shell.says(&["topics", "list"]), "");
    assert!(shell.says(&["topics", "set", "a.b", "retention.age=7d", "max_attempts=3"]).contains("created"));
    shell.says(&["pub", "a.b", "1"]);
    shell.says(&["pub", "other", "1"]);
    assert!(shell.says(&["topics", "set", "a.b", "compacted=true"]).contains("changed"));
    let list = shell.says(&["topics", "list"]);
    assert!(list.starts_with("TOPIC") && list.contains("latest of each key, age 7d"), "{list}");
    let only = json_lines(&shell.says(&["topics", "list", "a.", "--json"]));
    assert_eq!(
        (only.len(), &only[0]["topic"], &only[0]["settings"]["max_attempts"]),
        (1, &"a.b".into(), &3.into())
    );
    let shown = shell.says(&["topics", "show", "a.b"]);
    assert!(
        shown.contains("events          1 (offsets 0 to 0)") && shown.contains("retention.age   7d"),
        "{shown}"
    );
    let refused = shell.fails(&["topics", "set", "a.b", "compactd=true"], 2);
    assert!(
        refused.contains("`compactd=true`: `compactd` is not known here; use one of `retention`"),
        "{refused}"
    );
    for (setting, remedy) in [
        ("max_attempts=many", "the text \"many\" was given; give a whole number from 0"),
        ("compacted=maybe", "the text \"maybe\" was given; give `true` or `false`"),
        ("retention.count=-1", "the number -1 was given; give a whole number from 0"),
        ("schema=on", "`on` is not possible here; use one of `optional`"),
    ] {
        for topic in ["a.b", "not.there.yet"] {
            let refused = shell.fails(&["topics", "set", topic, "max_attempts=4", setting], 2);
            assert!(refused.contains(&format!("`{setting}`: {remedy}")), "{refused}");
            assert!(!refused.contains("expected"), "{refused}");
        }
    }
    assert!(shell.fails(&["topics", "set", "a.b", "partitions=0"], 2).contains("partitions"));
    assert!(shell.says(&["topics", "delete", "a.b", "--yes"]).contains("deleted"));
    shell.fails(&["topics", "show", "a.b"], 5);
}

#[test]
fn groups_are_paused_moved_and_deleted() {
    let shell = Shell::new();
    shell.run(&["pub", "a.b"], "1\n2\n3\n4\n");
    shell.says(&["sub", "a.b", "--group", "g", "--from", "earliest", "--limit", "3"]);
    let list = shell.says(&["groups", "list"]);
    assert!(list.contains("no_members") && list.starts_with("GROUP"), "{list}");
    assert!(shell.says(&["groups", "pause", "g"]).contains("paused"));
    assert!(shell.says(&["groups", "show", "g"]).contains("promethean groups resume"));
    assert!(shell.says(&["groups", "resume", "g"]).contains("resumed"));
    let tried = shell.says(&["seek", "g", "--to", "earliest", "--dry-run"]);
    assert_eq!(tried, "group `g` of `a.b` would go from offset 3 to 0: 3 event(s) again, 0 skipped\n");
    let lag = || json_lines(&shell.says(&["groups", "list", "--json"]))[0]["topics"][0]["lag"].clone();
    assert_eq!(lag(), 1, "a dry run changes nothing");
    let moved = json_lines(&shell.says(&["seek", "g", "--to", "1h ago", "--json"])).remove(0);
    assert_eq!((&moved["applied"], &moved["replayed"]), (&true.into(), &3.into()));
    assert_eq!(lag(), 4);
    shell.run(&["pub", "a.c"], "1\n");
    shell.says(&["sub", "a.c", "--group", "g", "--from", "earliest", "--limit", "1"]);
    assert!(shell.fails(&["groups", "show", "g"], 2).contains("a.b, a.c"));
    shell.says(&["groups", "delete", "g", "--topic", "a.c", "--yes"]);
    assert!(shell.says(&["groups", "delete", "g", "--yes"]).contains("deleted"));
    shell.fails(&["groups", "show", "g"], 5);
}

#[test]
fn the_server_tells_how_it_is() {
    let shell = Shell::new();
    assert!(shell.says(&["health"]).contains(" ok\n"));
    let health = json_lines(&shell.says(&["health", "--json"])).remove(0);
    assert_eq!((&health["status"], &health["ready"]), (&"ok".into(), &true.into()));
    assert_eq!(shell.says(&["health", "-q"]), "");
    assert!(shell.says(&["ops"]).contains("the store is well"));
    assert!(json_lines(&shell.says(&["ops", "--json"]))[0]["store"].is_object());
}

#[test]
fn ops_shows_what_projectors_and_compactors_do() {
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/processes.toml");
    let shell = Shell::with_server(&["--config", config]);
    let said = shell.says(&["ops"]);
    let line = |start: &str| said.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
    let projector = said.lines().rfind(|line| line.starts_with("process-projector"));
    assert!(projector.unwrap_or_default().ends_with("running"), "{said}");
    assert!(line("process.state.snapshot").ends_with("ok"), "{said}");
}
