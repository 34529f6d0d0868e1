//! `promethean bench publish` and `promethean bench subscribe`: publish N events `{i, t0}` and print one
//! line.
//!
//! `local` uses a bus inside this process, `remote` a server.

mod local;
mod remote;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Args, ValueEnum};
use promethean_model::{Clock, SystemClock};
use serde::Deserialize;

use crate::output::JsonLine;
use crate::timing::{Samples, now};

/// The flags of `bench publish` and `bench subscribe`.
#[derive(Debug, Args)]
pub(crate) struct PubsubArgs {
    /// Number of events
    #[arg(long, value_name = "N", env = "N", default_value_t = 100_000,
        value_parser = clap::value_parser!(u64).range(1..))]
    n: u64,
    /// The topic to publish to
    #[arg(long, value_name = "TOPIC", env = "TOPIC", default_value = "bench.topic")]
    topic: String,
    /// Events that may be unacknowledged at once; with 1, each waits for the one before
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    window: u32,
    /// The store of a bus inside this process: in memory, or on disk with each event synced
    #[arg(long, value_name = "STORE", value_enum, default_value_t = BenchStore::Memory, conflicts_with = "url")]
    store: BenchStore,
    /// The directory of the embedded store [default: a temporary directory inside the current one]
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    data: Option<PathBuf>,
    /// Use the server at this address, such as ws://127.0.0.1:8090, instead of a bus inside this process
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// The token to send to the server. Other users of the machine can see it here, but not in PROMETHEAN_TOKEN.
    #[arg(long, value_name = "TOKEN", env = "PROMETHEAN_TOKEN", hide = true)]
    token: Option<String>,
}

/// The store of a bus inside this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BenchStore {
    Memory,
    Embedded,
}

/// The group of `subscribe`; always the same, so that runs leave only one group behind.
const GROUP: &str = "bench";
/// Unfinished events that the subscriber may hold.
const IN_FLIGHT: usize = 1_000;

/// Runs `promethean bench publish`.
pub(crate) fn publish(args: &PubsubArgs) -> Result<()> {
    let took = match &args.url {
        Some(url) => remote::publish(args, url)?,
        None => local::publish(args)?,
    };
    let per_s = args.n as f64 / took.as_secs_f64().max(1e-9);
    JsonLine::new()
        .with("published", args.n)
        .with("ms", took.as_millis() as u64)
        .with("mps", (per_s * 10.0).round() / 10.0)
        .print()
}

/// Runs `promethean bench subscribe`.
pub(crate) fn subscribe(args: &PubsubArgs) -> Result<()> {
    let mut samples = match &args.url {
        Some(url) => remote::subscribe(args, url)?,
        None => local::subscribe(args)?,
    };
    JsonLine::new()
        .with("n", samples.len())
        .figure("p50", samples.p50_us() / 1e3)
        .figure("p90", samples.percentile_us(90) / 1e3)
        .figure("p99", samples.p99_us() / 1e3)
        .figure("max", samples.max_us() / 1e3)
        .figure("avg", samples.mean_us() / 1e3)
        .print()
}

/// Makes the payloads of this run and recognises them: a topic may hold events of other runs.
#[derive(Debug)]
struct Stamps {
    start: Instant,
    /// The time of the wall clock at `start`.
    start_ms: f64,
    run: String,
}

#[derive(Debug, Deserialize)]
struct Stamped<'a> {
    t0: f64,
    run: &'a str,
}

impl Stamps {
    fn new() -> Stamps {
        let wall_ms = SystemClock::new().wall_ms();
        let run = format!("{wall_ms}-{}", std::process::id());
        Stamps { start: now(), start_ms: wall_ms as f64, run }
    }

    fn now_ms(&self) -> f64 {
        self.start_ms + self.start.elapsed().as_secs_f64() * 1e3
    }

    fn payload(&self, number: u64) -> String {
        format!(r#"{{"i":{number},"t0":{:.3},"run":"{}"}}"#, self.now_ms(), self.run)
    }

    /// The age of a payload; `None` if another run made it.
    fn age(&self, payload: &[u8]) -> Option<Duration> {
        let stamped: Stamped<'_> = serde_json::from_slice(payload).ok()?;
        let ours = stamped.run == self.run;
        ours.then(|| Duration::from_secs_f64((self.now_ms() - stamped.t0).max(0.0) / 1e3))
    }
}

/// Adds the age of a payload to the samples if this run made it.
fn sample(stamps: &Stamps, samples: &mut Samples, payload: &[u8]) {
    if let Some(age) = stamps.age(payload) {
        samples.push(age);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_payloads_of_this_run_count() {
        let (ours, others) = (Stamps::new(), Stamps { run: "x".into(), ..Stamps::new() });
        let mut samples = Samples::default();
        sample(&ours, &mut samples, ours.payload(1).as_bytes());
        sample(&ours, &mut samples, others.payload(1).as_bytes());
        sample(&ours, &mut samples, b"7");
        assert_eq!(samples.len(), 1);
        assert!(samples.max_us() < 60e6);
    }
}
