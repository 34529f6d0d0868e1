//! Everything behind `promethean bench`: each subcommand is a module with its flags, plan and measurements.
//!
//! | module | holds |
//! | --- | --- |
//! | `log`, `bus`, `gateway`, `schema`, `state` | the bench of each layer, a JSON line per measurement |
//! | `pubsub` | `bench publish` and `bench subscribe` |
//! | `run` | a run: the flags all benches share, measurements in turn, goals, the summary |
//! | `load`, `scratch`, `timing`, `local_bus` | events, directories, the stopwatch, a bus in this process |
//! | `child` | work in a process of its own |
//! | `wire` | the client that measures a server |
//! | [`output`], [`data_dir`] | JSON lines and progress; opening a log: the other commands use them too |

mod bus;
mod child;
pub mod data_dir;
mod gateway;
mod load;
mod local_bus;
mod log;
pub mod output;
mod pubsub;
mod run;
mod schema;
mod scratch;
mod state;
mod timing;
mod wire;

use anyhow::Result;
use clap::{Args, Subcommand};

/// The arguments of `promethean bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Measure the event log beside the raw limits of the machine, one JSON object per line
    #[command(
        after_help = "Examples:\n  promethean bench log --quick\n  promethean bench log --data /mnt/disk/bench"
    )]
    Log(log::LogArgs),
    /// Measure publishing and consumer groups over the embedded store, one JSON object per line
    #[command(
        after_help = "Examples:\n  promethean bench bus --quick\n  promethean bench bus --only publish"
    )]
    Bus(bus::BusArgs),
    /// Measure a server over WebSocket and HTTP on this machine, one JSON object per line
    #[command(
        after_help = "Examples:\n  promethean bench gateway --quick\n  promethean bench gateway --only latency,fanout"
    )]
    Gateway(gateway::GatewayArgs),
    /// Measure the cost of checking payloads against a schema, one JSON object per line
    #[command(after_help = "Examples:\n  promethean bench schema\n  promethean bench schema --quick")]
    Schema(schema::SchemaArgs),
    /// Measure projectors, documents over HTTP, time travel and compaction, one JSON object per line
    #[command(after_help = "Examples:\n  promethean bench state\n  promethean bench state --quick")]
    State(state::StateArgs),
    /// Publish N events and print how many were published per second
    #[command(
        after_help = "Examples:\n  promethean bench publish\n  promethean bench publish --url http://127.0.0.1:8090"
    )]
    Publish(pubsub::PubsubArgs),
    /// Publish N events, receive them, and print how long each took to arrive, in milliseconds
    #[command(
        after_help = "Examples:\n  promethean bench subscribe\n  promethean bench subscribe --url http://127.0.0.1:8090"
    )]
    Subscribe(pubsub::PubsubArgs),
    #[command(hide = true)]
    Child(child::ChildArgs),
}

/// Runs the bench that the arguments ask for.
pub fn run(args: &BenchArgs) -> Result<()> {
    match &args.command {
        BenchCommand::Log(args) => log::run(args),
        BenchCommand::Bus(args) => bus::run(args),
        BenchCommand::Gateway(args) => gateway::run(args),
        BenchCommand::Schema(args) => schema::run(args),
        BenchCommand::State(args) => state::run(args),
        BenchCommand::Publish(args) => pubsub::publish(args),
        BenchCommand::Subscribe(args) => pubsub::subscribe(args),
        BenchCommand::Child(args) => child::run(args),
    }
}
