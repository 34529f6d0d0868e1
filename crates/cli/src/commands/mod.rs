//! The subcommands of `promethean`: a file or folder each, with its flags and its work.
//!
//! A new subcommand is a module here, a variant of [`Command`] whose doc comment is its help, and an arm of
//! [`Command::run`].

mod at;
mod collections;
mod dev;
mod generate;
mod lint;
mod replay;
mod schema;
mod serve;
mod token;
mod verify;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the bus over WebSocket and HTTP until stopped
    Serve(serve::ServeArgs),
    /// Serve an example in memory, with a service that reports to it, and print what to look at
    Dev(dev::DevArgs),
    /// Read and rebuild the documents that projectors keep
    #[command(subcommand)]
    Collections(collections::CollectionsCommand),
    /// Print the state of a key or a collection at a given time; exits with 1 if there was none
    At(at::AtArgs),
    /// Publish the events of one topic to another, filtered and mapped
    Replay(replay::ReplayArgs),
    /// Register, compare and test the schemas of topics
    #[command(subcommand)]
    Schema(schema::SchemaCommand),
    /// Generate payload types from schemas
    Generate(generate::GenerateArgs),
    /// Find mistakes in a configuration, in schemas and on a server; exits with 1 if there are any
    Lint(lint::LintArgs),
    /// Measure Promethean on this machine
    Bench(promethean_bench::BenchArgs),
    /// Create and check tokens
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Read a whole data directory and report damage
    Verify(verify::VerifyArgs),
}

impl Command {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        match self {
            Self::At(args) => at::run(args),
            Self::Bench(args) => promethean_bench::run(args).map(|()| ExitCode::SUCCESS),
            Self::Collections(command) => collections::run(command),
            Self::Dev(args) => dev::run(args),
            Self::Generate(args) => generate::run(args),
            Self::Lint(args) => lint::run(args),
            Self::Replay(args) => replay::run(args),
            Self::Schema(command) => schema::run(command),
            Self::Serve(args) => serve::run(args),
            Self::Token(command) => token::run(command),
            Self::Verify(args) => verify::run(args),
        }
    }
}

/// The exit code of a command that did its work: 0 for a good answer, 1 for a bad one (nothing found, a check
/// failed).
fn exit_code(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
