//! The subcommands of `promethean`: a file or folder each, with its flags and its work.
//!
//! A new subcommand is a module here, a variant of [`Command`] whose doc comment is its help, and an arm of
//! [`Command::run`]. Its help ends with two examples, and `docs/cli.md` is generated again.

mod at;
mod backup;
mod cheat;
mod collections;
mod consume;
mod context;
mod dev;
mod dlq;
mod generate;
mod groups;
mod lint;
mod manual;
mod ops;
mod publish;
mod replay;
mod restore;
mod schema;
mod serve;
mod token;
mod top;
mod topics;
mod transfer;
mod verify;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

const ROOT_HELP: &str = "Examples:
  promethean serve                          start a server; data goes to promethean-data
  promethean pub hello '{\"x\": 1}'           publish an event
  promethean tail hello -f                  see events arrive

`promethean cheat` has answers to copy, `promethean COMMAND --help` explains one command.";

/// A durable event bus: topics of events on one machine, with lookup by offset, time, id and key.
#[derive(Debug, Parser)]
#[command(name = "promethean", version, about, after_help = ROOT_HELP, propagate_version = true)]
#[command(arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the bus over WebSocket and HTTP until stopped
    Serve(serve::ServeArgs),
    /// Serve an example in memory, with a service that reports to it, and print what to look at
    Dev(dev::DevArgs),
    /// Publish events: an argument, the lines of a file, or standard input
    Pub(publish::PubArgs),
    /// Print events as they come, alone or as a member of a group
    Sub(consume::SubArgs),
    /// Print the latest events of a topic
    Tail(consume::TailArgs),
    /// Show, create, change and delete topics
    #[command(
        subcommand,
        after_help = "Examples:\n  promethean topics list\n  promethean topics set orders.placed retention.age=7d"
    )]
    Topics(topics::TopicsCommand),
    /// Show, pause, resume and delete consumer groups
    #[command(
        subcommand,
        after_help = "Examples:\n  promethean groups list\n  promethean groups show billing"
    )]
    Groups(groups::GroupsCommand),
    /// Move a group to another place of its topic
    Seek(groups::SeekArgs),
    /// Show, redrive and drop dead letters
    #[command(
        subcommand,
        after_help = "Examples:\n  promethean dlq list billing\n  promethean dlq redrive billing --all"
    )]
    Dlq(dlq::DlqCommand),
    /// Write the events of a topic to a file
    Export(transfer::ExportArgs),
    /// Publish the events of an exported file
    Import(transfer::ImportArgs),
    /// Show groups, projectors and faults of a server
    Ops(ops::OpsArgs),
    /// Show whether a server is well; exits with 1 if it is not
    Health(ops::HealthArgs),
    /// Watch groups and topics live in the terminal
    Top(top::TopArgs),
    /// Read and rebuild the documents that projectors keep
    #[command(
        subcommand,
        after_help = "Examples:\n  promethean collections list\n  promethean collections get processes local:stt:1234"
    )]
    Collections(collections::CollectionsCommand),
    /// Print the state of a key or a collection at a given time; exits with 5 if there was none
    At(at::AtArgs),
    /// Publish the events of one topic to another, filtered and mapped
    Replay(replay::ReplayArgs),
    /// Register, compare and test the schemas of topics
    #[command(
        subcommand,
        after_help = "Examples:\n  promethean schema add orders.placed order-v1.json\n  promethean schema list"
    )]
    Schema(schema::SchemaCommand),
    /// Generate payload types from schemas
    Generate(generate::GenerateArgs),
    /// Find mistakes in a configuration, in schemas and on a server; exits with 1 if there are any
    Lint(lint::LintArgs),
    /// Name servers, and choose which one commands talk to
    #[command(
        subcommand,
        after_help = "Examples:\n  promethean context add prod --url https://bus.example.com\n  promethean context use prod"
    )]
    Context(context::ContextCommand),
    /// Create and check tokens
    #[command(
        subcommand,
        after_help = "Examples:\n  promethean token new --name shop --scope 'publish:orders.**'\n  promethean token check --config promethean.toml < token.txt"
    )]
    Token(token::TokenCommand),
    /// Copy a running server to a directory, as it is at one moment
    Backup(backup::BackupArgs),
    /// Make a data directory from a backup
    Restore(restore::RestoreArgs),
    /// Read a whole data directory or backup and report damage
    Verify(verify::VerifyArgs),
    /// Measure Promethean on this machine
    #[command(
        after_help = "Examples:\n  promethean bench gateway --quick\n  promethean bench publish --url http://127.0.0.1:8090"
    )]
    Bench(promethean_bench::BenchArgs),
    /// Show answers to copy for what people do most
    Cheat(cheat::CheatArgs),
    /// Print the completions of a shell
    Completions(manual::CompletionsArgs),
    /// Write manual pages to a folder
    Man(manual::ManArgs),
    /// Print the reference in docs/cli.md
    #[command(hide = true)]
    Reference,
}

impl Command {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        match self {
            Self::At(args) => at::run(args),
            Self::Backup(args) => backup::run(args),
            Self::Bench(args) => promethean_bench::run(args).map(|()| ExitCode::SUCCESS),
            Self::Cheat(args) => cheat::run(args),
            Self::Collections(command) => collections::run(command),
            Self::Completions(args) => manual::completions(args),
            Self::Context(command) => context::run(command),
            Self::Dev(args) => dev::run(args),
            Self::Dlq(command) => dlq::run(command),
            Self::Export(args) => transfer::export(args),
            Self::Generate(args) => generate::run(args),
            Self::Groups(command) => groups::run(command),
            Self::Health(args) => ops::health(args),
            Self::Import(args) => transfer::import(args),
            Self::Lint(args) => lint::run(args),
            Self::Man(args) => manual::man(args),
            Self::Ops(args) => ops::run(args),
            Self::Pub(args) => publish::run(args),
            Self::Reference => manual::reference(),
            Self::Replay(args) => replay::run(args),
            Self::Restore(args) => restore::run(args),
            Self::Schema(command) => schema::run(command),
            Self::Seek(args) => groups::seek(args),
            Self::Serve(args) => serve::run(args),
            Self::Sub(args) => consume::run(args),
            Self::Tail(args) => consume::run_tail(args),
            Self::Token(command) => token::run(command),
            Self::Top(args) => top::run(args),
            Self::Topics(command) => topics::run(command),
            Self::Verify(args) => verify::run(args),
        }
    }
}

/// The exit code of a command that did its work: 0 for a good answer, 1 for a bad one (nothing found, a check
/// failed).
fn exit_code(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
