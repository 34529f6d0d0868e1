//! `--help` and `--version`.

use super::{promethean, stderr, stdout};

#[test]
fn help_names_the_commands_and_hides_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let help = promethean(dir.path(), &["--help"]);
    assert!(help.status.success());
    for word in [
        "at",
        "bench",
        "collections",
        "dev",
        "generate",
        "lint",
        "replay",
        "schema",
        "serve",
        "token",
        "verify",
    ] {
        assert!(stdout(&help).contains(word), "{word}");
    }
    let help = promethean(dir.path(), &["bench", "--help"]);
    assert!(stdout(&help).contains("log") && !stdout(&help).contains("child"));
    for word in ["bus", "gateway", "schema", "state", "publish", "subscribe"] {
        assert!(stdout(&help).contains(word), "{word}");
    }
    let help = promethean(dir.path(), &["bench", "gateway", "--help"]);
    for word in ["--data", "--quick", "--events", "--sockets", "--subscribers", "--only", "publish_batch"] {
        assert!(stdout(&help).contains(word), "{word}");
    }
    let help = promethean(dir.path(), &["bench", "bus", "--help"]);
    for word in ["--data", "--quick", "--events", "--groups", "--only", "publish_to_ack"] {
        assert!(stdout(&help).contains(word), "{word}");
    }
    let help = promethean(dir.path(), &["bench", "log", "--help"]);
    for word in ["--data", "--quick", "--events", "--publishers", "--only", "lookup"] {
        assert!(stdout(&help).contains(word), "{word}");
    }
}

#[test]
fn version_is_the_workspaces() {
    let dir = tempfile::tempdir().unwrap();
    let version = promethean(dir.path(), &["--version"]);
    assert_eq!(stdout(&version), format!("promethean {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn unknown_measurements_are_refused_with_the_known_ones() {
    let dir = tempfile::tempdir().unwrap();
    let refused = promethean(dir.path(), &["bench", "log", "--only", "speed"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("append"), "{}", stderr(&refused));
}
