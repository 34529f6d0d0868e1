//! What `promethean bench` accepts.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure the event log, one JSON object per line, with the raw limits of the machine beside it
    Log(BenchArgs),
    /// Measure publishing and consumer groups over the embedded store, one JSON object per line
    Bus(BusArgs),
    /// Measure a server over WebSocket and HTTP on this machine, one JSON object per line
    Gateway(GatewayArgs),
    /// Measure what it costs to hold payloads against a schema, one JSON object per line
    Schema(SchemaBenchArgs),
    /// Measure projectors, documents over HTTP, time travel and compaction, one JSON object per line
    State(StateArgs),
    /// Publish N events and say how many went through per second
    Publish(SeedArgs),
    /// Publish N events, receive them, and say how long each was on its way, in milliseconds
    Subscribe(SeedArgs),
    #[command(hide = true)]
    Child(ChildArgs),
}

/// What all that prints one line per measurement accepts.
#[derive(Debug, Args)]
pub(crate) struct CommonArgs<M: ValueEnum + Send + Sync + 'static> {
    /// Work in this directory and keep it; `bench log` leaves the log that `read` filled in it [default: a temporary
    /// directory inside the current one]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Take seconds instead of minutes, with less of everything; figures are rough
    #[arg(long)]
    pub(crate) quick: bool,
    /// Run only these measurements
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) only: Vec<M>,
}

/// What `bench log` measures, and how much of it.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs<Measurement>,
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
    #[command(flatten)]
    pub(crate) common: CommonArgs<BusMeasurement>,
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

/// What `bench gateway` measures, and how much of it.
#[derive(Debug, Args)]
pub(crate) struct GatewayArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs<GatewayMeasurement>,
    /// Events of the largest measurements; the others take a part of it [default: 1000000, quick: 40000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..))]
    pub(crate) events: Option<u64>,
    /// Events published per second while `latency` is measured
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) rate: u32,
    /// Subscribers of `fanout`, each a group of its own
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) subscribers: u32,
    /// Events published per second to all subscribers of `fanout`
    #[arg(long, value_name = "N", default_value_t = 2_000,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) fanout_rate: u32,
    /// Numbers of sockets with nothing to do [default: 2000,10000, quick: 500]
    #[arg(long, value_name = "N,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub(crate) sockets: Vec<u32>,
}

/// The parts of `bench gateway`, in the order they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GatewayMeasurement {
    Publish,
    #[value(name = "publish_batch")]
    PublishBatch,
    Single,
    Drain,
    Latency,
    Fanout,
    Replay,
    Idle,
    Memory,
    Restart,
}

/// What `bench publish` and `bench subscribe` do.
#[derive(Debug, Args)]
pub(crate) struct SeedArgs {
    /// Number of events
    #[arg(long, value_name = "N", env = "N", default_value_t = 100_000,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) n: u64,
    /// Where they go
    #[arg(long, value_name = "TOPIC", env = "TOPIC", default_value = "bench.topic")]
    pub(crate) topic: String,
    /// Events that may be on their way to the store at once; with 1 each waits for the one before
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) window: u32,
    /// The store of a bus inside this process
    #[arg(long, value_name = "STORE", value_enum, default_value_t = StoreKind::Memory, conflicts_with = "url")]
    pub(crate) store: StoreKind,
    /// Where the embedded store works [default: a temporary directory inside the current one]
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    pub(crate) data: Option<PathBuf>,
    /// Use the server at this address, such as ws://127.0.0.1:8090, in place of a bus inside this process
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// What the server is to know us by
    #[arg(long, value_name = "TOKEN", env = "PROMETHEAN_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
}

/// How much `bench schema` measures.
#[derive(Debug, Args)]
pub(crate) struct SchemaBenchArgs {
    /// Events of each measurement
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(20..))]
    pub(crate) events: u64,
}

/// How much `bench state` measures.
#[derive(Debug, Args)]
pub(crate) struct StateArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs<StateMeasurement>,
    /// Events of the largest measurements [default: 1000000, quick: 50000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(10_000..))]
    pub(crate) events: Option<u64>,
}

/// What `bench state` can measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StateMeasurement {
    /// Projectors in Rust and as jq, beside reading the topic
    Project,
    /// Documents over HTTP, whole and unchanged
    Snap,
    /// The state of a key at some time, in topics of growing size
    Travel,
    /// Snapshots of many keys
    Compact,
}

/// Where a bus inside this process keeps events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreKind {
    /// As long as the process runs
    Memory,
    /// On disk, each event synced
    Embedded,
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
