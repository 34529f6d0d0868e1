//! One module per command.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops where its set-up does")]

mod bench;
mod bench_gateway;
mod bench_seed;
mod generate;
mod help;
mod kill;
mod lint;
mod reload;
mod schema;
mod serve;
mod served;
mod state;
mod token;
mod verify;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU16, Ordering};

/// Runs the binary in `dir`.
fn promethean(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_promethean")).current_dir(dir).args(args).output().unwrap()
}

/// An address for a server that must find it free again after each restart.
///
/// The loopback address is of this process alone, and nobody is given one of its ports by the system.
fn own_address() -> SocketAddr {
    static PORT: AtomicU16 = AtomicU16::new(8_090);
    let [_, a, b, c] = std::process::id().to_be_bytes();
    SocketAddr::from(([127, a, b, c], PORT.fetch_add(1, Ordering::Relaxed)))
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
