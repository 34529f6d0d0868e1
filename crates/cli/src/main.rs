//! The `promethean` binary. `args` says what can be asked for; each command has a module of its own.

mod args;
mod at;
mod bench;
mod collections;
mod config;
mod data_dir;
mod dev;
mod generate;
mod lint;
mod output;
mod remote;
mod replay;
mod schema;
mod schema_files;
mod serve;
mod token;
mod verify;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};

#[global_allocator]
static ALLOCATOR: promethean_allocator::Allocator = promethean_allocator::Allocator;

/// Exit code of a command that could not do its work.
const EXIT_FAILED: u8 = 2;

fn main() -> ExitCode {
    promethean_allocator::give_back_soon();
    let done = match Cli::parse().command {
        Command::At(args) => at::run(&args),
        Command::Bench(command) => bench::run(&command).map(|()| ExitCode::SUCCESS),
        Command::Collections(command) => collections::run(&command),
        Command::Dev(args) => dev::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Lint(args) => lint::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Schema(command) => schema::run(&command),
        Command::Serve(args) => serve::run(&args),
        Command::Token(command) => token::run(&command),
        Command::Verify(args) => verify::run(&args),
    };
    done.unwrap_or_else(|error| {
        eprintln!("promethean: {error:#}");
        ExitCode::from(EXIT_FAILED)
    })
}
