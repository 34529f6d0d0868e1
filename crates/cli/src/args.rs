//! What the command line accepts.

use std::net::SocketAddr;
use std::path::PathBuf;

use promethean_gateway::auth::Secret;

use crate::config::Overrides;

use clap::{Args, Parser, Subcommand, ValueEnum};

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
    /// Measure this machine and the log on it
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Make tokens and check them
    #[command(subcommand)]
    Token(TokenCommand),
    /// Read a whole data directory and report what is damaged
    Verify(VerifyArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure the event log, one JSON object per line, with the raw limits of the machine beside it
    Log(BenchArgs),
    /// Measure publishing and consumer groups over the embedded store, one JSON object per line
    Bus(BusArgs),
    #[command(hide = true)]
    Child(ChildArgs),
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

/// What `bench log` measures, and how much of it.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Work in this directory and leave the log that `read` filled in it [default: a temporary directory inside the
    /// current one]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Take seconds instead of minutes, with fewer events; figures are rough
    #[arg(long)]
    pub(crate) quick: bool,
    /// Events of the largest measurements; the others take a part of it [default: 10000000, quick: 300000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..))]
    pub(crate) events: Option<u64>,
    /// Publishers of `append`, a thread each
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) publishers: u16,
    /// Batches each publisher keeps unacknowledged
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) outstanding: u16,
    /// Length of a whole event record: header, id, time, key and payload
    #[arg(long, value_name = "BYTES", default_value_t = 200,
        value_parser = clap::value_parser!(u32).range(70..=1_000_000))]
    pub(crate) event_bytes: u32,
    /// Numbers of active topics that `append` is measured with
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 100, 1_000, 10_000],
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) topics: Vec<u32>,
    /// Distinct keys [default: a tenth of the events]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keys: Option<u64>,
    /// Size of the log that `reopen` opens after a kill [default: 10 GB, quick: 64 MB]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) reopen_bytes: Option<u64>,
    /// Run only these measurements
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) only: Vec<Measurement>,
}

/// The parts of `bench log`, in the order they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Measurement {
    Raw,
    Append,
    Single,
    Read,
    Lookup,
    Reopen,
    Memory,
    Checkpoint,
}

/// What `bench bus` measures, and how much of it.
#[derive(Debug, Args)]
pub(crate) struct BusArgs {
    /// Work in this directory and leave it there, empty [default: a temporary directory inside the current one]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Take seconds instead of minutes, with fewer events, groups and topics; figures are rough
    #[arg(long)]
    pub(crate) quick: bool,
    /// Events of each measurement; with several groups, deliveries [default: 2000000, quick: 100000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..))]
    pub(crate) events: Option<u64>,
    /// Publishers, a task each
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) publishers: u16,
    /// Events each publisher keeps unacknowledged
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) outstanding: u16,
    /// Length of a whole event record: header, id, time, key and payload
    #[arg(long, value_name = "BYTES", default_value_t = 200,
        value_parser = clap::value_parser!(u32).range(70..=1_000_000))]
    pub(crate) event_bytes: u32,
    /// Events a member holds unfinished
    #[arg(long, value_name = "N", default_value_t = 1_000,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) in_flight: u32,
    /// Numbers of groups that one topic is delivered to [default: 1,10,100,1000, quick: 1,10,100]
    #[arg(long, value_name = "N,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) groups: Vec<u32>,
    /// Numbers of topics with a group each [default: 1,100,10000, quick: 1,100,1000]
    #[arg(long, value_name = "N,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) topics: Vec<u32>,
    /// Groups with a member each that have nothing to do [default: 10000, quick: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) idle_groups: Option<u32>,
    /// Events published per second while latency is measured
    #[arg(long, value_name = "N", default_value_t = 5_000,
        value_parser = clap::value_parser!(u32).range(1_000..=100_000))]
    pub(crate) rate: u32,
    /// Run only these measurements
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) only: Vec<BusMeasurement>,
}

/// The parts of `bench bus`, in the order they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BusMeasurement {
    Append,
    Publish,
    #[value(name = "publish_to_ack")]
    PublishToAck,
    Drain,
    Groups,
    Topics,
    Idle,
    Latency,
}

/// Work done by a process of its own, so that it can be killed or its memory looked at.
#[derive(Debug, Args)]
pub(crate) struct ChildArgs {
    #[arg(long)]
    pub(crate) task: ChildTask,
    #[arg(long)]
    pub(crate) data: PathBuf,
    #[arg(long)]
    pub(crate) events: u64,
    #[arg(long)]
    pub(crate) event_bytes: u32,
    #[arg(long)]
    pub(crate) keys: u64,
    #[arg(long)]
    pub(crate) topics: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChildTask {
    /// Says when the events are there, then goes on publishing until it is killed.
    Fill,
    /// Publishes the events and says how much memory that took.
    Load,
    /// Subscribes to so many groups as there are to be topics, does nothing, and says what that took.
    Idle,
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
