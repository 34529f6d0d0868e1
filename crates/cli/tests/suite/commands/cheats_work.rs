//! Every answer of `promethean cheat` works as it is.

use std::path::Path;
use std::process::Command;

use super::super::{json_lines, stderr, stdout};
use super::Shell;

#[test]
fn each_answer_can_be_copied() {
    let shell = Shell::new();
    let cheats = json_lines(&shell.says(&["cheat", "--json"]));
    assert!(cheats.len() >= 20);
    let bin = Path::new(env!("CARGO_BIN_EXE_promethean")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    for cheat in &cheats {
        let commands = cheat["commands"].as_str().unwrap();
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", commands])
            .current_dir(shell.path())
            .env("PATH", &path)
            .env("HOME", shell.path())
            .env_remove("XDG_CONFIG_HOME")
            .env("PROMETHEAN_URL", shell.server.url())
            .output()
            .unwrap();
        assert!(output.status.success(), "{commands}\n{}{}", stdout(&output), stderr(&output));
    }
    let people = shell.says(&["cheat", "dead", "letters"]);
    assert!(people.starts_with("# ") && people.contains("promethean dlq redrive"), "{people}");
}
