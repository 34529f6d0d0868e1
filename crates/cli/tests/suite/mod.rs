//! One module per command.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops where its set-up does")]

mod bench;
mod bench_gateway;
mod bench_seed;
mod generate;
mod help;
mod kill;
mod lint;
mod schema;
mod served;
mod state;
mod token;
mod verify;

use std::path::Path;
use std::process::{Command, Output};

/// Runs the binary in `dir`.
fn promethean(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_promethean")).current_dir(dir).args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
