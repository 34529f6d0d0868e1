//! One module per behaviour; `running_server` starts a server for the tests.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops where its set-up does")]

mod attacks_leave_the_server_well;
mod backups_are_incremental_and_checked;
mod backups_restore_one_point;
mod bench_gateway_measures_a_server_process;
mod bench_prints_one_json_line_per_measurement;
mod bench_publish_and_subscribe_print_one_line;
mod changed_tokens_take_effect_while_running;
mod client;
mod commands;
mod connections_leave_descriptors_to_the_store;
mod dev_registers_its_schemas;
mod generated_types_agree_with_their_schema;
mod help_lists_every_command;
mod https_trusts_a_listed_certificate;
mod killed_server_loses_nothing;
mod lint_finds_mistakes;
mod log_lines_have_one_format;
mod paused_server_takes_what_arrived;
mod projectors_keep_state_through_kills;
mod replay_skips_filtered_events;
mod running_server;
mod schemas_are_registered_and_compared;
mod serve_bounds_topics;
mod serve_protects_its_data;
mod serve_sets_topics_that_it_writes;
mod tokens_are_created_and_checked;
mod verify_names_damage;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Runs the binary in `dir`.
fn promethean(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_promethean")).current_dir(dir).args(args).output().unwrap()
}

/// An address for a server that listens on it again after each restart.
///
/// The loopback address belongs to this process alone, and the system gives none of its ports to other
/// processes.
fn own_address() -> SocketAddr {
    static PORT: AtomicU16 = AtomicU16::new(8_090);
    let [_, a, b, c] = std::process::id().to_be_bytes();
    SocketAddr::from(([127, a, b, c], PORT.fetch_add(1, Ordering::Relaxed)))
}

/// The JSON objects of a text, one per line.
fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Polls another process until `look` finds what a test waits for.
#[expect(clippy::disallowed_methods, reason = "another process gives no signal to wait for")]
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
