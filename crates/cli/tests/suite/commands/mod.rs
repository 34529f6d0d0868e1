//! The everyday commands against a real server.

mod cheats_work;
mod contexts_name_servers;
mod dead_letters_are_handled;
mod events_are_printed;
mod events_are_published;
mod exports_are_imported;
mod failures_have_exit_codes;
mod help_is_complete;
mod topics_and_groups_are_changed;

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use super::running_server::RunningServer;
use super::{stderr, stdout};

/// A server in memory, and commands that talk to it.
struct Shell {
    dir: tempfile::TempDir,
    server: RunningServer,
}

impl Shell {
    fn new() -> Self {
        Self::with_server(&[])
    }

    fn with_server(args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = RunningServer::in_memory(dir.path(), args);
        Self { dir, server }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn command(&self, args: &[&str]) -> Command {
        command(self.path(), &self.server.url(), args)
    }

    /// Runs a command with this standard input.
    fn run(&self, args: &[&str], input: &str) -> Output {
        finish(self.spawn(args), input)
    }

    fn spawn(&self, args: &[&str]) -> Child {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// The standard output of a command that must succeed.
    fn says(&self, args: &[&str]) -> String {
        let output = self.run(args, "");
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        stdout(&output)
    }

    /// The standard error of a command that must fail with this code.
    fn fails(&self, args: &[&str], code: i32) -> String {
        let output = self.run(args, "");
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}{}", stdout(&output), stderr(&output));
        stderr(&output)
    }
}

/// A command without a home directory, and with nothing else of the environment that it reads.
fn command(dir: &Path, url: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_promethean"));
    for name in ["HOME", "XDG_CONFIG_HOME", "PROMETHEAN_TOKEN", "PROMETHEAN_TOKEN_FILE", "PROMETHEAN_CONTEXT"]
    {
        command.env_remove(name);
    }
    command.current_dir(dir).env("PROMETHEAN_URL", url).args(args);
    command
}

fn finish(mut child: Child, input: &str) -> Output {
    // A command that reads no input may have ended.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}
