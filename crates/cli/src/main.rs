//! The `promethean` binary; each subcommand has a module in `commands`.

mod commands;
mod config;
mod descriptors;
mod output;
mod remote;
mod schema_files;

use std::process::ExitCode;

use clap::Parser;

use crate::commands::Command;

#[global_allocator]
static ALLOCATOR: promethean_allocator::Allocator = promethean_allocator::Allocator;

/// Exit code of a command that could not do its work.
const EXIT_FAILED: u8 = 2;

/// A durable event bus: topics of events on one machine, with lookup by offset, time, id and key.
#[derive(Debug, Parser)]
#[command(name = "promethean", version, about, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    promethean_allocator::give_back_soon();
    Cli::parse().command.run().unwrap_or_else(|error| {
        eprintln!("promethean: {error:#}");
        ExitCode::from(EXIT_FAILED)
    })
}
