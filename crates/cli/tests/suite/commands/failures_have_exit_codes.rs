//! The exit codes of `docs/cli.md`.

use super::super::{stderr, stdout};
use super::{Shell, command};

const COMMANDS: &[&[&str]] = &[
    &["pub", "hello", "1"],
    &["sub", "hello"],
    &["sub", "hello", "--group", "g"],
    &["tail", "hello"],
    &["topics", "list"],
    &["topics", "show", "hello"],
    &["topics", "set", "hello"],
    &["topics", "delete", "hello", "--yes"],
    &["groups", "list"],
    &["groups", "show", "g"],
    &["groups", "pause", "g", "--topic", "hello"],
    &["groups", "resume", "g", "--topic", "hello"],
    &["groups", "delete", "g", "--topic", "hello", "--yes"],
    &["seek", "g", "--topic", "hello", "--to", "earliest"],
    &["dlq", "list", "g"],
    &["dlq", "show", "g", "1"],
    &["dlq", "redrive", "g", "--all"],
    &["dlq", "drop", "g", "--all"],
    &["export", "hello"],
    &["import", "hello"],
    &["ops"],
    &["collections", "list"],
    &["collections", "get", "c", "k"],
    &["collections", "query", "c"],
    &["collections", "drop", "c"],
    &["collections", "rebuild", "p"],
    &["at", "hello", "k"],
    &["at", "--collection", "c"],
    &["replay", "--from", "hello", "--to", "copy"],
    &["schema", "list"],
    &["schema", "show", "hello"],
    &["schema", "migrate", "hello", "--dry-run"],
    &["schema", "delete", "hello", "1"],
    &["generate", "rust"],
];

#[test]
fn a_server_that_is_not_there_is_3_and_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    for args in COMMANDS.iter().chain([&["health"][..]].iter()) {
        let output = command(dir.path(), "http://127.0.0.1:9", args).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{args:?}: {}", stderr(&output));
        let said = stderr(&output);
        assert!(
            said.contains("no server at http://127.0.0.1:9") && said.contains("`promethean serve`"),
            "{args:?}: {said}"
        );
        assert!(said.contains("--url") && said.contains("`promethean context use`"), "{args:?}: {said}");
        assert_eq!(stdout(&output), "", "{args:?}");
    }
}

#[test]
fn a_token_that_is_refused_is_4() {
    let shell = Shell::with_server(&["--token", "0123456789012345678901234567890123456789"]);
    std::fs::write(shell.path().join("wrong"), "wrong").unwrap();
    for args in COMMANDS {
        assert!(shell.fails(args, 4).contains("--token-file"), "{args:?}");
    }
    // A server slows down an address that tries many tokens.
    for args in [&COMMANDS[0], &COMMANDS[2], &COMMANDS[4], &COMMANDS[6]] {
        let with_token = [args, &["--token-file", "wrong"][..]].concat();
        assert!(shell.fails(&with_token, 4).contains("bad_token"), "{args:?}");
    }
    std::fs::write(shell.path().join("right"), "0123456789012345678901234567890123456789\n").unwrap();
    shell.says(&["pub", "hello", "1", "--token-file", "right"]);
    assert!(shell.says(&["tail", "hello", "--token-file", "right"]).contains("\"offset\":0"));
    shell.says(&["health"]);
}

#[test]
fn what_does_not_exist_is_5() {
    let shell = Shell::new();
    shell.says(&["pub", "hello", "1"]);
    for args in [
        &["tail", "none"][..],
        &["topics", "show", "none"],
        &["topics", "delete", "none", "--yes"],
        &["groups", "list", "--topic", "none"],
        &["groups", "show", "none"],
        &["groups", "pause", "none", "--topic", "hello"],
        &["seek", "none", "--topic", "hello", "--to", "earliest"],
        &["dlq", "list", "none"],
        &["dlq", "redrive", "none", "--topic", "hello", "--all"],
        &["export", "none"],
        &["collections", "get", "none", "k"],
        &["collections", "query", "none"],
        &["collections", "drop", "none"],
        &["collections", "rebuild", "none"],
        &["at", "none", "k"],
        &["at", "hello", "none"],
        &["replay", "--from", "none", "--to", "copy"],
        &["schema", "show", "none"],
        &["schema", "list", "none"],
        &["schema", "delete", "none", "1"],
        &["cheat", "nothing-of-the-kind"],
    ] {
        let said = shell.fails(args, 5);
        assert!(said.contains("none") || said.contains("nothing"), "{args:?}: {said}");
    }
}

#[test]
fn wrong_flags_and_addresses_are_2() {
    let shell = Shell::new();
    for args in [
        &["pub"][..],
        &["sub"],
        &["nonsense"],
        &["topics", "list", "--url", "nowhere"],
        &["topics", "list", "--url", "http://u:p@127.0.0.1"],
        &["topics", "list", "--token-file", "none"],
        &["seek", "g", "--to", "somewhere"],
        &["dlq", "drop", "g", "--topic", "hello"],
    ] {
        shell.fails(args, 2);
    }
    shell.says(&["pub", "hello", "1"]);
    assert!(shell.fails(&["topics", "delete", "hello"], 2).contains("1 event(s) and 0 group(s)"));
    shell.says(&["sub", "hello", "--group", "g", "--from", "earliest", "--limit", "1"]);
    assert!(shell.fails(&["groups", "delete", "g"], 2).contains("0 dead letter(s); add --yes"));
    assert!(shell.says(&["groups", "list"]).contains("hello"));
    shell.says(&["groups", "delete", "g", "--yes"]);
    assert!(shell.says(&["topics", "list"]).contains("hello"));
}
