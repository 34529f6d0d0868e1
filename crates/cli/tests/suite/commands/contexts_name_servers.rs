//! `promethean context`.

use std::os::unix::fs::PermissionsExt;
use std::process::{Output, Stdio};

use super::super::{json_lines, stderr, stdout};
use super::{Shell, command, finish};

const TOKEN: &str = "0123456789012345678901234567890123456789";

/// Runs a command whose folder for contexts is the one of the shell, and whose environment names no server.
fn run(shell: &Shell, args: &[&str], input: &str) -> Output {
    let mut command = command(shell.path(), "", args);
    command.env("XDG_CONFIG_HOME", shell.path().join("config"));
    finish(
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(),
        input,
    )
}

#[test]
fn a_context_has_an_address_and_a_token() {
    let shell = Shell::with_server(&["--token", TOKEN]);
    let url = shell.server.url();
    let added =
        run(&shell, &["context", "add", "one", "--url", &url, "--token-stdin"], &format!("{TOKEN}\n"));
    assert!(
        added.status.success() && stdout(&added).contains("commands talk to it now"),
        "{}",
        stderr(&added)
    );
    let config = shell.path().join("config/promethean");
    for file in ["contexts.json", "tokens/one"] {
        let mode = std::fs::metadata(config.join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    assert!(!std::fs::read_to_string(config.join("contexts.json")).unwrap().contains(TOKEN));
    let done = run(&shell, &["pub", "hello", "1"], "");
    assert!(done.status.success(), "{}", stderr(&done));
    // The token of a context is not for other servers, even if they are named by the same address.
    assert_eq!(run(&shell, &["topics", "list", "--url", &url], "").status.code(), Some(4));
    // Older commands use contexts too.
    assert!(run(&shell, &["schema", "list"], "").status.success());
    run(&shell, &["context", "add", "two", "--url", "http://127.0.0.1:9"], "");
    let list = json_lines(&stdout(&run(&shell, &["context", "list", "--json"], "")));
    assert_eq!((&list[0]["current"], &list[1]["current"]), (&true.into(), &false.into()));
    assert!(run(&shell, &["context", "use", "two"], "").status.success());
    assert_eq!(run(&shell, &["topics", "list"], "").status.code(), Some(3));
    assert!(run(&shell, &["topics", "list", "--context", "one"], "").status.success());
    let people = stdout(&run(&shell, &["context", "list"], ""));
    assert!(people.lines().nth(2).unwrap().ends_with("in use"), "{people}");
    assert!(run(&shell, &["context", "remove", "one"], "").status.success());
    assert!(!config.join("tokens/one").exists());
}

#[test]
fn mistakes_are_named() {
    let shell = Shell::new();
    let refused = |args: &[&str], code: i32, why: &str| {
        let output = run(&shell, args, "");
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        assert!(stderr(&output).contains(why), "{args:?}: {}", stderr(&output));
    };
    refused(&["context", "use", "none"], 5, "context add");
    refused(&["context", "add", "../x", "--url", "http://a"], 2, "cannot name a context");
    refused(&["context", "add", "x", "--url", "nowhere"], 2, "not the address");
    refused(&["context", "add", "x", "--url", "http://a", "--token-stdin"], 2, "no token");
    refused(&["context", "add", "x", "--url", "http://a", "--token-file", "none"], 2, "none");
    refused(&["topics", "list", "--context", "none"], 2, "no context `none`");
    run(&shell, &["context", "add", "x", "--url", "http://127.0.0.1:9"], "");
    refused(&["context", "add", "x", "--url", "http://127.0.0.1:9"], 2, "--replace");
    // Without a home directory only contexts are missing.
    assert!(shell.fails(&["context", "add", "x", "--url", "http://127.0.0.1:9"], 2).contains("HOME"));
    shell.says(&["context", "list"]);
    shell.says(&["pub", "hello", "1"]);
}
