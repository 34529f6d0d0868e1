//! `promethean lint`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use super::running_server::RunningServer;
use super::{promethean, stderr, stdout};

/// A folder with these files.
fn files(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

/// Runs `promethean lint`; returns the exit code and `rule where` of each finding.
fn lint(dir: &Path, args: &[&str]) -> (i32, BTreeSet<String>) {
    let output = promethean(dir, &[&["lint", "--json"], args].concat());
    let code = output.status.code().unwrap();
    let report: Value =
        serde_json::from_str(&stdout(&output)).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    let found = report["findings"].as_array().unwrap();
    for finding in found {
        for name in ["severity", "rule", "where", "what", "fix"] {
            assert!(finding[name].as_str().is_some_and(|text| !text.is_empty()), "{finding}");
        }
    }
    let count = |severity: &str| found.iter().filter(|finding| finding["severity"] == severity).count();
    assert_eq!((&report["errors"], &report["warnings"]), (&count("error").into(), &count("warning").into()));
    assert_eq!(code == 1, count("error") > 0 || (args.contains(&"--strict") && !found.is_empty()));
    let line = |finding: &Value| {
        format!("{} {}", finding["rule"].as_str().unwrap(), finding["where"].as_str().unwrap())
    };
    (code, found.iter().map(line).collect())
}

fn expect(dir: &Path, args: &[&str], code: i32, expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(|line| (*line).to_owned()).collect();
    assert_eq!(lint(dir, args), (code, expected), "{args:?}");
}

const OBJECT: &str = r#"{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}"#;
const WIDER: &str = r#"{"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}"#;
const NARROWER: &str =
    r#"{"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}, "required": ["a", "b"]}"#;

#[test]
fn correct_files_have_no_findings() {
    let dir = files(&[
        ("c.toml", "schemas = \"s\"\n[topics.\"orders.placed\"]\nschema = \"required\"\n"),
        ("s/orders.placed/v1.json", OBJECT),
        ("s/orders.placed/v2.json", WIDER),
        ("s/orders.placed/v2-to-v1.jq", "."),
        ("s/orders.placed.v1/v1.json", OBJECT),
        ("s/README.md", "said"),
    ]);
    expect(dir.path(), &["--config", "c.toml", "--strict"], 0, &[]);
    let people = promethean(dir.path(), &["lint", "--schemas", "s"]);
    assert_eq!(stdout(&people), "0 error(s), 0 warning(s)\n");
}

#[test]
fn the_examples_have_no_findings() {
    let examples = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"));
    expect(examples, &["--schemas", "schemas", "--strict"], 0, &[]);
    let mut configurations = 0;
    for entry in std::fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            expect(examples, &["--config", path.to_str().unwrap(), "--strict"], 0, &[]);
            configurations += 1;
        }
    }
    assert!(configurations >= 3);
}

#[test]
fn wrong_topic_names_are_found() {
    let long = "a.".repeat(86);
    let config = format!(
        "schemas = \"s\"\n[topics.\"Orders\"]\n[topics.\"a..b\"]\n[topics.\"_own\"]\n[topics.\"a.dlq\"]\nmax_attempts = 3\n[topics.\"{long}a\"]\n"
    );
    let dir = files(&[
        ("c.toml", &config),
        ("s/single/v1.json", OBJECT),
        ("s/_own.topic/v1.json", OBJECT),
        ("s/a.snapshot/v1.json", OBJECT),
        ("s/orders.placed.v3/v1.json", OBJECT),
        ("s/Upper.case/v1.json", OBJECT),
    ]);
    let long = format!("topic_long c.toml [topics.\"{long}a\"]");
    let uncovered = long.replace("topic_long", "schema_missing");
    let expected = [
        "topic_name c.toml [topics.\"Orders\"]",
        "topic_name c.toml [topics.\"a..b\"]",
        "topic_system c.toml [topics.\"_own\"]",
        "config_invalid c.toml",
        &long,
        &uncovered,
        "topic_single_word s/single",
        "topic_system s/_own.topic",
        "topic_system s/a.snapshot",
        "topic_version s/orders.placed.v3",
        "topic_name s/Upper.case",
    ];
    expect(dir.path(), &["--config", "c.toml"], 1, &expected);
}

#[test]
fn topics_that_the_server_writes_may_have_retention() {
    let config = "schemas = \"s\"\n[topics.\"a.b.dlq\"]\nretention = { age = \"30d\" }\n[topics.\"a.b.v2\"]\ndurability = \"os\"\n";
    let dir = files(&[("c.toml", config), ("s/a.b/v1.json", OBJECT)]);
    expect(dir.path(), &["--config", "c.toml", "--strict"], 0, &[]);
}

