//! A running server is given other tokens.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::served::Served;

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
fn until(served: &Served, token: &str, status: &str) {
    for _ in 0..4_000 {
        if served.status("/topics", token) == status {
            return;
        }
        // Nothing tells that a server has read a file but that it has.
        let (_keep, wait) = std::sync::mpsc::sync_channel::<()>(0);
        let _ = wait.recv_timeout(Duration::from_millis(25));
    }
    panic!("`{token}` is not {status}");
}

#[test]
fn changed_tokens_count_by_themselves_and_at_once_with_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "50ms", &[("one", "admin"), ("two", "admin")]);
    let served = Served::start(dir.path(), &["--config", "c.toml"]);
    assert_eq!(
        (served.status("/topics", "one"), served.status("/topics", "three")),
        ("200".into(), "401".into())
    );
    write(dir.path(), "50ms", &[("two", "admin"), ("three", "admin")]);
    until(&served, "one", "401");
    until(&served, "three", "200");
    drop(served);
    // So rarely that only the signal can be it.
    write(dir.path(), "1h", &[("one", "admin")]);
    let served = Served::start(dir.path(), &["--config", "c.toml"]);
    write(dir.path(), "1h", &[("two", "admin")]);
    assert_eq!(served.status("/topics", "one"), "200");
    served.signal("HUP");
    until(&served, "one", "401");
    until(&served, "two", "200");
    // Nonsense stops nothing, and neither does a file that is only begun.
    for text in ["[[[", "", "# tokens follow"] {
        std::fs::write(dir.path().join("c.toml"), text).unwrap();
        served.signal("HUP");
        assert_eq!(served.status("/topics", "two"), "200");
    }
    write(dir.path(), "1h", &[("two", "admin"), ("three", "admin")]);
    served.signal("HUP");
    until(&served, "three", "200");
    assert_eq!(served.status("/topics", "two"), "200");
}
