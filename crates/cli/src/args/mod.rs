//! What the command line accepts.

mod bench;

use std::net::SocketAddr;
use std::path::PathBuf;

use promethean_gateway::auth::Secret;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use self::bench::{
    BenchArgs, BenchCommand, BusArgs, BusMeasurement, ChildArgs, ChildTask, CommonArgs, GatewayArgs,
    GatewayMeasurement, Measurement, SchemaBenchArgs, SeedArgs, StateArgs, StateMeasurement, StoreKind,
};
use crate::at::AtArgs;
use crate::collections::CollectionsCommand;
use crate::config::Overrides;
use crate::dev::DevArgs;
use crate::generate::GenerateArgs;
use crate::lint::LintArgs;
use crate::replay::ReplayArgs;
use crate::schema::SchemaCommand;
use crate::token::TokenCommand;

/// A durable event bus: topics of events on one machine, with lookup by offset, time, id and key.
#[derive(Debug, Parser)]
#[command(name = "promethean", version, about, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the bus over WebSocket and HTTP until stopped
    Serve(ServeArgs),
    /// Serve an example in memory, with a service that reports to it, and say where to look
    Dev(DevArgs),
    /// Look at the documents that projectors keep
    #[command(subcommand)]
    Collections(CollectionsCommand),
    /// Print what a key or a collection was at some time; exits with 1 if there was nothing
    At(AtArgs),
    /// Publish the events of one topic to another, filtered and mapped
    Replay(ReplayArgs),
    /// Register schemas of topics, compare them, and try them
    #[command(subcommand)]
    Schema(SchemaCommand),
    /// Write types of payloads from schemas
    Generate(GenerateArgs),
    /// Say what is wrong in a configuration, in schemas and on a server; exits with 1 if anything is
    Lint(LintArgs),
    /// Measure this machine and what runs on it
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Make tokens and check them
    #[command(subcommand)]
    Token(TokenCommand),
    /// Read a whole data directory and report what is damaged
    Verify(VerifyArgs),
}

/// How to serve. What is not given here is taken from the environment, then from the file, then its default.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Listen on this address; may be given several times [env: PROMETHEAN_LISTEN] [default: 127.0.0.1:8090]
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    pub(crate) listen: Vec<SocketAddr>,
    /// Keep data in this directory [env: PROMETHEAN_DATA] [default: promethean-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Where events live: `embedded`, or `memory` for as long as the server runs [env: PROMETHEAN_STORE] [default:
    /// embedded]
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<String>,
    /// Read more settings from this file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Let in whoever has this token, and nobody else [env: PROMETHEAN_TOKEN]
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// Let everybody do everything, also from other machines
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Write what is at least as grave as this to standard error
    #[arg(long, value_name = "LEVEL", env = "PROMETHEAN_LOG", default_value = "warn")]
    pub(crate) log_level: tracing::Level,
    /// How lines of the log look
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
}

/// How lines of the log look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// For programs, an object each
    Json,
}

impl ServeArgs {
    /// What the flags say.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            listen: self.listen.clone(),
            data: self.data.clone(),
            store: self.store.clone(),
            token: self.token.clone().map(Secret::from),
            insecure: self.insecure,
        }
    }
}

/// What `verify` looks at.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The data directory
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}