#[test]
fn durabilities_that_no_store_offers_are_found() {
    let dir = files(&[("c.toml", "listen = \"127.0.0.1:0\"\n[topics.\"a.b\"]\ndurability = \"majority\"\n")]);
    let said = stdout(&promethean(dir.path(), &["lint", "--config", "c.toml"]));
    let expected = "error[config_invalid] c.toml:2: [topics.\"a.b\"]: no store of this server offers durability `majority`; \
                    use `fsync` or `os`\n";
    assert!(said.contains(expected), "{said}");
    let refused = promethean(dir.path(), &["serve", "--config", "c.toml"]);
    assert!(
        !refused.status.success() && stderr(&refused).contains("use `fsync` or `os`"),
        "{}",
        stderr(&refused)
    );
    assert!(!dir.path().join("promethean-data").exists());
}

#[test]
fn wrong_configurations_are_found() {
    let dir = files(&[
        (
            "unknown.toml",
            "lisen = \"127.0.0.1:1\"\n[topics.\"a.b\"]\ncompacted = true\nretention = { count = 5 }\n",
        ),
        ("open.toml", "listen = \"0.0.0.0:8090\"\n"),
        (
            "plain.toml",
            "listen = \"0.0.0.0:8090\"\n[[auth.tokens]]\nname = \"n\"\nscopes = [\"admin\"]\nsha256 = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\n",
        ),
        ("tls.toml", "[tls]\ncertificate = \"none.pem\"\nkey = \"none.key\"\n"),
        (
            "off.toml",
            "schemas = \"s\"\n[topics.\"a.b\"]\nschema = \"off\"\ncompat = \"none\"\n[topics.\"a.c\"]\nschema = \"required\"\n[topics.\"a.d\"]\n",
        ),
        ("s/a.b/v1.json", OBJECT),
        ("c.toml", ""),
        ("headers.toml", "stored_headers = [\"x-region\", \"X-Api-Key\"]"),
        ("secret.toml", "[auth.jwt]\nsecret_file = \"secret\""),
        ("secret", "0123456789012345678901234567890123456789"),
    ]);
    expect(dir.path(), &["--config", "headers.toml"], 0, &["header_credential headers.toml"]);
    expect(dir.path(), &["--config", "secret.toml"], 0, &["secret_readable secret.toml"]);
    fs::set_permissions(dir.path().join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    expect(dir.path(), &["--config", "secret.toml"], 0, &[]);
    fs::set_permissions(dir.path().join("secret"), fs::Permissions::from_mode(0o602)).unwrap();
    expect(dir.path(), &["--config", "secret.toml"], 1, &["config_invalid secret.toml"]);
    let contradict = "settings_contradict unknown.toml [topics.\"a.b\"]";
    expect(dir.path(), &["--config", "unknown.toml"], 1, &["config_invalid unknown.toml", contradict]);
    expect(dir.path(), &["--config", "open.toml"], 1, &["exposure open.toml", "exposure_plain open.toml"]);
    expect(dir.path(), &["--config", "plain.toml"], 0, &["exposure_plain plain.toml"]);
    expect(dir.path(), &["--config", "plain.toml", "--strict"], 1, &["exposure_plain plain.toml"]);
    expect(dir.path(), &["--config", "tls.toml"], 1, &["file_missing tls.toml"]);
    let expected = [
        "settings_contradict off.toml [topics.\"a.b\"]",
        "schema_ignored s/a.b",
        "schema_required off.toml [topics.\"a.c\"]",
        "schema_missing off.toml [topics.\"a.d\"]",
    ];
    expect(dir.path(), &["--config", "off.toml"], 1, &expected);
}

#[test]
fn every_mistake_of_a_configuration_has_its_line() {
    let text = "lisen = \"127.0.0.1:1\"\n\n[topics.\"a.b\"]\ncompacted = true\nretention = { count = 5 }\nmax_attempt = 3\n\
                [limits]\nconnections = \"many\"\n[topics.billing]\n";
    let dir = files(&[("c.toml", text), ("open.toml", "data = \"d\"\nlisten = \"0.0.0.0:8090\"\n")]);
    let said = stdout(&promethean(dir.path(), &["lint", "--config", "c.toml"]));
    for expected in [
        "error[config_invalid] c.toml:1: `lisen` is not known here; write `listen`\n",
        "error[config_invalid] c.toml:6: `max_attempt` is not known here; write `max_attempts`\n",
        "error[config_invalid] c.toml:8: ",
        "warning[topic_single_word] c.toml:9 [topics.\"billing\"]: ",
        "warning[settings_contradict] c.toml:3 [topics.\"a.b\"]: ",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let report = stdout(&promethean(dir.path(), &["lint", "--config", "open.toml", "--json"]));
    let report: Value = serde_json::from_str(&report).unwrap();
    for finding in report["findings"].as_array().unwrap() {
        assert_eq!(finding["line"], 2, "{finding}");
    }
}

#[test]
fn wrong_schemas_and_programs_are_found() {
    let dir = files(&[
        (
            "c.toml",
            "schemas = \"s\"\n[topics.\"free.form\"]\ncompat = \"none\"\n[topics.\"told.full\"]\ncompat = \"full\"\n[topics.\"lifted.up\"]\ncompat = \"none\"\n[topics.\"long.ago\"]\ncompat = \"backward_transitive\"\n",
        ),
        ("s/bad.json/v1.json", "{"),
        ("s/bad.schema/v1.json", r#"{"type": "sting"}"#),
        ("s/breaks.it/v1.json", OBJECT),
        ("s/breaks.it/v2.json", NARROWER),
        ("s/told.full/v1.json", OBJECT),
        ("s/told.full/v2.json", WIDER),
        ("s/free.form/v1.json", OBJECT),
        ("s/free.form/v2.json", NARROWER),
        ("s/lifted.up/v1.json", OBJECT),
        ("s/lifted.up/v2.json", NARROWER),
        ("s/lifted.up/v1-to-v2.jq", ".b = 1"),
        ("s/lifted.up/v1-to-v3.jq", ".b = 1"),
        ("s/lifted.up/v7-to-v2.jq", "."),
        ("s/jq.bad/v1.json", OBJECT),
        ("s/jq.bad/v2.json", OBJECT),
        ("s/jq.bad/v1-to-v2.jq", "nope("),
        ("s/long.ago/v1.json", OBJECT),
        ("s/long.ago/v2.json", OBJECT),
        ("s/long.ago/v3.json", NARROWER),
        ("s/stray.txt", ""),
        ("s/jq.bad/v01.json", OBJECT),
    ]);
    let expected = [
        "schema_invalid s/bad.json/v1.json",
        "schema_invalid s/bad.schema/v1.json",
        "schema_incompatible s/breaks.it/v2.json",
        "schema_incompatible s/told.full/v2.json",
        "upcaster_missing s/free.form/v2.json",
        "upcaster_dangling s/lifted.up/v1-to-v3.jq",
        "upcaster_dangling s/lifted.up/v7-to-v2.jq",
        "upcaster_invalid s/jq.bad/v1-to-v2.jq",
        "schema_incompatible s/long.ago/v3.json",
        "schema_file s/stray.txt",
        "schema_file s/jq.bad/v01.json",
    ];
    expect(dir.path(), &["--config", "c.toml"], 1, &expected);
    // Mistakes that no rule finds are found by the trial in memory.
    let dir = files(&[
        ("s/a.b/v1.json", OBJECT),
        ("s/a.b/v2.json", OBJECT),
        ("s/a.b/v3.json", OBJECT),
        ("s/a.b/v1-to-v2.jq", "."),
        ("s/a.b/v1-to-v3.jq", "."),
    ]);
    expect(dir.path(), &["--schemas", "s"], 1, &["folder_refused s/a.b/v1-to-v3.jq"]);
}

#[test]
fn a_named_server_is_checked() {
    let dir = files(&[("s/orders.placed/v1.json", OBJECT), ("s/orders.placed/v2.json", WIDER)]);
    let server = RunningServer::in_memory(dir.path(), &[]);
    server.ask("POST", "/schemas/orders.placed", WIDER);
    // Headers of a request are filtered by the server; the lines of a batch can carry any header.
    let event =
        r#"{"payload": {"a": 1}, "opts": {"headers": {"x-a": "1", "Trace": "2", "traceparent": "3"}}}"#;
    server.ask("POST", "/publish/orders.placed/batch", event);
    server.ask("POST", "/publish/other.thing", "1");
    server.ask("PUT", "/topics/never.used", r#"{"schema": "required"}"#);
    let url = server.url();
    let place = |rule: &str, topic: &str| format!("{rule} {url} {topic}");
    let expected = [
        place("header_name", "orders.placed"),
        place("schema_missing", "other.thing"),
        place("schema_required", "never.used"),
        place("topic_unused", "never.used"),
    ];
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    expect(dir.path(), &["--server", &url], 1, &expected);
    let people = stdout(&promethean(dir.path(), &["lint", "--server", &url]));
    assert!(
        people.contains("events have the header `Trace`") && people.contains("publish it as `x-trace`"),
        "{people}"
    );
    assert_eq!(people.matches("header_name").count(), 1, "{people}");
    let folder = ["schema_differs orders.placed/v1.json", "schema_unregistered orders.placed/v2.json"];
    expect(dir.path(), &["--server", &url, "--schemas", "s"], 1, &[&expected, &folder[..]].concat());

    let output = promethean(dir.path(), &["generate", "rust", "--server", &url]);
    assert!(stdout(&output).contains("pub struct OrdersPlaced {\n    pub a: f64,\n}"), "{}", stdout(&output));
    assert!(stdout(&output).contains("pub const ORDERS_PLACED: u32 = 1;"));
}

#[test]
fn missing_inputs_are_errors_not_findings() {
    let dir = files(&[]);
    let refused = |args: &[&str], reason: &str| {
        let output = promethean(dir.path(), &[&["lint"], args].concat());
        let code = if args.contains(&"--url") { 3 } else { 2 };
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        assert!(stderr(&output).contains(reason), "{args:?}: {}", stderr(&output));
    };
    refused(&[], "nothing to check");
    refused(&["--config", "none.toml"], "no file `none.toml`");
    refused(&["--schemas", "none"], "`none`");
    refused(&["--url", "http://127.0.0.1:1"], "no server at http://127.0.0.1:1");
}
