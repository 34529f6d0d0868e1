//! `promethean token new`, `hash` and `check`.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::{promethean, stderr, stdout};

fn json(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).unwrap_or_else(|_| panic!("{} {}", stdout(output), stderr(output)))
}

/// Runs the binary with text on standard input.
fn piped(dir: &Path, args: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_promethean"));
    command.current_dir(dir).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn a_new_token_and_its_entry_work_together() {
    let dir = tempfile::tempdir().unwrap();
    let scopes = ["--scope", "publish:orders.*", "--scope", "!publish:orders.secret"];
    let mut args = vec!["token", "new", "--name", "bill \"ing\"", "--ttl", "30d"];
    args.extend(scopes);
    let made = promethean(dir.path(), &args);
    assert!(made.status.success(), "{}", stderr(&made));
    let text = stdout(&made);
    let token = text.lines().next().unwrap();
    assert!(token.starts_with("prom_") && token.len() >= 27, "{token}");
    assert_eq!(text.matches(token).count(), 1, "shown once");
    let entry = &text[text.find("[[auth.tokens]]").unwrap()..];
    fs::write(dir.path().join("c.toml"), entry).unwrap();

    let checked = promethean(dir.path(), &["token", "check", token, "--config", "c.toml"]);
    assert!(checked.status.success(), "{} {}", stdout(&checked), stderr(&checked));
    for part in ["bill", "publish:orders.*", "!publish:orders.secret", "expires  20"] {
        assert!(stdout(&checked).contains(part), "{part}: {}", stdout(&checked));
    }
    let checked =
        piped(dir.path(), &["token", "check", "--config", "c.toml", "--json"], &format!("{token}\n"));
    let report = json(&checked);
    assert_eq!((&report["valid"], &report["name"]), (&true.into(), &"bill \"ing\"".into()));
    assert_eq!(report["scopes"], serde_json::json!(["publish:orders.*", "!publish:orders.secret"]));
    assert!(report["expires"].as_str().unwrap().ends_with('Z'));

    let other = promethean(dir.path(), &["token", "check", "prom_other", "--config", "c.toml"]);
    assert_eq!(other.status.code(), Some(1));
    assert!(stdout(&other).starts_with("bad_token: "), "{}", stdout(&other));
    let other = promethean(dir.path(), &["token", "check", "prom_other", "--config", "c.toml", "--json"]);
    assert_eq!((other.status.code(), &json(&other)["error"]), (Some(1), &"bad_token".into()));
}

#[test]
fn tokens_for_programs_come_as_json() {
    let dir = tempfile::tempdir().unwrap();
    let new =
        || json(&promethean(dir.path(), &["token", "new", "--name", "n", "--scope", "admin", "--json"]));
    let (first, second) = (new(), new());
    assert_ne!(first["token"], second["token"]);
    assert_eq!((&first["name"], &first["expires"]), (&"n".into(), &Value::Null));
    let token = first["token"].as_str().unwrap();
    let hashed = piped(dir.path(), &["token", "hash", "--json"], token);
    assert_eq!(json(&hashed)["sha256"], first["sha256"]);
    let hashed = promethean(dir.path(), &["token", "hash", "test"]);
    assert_eq!(stdout(&hashed), "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n");
}

#[test]
fn a_signed_token_needs_no_entry() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("secret"), "0123456789abcdef0123456789abcdef\n").unwrap();
    let jwt = "[auth.jwt]\nsecret_file = \"secret\"\nissuer = \"us\"\naudience = \"bus\"\n";
    fs::write(dir.path().join("c.toml"), jwt).unwrap();
    let new =
        ["token", "new", "--jwt", "--secret-file", "secret", "--name", "n", "--scope", "publish:a", "--json"];
    let make = |more: &[&str]| {
        let made = promethean(dir.path(), &[&new, more].concat());
        json(&made)["token"].as_str().unwrap_or_else(|| panic!("{}", stderr(&made))).to_owned()
    };
    let check =
        |token: &str| promethean(dir.path(), &["token", "check", token, "--config", "c.toml", "--json"]);
    let good = check(&make(&["--issuer", "us", "--audience", "bus", "--audience", "other"]));
    assert!(good.status.success(), "{}", stdout(&good));
    assert_eq!((&json(&good)["name"], &json(&good)["scopes"][0]), (&"n".into(), &"publish:a".into()));
    for bad in [&["--issuer", "us"][..], &["--issuer", "they", "--audience", "bus"], &["--audience", "bus"]] {
        assert_eq!(check(&make(bad)).status.code(), Some(1), "{bad:?}");
    }
    let expired = make(&["--issuer", "us", "--audience", "bus", "--ttl", "0s"]);
    assert!(json(&check(&expired))["message"].as_str().unwrap().contains("expired"));
    fs::write(dir.path().join("secret"), "short").unwrap();
    let refused = promethean(dir.path(), &new);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("has 5 bytes; use at least 32"), "{}", stderr(&refused));
}

#[test]
fn wrong_arguments_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("open.toml"), "").unwrap();
    let refused = |args: &[&str], reason: &str| {
        let output = promethean(dir.path(), args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(reason), "{args:?}: {}", stderr(&output));
    };
    refused(&["token", "new", "--name", "n", "--scope", "publish:A"], "scope `publish:A`");
    refused(&["token", "new", "--name", "n"], "--scope");
    refused(&["token", "new", "--name", "", "--scope", "admin"], "--name");
    refused(&["token", "new", "--name", "n", "--scope", "admin", "--ttl", "soon"], "not a length of time");
    refused(&["token", "new", "--name", "n", "--scope", "admin", "--jwt"], "--secret-file");
    refused(&["token", "new", "--name", "n", "--scope", "admin", "--issuer", "x"], "--jwt");
    refused(&["token", "check", "t", "--config", "none.toml"], "cannot read `none.toml`");
    refused(&["token", "check", "t", "--config", "open.toml"], "asks for no token");
    let nothing = piped(dir.path(), &["token", "hash"], "\n");
    assert!(stderr(&nothing).contains("no token was given"), "{}", stderr(&nothing));
}
