//! Tokens of the configuration file are read again while the server runs.

use std::path::Path;
use std::process::Command;

use super::running_server::RunningServer;
use super::until;

fn write(dir: &Path, check_every: &str, tokens: &[(&str, &str)]) {
    let mut text = format!("[auth]\ncheck_every = \"{check_every}\"\n");
    for (token, scope) in tokens {
        let hash =
            Command::new(env!("CARGO_BIN_EXE_promethean")).args(["token", "hash", token]).output().unwrap();
        let hash = String::from_utf8(hash.stdout).unwrap();
        text += &format!(
            "[[auth.tokens]]\nname = \"{token}\"\nscopes = [\"{scope}\"]\nsha256 = \"{}\"\n",
            hash.trim()
        );
    }
    std::fs::write(dir.join("c.toml"), text).unwrap();
}

/// Waits until the token has this status.
fn until_status(server: &RunningServer, token: &str, status: &str) {
    until(&format!("`{token}` gets {status}"), || (server.status("/topics", token) == status).then_some(()));
}

#[test]
fn changed_tokens_take_effect_by_themselves_and_at_once_with_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "50ms", &[("one", "admin"), ("two", "admin")]);
    let server = RunningServer::in_memory(dir.path(), &["--config", "c.toml"]);
    assert_eq!(
        (server.status("/topics", "one"), server.status("/topics", "three")),
        ("200".into(), "401".into())
    );
    write(dir.path(), "50ms", &[("two", "admin"), ("three", "admin")]);
    until_status(&server, "one", "401");
    until_status(&server, "three", "200");
    drop(server);
    // Checked so rarely that only the signal can be the cause.
    write(dir.path(), "1h", &[("one", "admin")]);
    let server = RunningServer::in_memory(dir.path(), &["--config", "c.toml"]);
    write(dir.path(), "1h", &[("two", "admin")]);
    assert_eq!(server.status("/topics", "one"), "200");
    server.signal("HUP");
    until_status(&server, "one", "401");
    until_status(&server, "two", "200");
    // An invalid file changes nothing, and neither does a file that is written only in part.
    for text in ["[[[", "", "# tokens follow"] {
        std::fs::write(dir.path().join("c.toml"), text).unwrap();
        server.signal("HUP");
        assert_eq!(server.status("/topics", "two"), "200");
    }
    write(dir.path(), "1h", &[("two", "admin"), ("three", "admin")]);
    server.signal("HUP");
    until_status(&server, "three", "200");
    assert_eq!(server.status("/topics", "two"), "200");
}
