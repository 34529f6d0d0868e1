//! The `promethean` binary; each subcommand has a module in `commands`.

mod backup_set;
mod commands;
mod config;
mod contexts;
mod descriptors;
mod failure;
mod output;
mod remote;
mod schema_files;
mod session;
mod target;
mod template;

use std::process::ExitCode;

use clap::Parser;

use crate::commands::Cli;

#[global_allocator]
static ALLOCATOR: promethean_allocator::Allocator = promethean_allocator::Allocator;

fn main() -> ExitCode {
    promethean_allocator::give_back_soon();
    Cli::parse().command.run().unwrap_or_else(|error| failure::report(&error))
}
