//! The flags of `bench log`, and the plan they make.

use clap::Args;

use super::LogMeasurement;
use crate::run::CommonArgs;

const EVENTS_FULL: u64 = 10_000_000;
const EVENTS_QUICK: u64 = 300_000;
const REOPEN_BYTES_FULL: u64 = 10_000_000_000;
const REOPEN_BYTES_QUICK: u64 = 64_000_000;
/// Bytes of a whole record of `reopen`.
pub(crate) const REOPEN_EVENT_BYTES: u32 = 1_024;

/// The flags of `bench log`.
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs<LogMeasurement>,
    /// Events of the largest measurements; the others use fewer [default: 10000000, quick: 300000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..))]
    events: Option<u64>,
    /// Publishers of `append`, a task each
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    publishers: u16,
    /// Batches each publisher keeps unacknowledged
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    outstanding: u16,
    /// Length of a whole event record: header, id, time, key and payload
    #[arg(long, value_name = "BYTES", default_value_t = 200,
        value_parser = clap::value_parser!(u32).range(70..=1_000_000))]
    event_bytes: u32,
    /// Numbers of topics that `append` publishes to
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 100, 1_000, 10_000],
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    topics: Vec<u32>,
    /// Distinct keys [default: a tenth of the events]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    keys: Option<u64>,
    /// Size of the log that `reopen` opens after a kill [default: 10 GB, quick: 64 MB]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    reopen_bytes: Option<u64>,
}

/// The arguments with every default filled in.
#[derive(Debug, Clone)]
pub(crate) struct LogPlan {
    pub(crate) quick: bool,
    /// Events of the largest measurements.
    pub(crate) events: u64,
    pub(crate) keys: u64,
    pub(crate) publishers: usize,
    pub(crate) outstanding: usize,
    pub(crate) event_bytes: usize,
    pub(crate) topics: Vec<usize>,
    pub(crate) reopen_bytes: u64,
}

impl LogPlan {
    pub(crate) fn new(args: &LogArgs) -> LogPlan {
        let events = args.events.unwrap_or(if args.common.quick { EVENTS_QUICK } else { EVENTS_FULL });
        let reopen_bytes = if args.common.quick { REOPEN_BYTES_QUICK } else { REOPEN_BYTES_FULL };
        let reopen_bytes = match (args.reopen_bytes, args.events) {
            (Some(bytes), _) => bytes,
            (None, Some(events)) => reopen_bytes.min(events.saturating_mul(REOPEN_EVENT_BYTES.into())),
            (None, None) => reopen_bytes,
        };
        LogPlan {
            quick: args.common.quick,
            events,
            keys: args.keys.unwrap_or(events / 10).max(1),
            publishers: args.publishers.into(),
            outstanding: args.outstanding.into(),
            event_bytes: args.event_bytes as usize,
            topics: args.topics.iter().map(|count| *count as usize).collect(),
            reopen_bytes,
        }
    }

    /// Events of each run that measures a rate.
    pub(crate) fn rate_events(&self) -> u64 {
        self.events / 4
    }

    /// Operations that are timed one by one.
    pub(crate) fn operations(&self) -> usize {
        if self.quick { 300 } else { 5_000 }
    }
}
