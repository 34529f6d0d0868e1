//! `promethean serve` refuses other machines without tokens, and keeps its data private.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::running_server::RunningServer;

/// Runs a server that is expected to fail; after 60 s it has started by mistake and is killed.
fn serve(args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60", env!("CARGO_BIN_EXE_promethean"), "serve", "--store", "memory"]);
    command.env_remove("PROMETHEAN_TOKEN").env_remove("PROMETHEAN_LISTEN");
    let output = command.args(args).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn other_machines_are_not_served_without_tokens() {
    for address in ["0.0.0.0:0", "[::]:0"] {
        let (code, said) = serve(&["--listen", address]);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("--token") && said.contains("--insecure"), "{said}");
    }
}

#[test]
fn files_that_every_user_can_write_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let secret = "0123456789012345678901234567890123456789";
    let (pem, key) = ("../gateway/tests/fixtures/first.pem", "../gateway/tests/fixtures/first.key.pem");
    let write = |name: &str, bytes: Vec<u8>| std::fs::write(dir.path().join(name), bytes).unwrap();
    write("jwt.toml", b"[auth.jwt]\nsecret_file = \"secret\"".into());
    write("secret", secret.into());
    write("tokens.toml", b"[auth]\ntokens_file = \"listed.toml\"".into());
    write(
        "listed.toml",
        format!("[[tokens]]\nname = \"n\"\nscopes = [\"admin\"]\nsha256 = \"{:064}\"", 7).into(),
    );
    write("tls.toml", b"[tls]\ncertificate = \"tls.pem\"\nkey = \"tls.key\"".into());
    write("tls.pem", std::fs::read(pem).unwrap());
    write("tls.key", std::fs::read(key).unwrap());
    for (config, file) in [
        ("jwt.toml", "jwt.toml"),
        ("jwt.toml", "secret"),
        ("tokens.toml", "listed.toml"),
        ("tls.toml", "tls.pem"),
        ("tls.toml", "tls.key"),
    ] {
        let path = dir.path().join(file);
        let allow =
            |mode: u32| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        allow(0o602);
        let config = dir.path().join(config);
        let (code, said) = serve(&["--listen", "127.0.0.1:0", "--config", config.to_str().unwrap()]);
        assert_eq!(code, Some(2), "{file}: {said}");
        assert!(said.contains(file) && said.contains("chmod o-w"), "{file}: {said}");
        allow(0o600);
    }
    // And with the right modes the server starts.
    RunningServer::in_memory(dir.path(), &["--config", "jwt.toml"]).stop();
    RunningServer::in_memory(dir.path(), &["--config", "tls.toml"]).stop();
}

/// Starts a server with this umask on a data directory, and returns the first lines of its log, up to one that has `says`.
fn log_of_server(dir: &Path, umask: &str, data: &str, says: &str) -> String {
    let mut child = Command::new("sh")
        .current_dir(dir)
        .args(["-c", "umask $0; exec \"$@\"", umask, env!("CARGO_BIN_EXE_promethean")])
        .args(["serve", "--listen", "127.0.0.1:0", "--data", data])
        .env_remove("PROMETHEAN_LISTEN")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    while let Some(Ok(line)) = lines.next() {
        said = format!("{said}{line}\n");
        if line.contains(says) {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    said
}

/// The paths in a folder that group or others have a right to.
fn open_to_others(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            found.push(format!("{} {mode:o}", entry.path().display()));
        }
        if entry.file_type().unwrap().is_dir() {
            found.extend(open_to_others(&entry.path()));
        }
    }
    found
}

#[test]
fn only_the_user_of_the_server_can_read_its_data() {
    let dir = tempfile::tempdir().unwrap();
    let said = log_of_server(dir.path(), "000", "data", "127.0.0.1");
    assert_eq!(open_to_others(dir.path()), Vec::<String>::new(), "{said}");
    assert!(dir.path().join("data/state").exists() && !said.contains("every user"), "{said}");
}

#[test]
fn a_directory_that_every_user_can_read_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    let said = log_of_server(dir.path(), "022", data.to_str().unwrap(), "127.0.0.1");
    assert!(said.contains(&format!("chmod go-rwx {}", data.display())), "{said}");
}

#[test]
fn the_durability_of_the_configuration_is_that_of_the_answers() {
    let dir = tempfile::tempdir().unwrap();
    let config = "durability = \"os\"\n[topics.\"kept\"]\ndurability = \"fsync\"\n";
    std::fs::write(dir.path().join("c.toml"), config).unwrap();
    let server = RunningServer::start(dir.path(), &["--config", "c.toml", "--data", "data"]);
    let said = server.ask("POST", "/publish/other", "1");
    assert!(said.contains("\"durability\":\"os\""), "{said}");
    let said = server.ask("POST", "/publish/kept", "1");
    assert!(said.contains("\"durability\":\"fsync\""), "{said}");
    let shown = server.ask("GET", "/admin/config", "");
    assert!(shown.contains(r#"{"key":"durability","value":"os"}"#), "{shown}");
    server.stop();
}
