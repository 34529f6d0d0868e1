//! The flags of `bench bus`, and the plan they make.

use clap::Args;

use super::BusMeasurement;
use crate::run::CommonArgs;

const EVENTS_FULL: u64 = 2_000_000;
const EVENTS_QUICK: u64 = 100_000;
const GROUPS_FULL: [usize; 4] = [1, 10, 100, 1_000];
const GROUPS_QUICK: [usize; 3] = [1, 10, 100];
const TOPICS_FULL: [usize; 3] = [1, 100, 10_000];
const TOPICS_QUICK: [usize; 3] = [1, 100, 1_000];
const IDLE_FULL: u32 = 10_000;
const IDLE_QUICK: u32 = 1_000;

/// The flags of `bench bus`.
#[derive(Debug, Args)]
pub(crate) struct BusArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs<BusMeasurement>,
    /// Events of each measurement; with several groups, deliveries [default: 2000000, quick: 100000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..))]
    events: Option<u64>,
    /// Publishers, a task each
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    publishers: u16,
    /// Events each publisher keeps unacknowledged
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    outstanding: u16,
    /// Length of a whole event record: header, id, time, key and payload
    #[arg(long, value_name = "BYTES", default_value_t = 200,
        value_parser = clap::value_parser!(u32).range(70..=1_000_000))]
    event_bytes: u32,
    /// Unfinished events that a member may hold
    #[arg(long, value_name = "N", default_value_t = 1_000,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    in_flight: u32,
    /// Numbers of groups that one topic is delivered to [default: 1,10,100,1000, quick: 1,10,100]
    #[arg(long, value_name = "N,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    groups: Vec<u32>,
    /// Numbers of topics with a group each [default: 1,100,10000, quick: 1,100,1000]
    #[arg(long, value_name = "N,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    topics: Vec<u32>,
    /// Groups without work, with a member each [default: 10000, quick: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    idle_groups: Option<u32>,
    /// Events published per second while latency is measured
    #[arg(long, value_name = "N", default_value_t = 5_000,
        value_parser = clap::value_parser!(u32).range(1_000..=100_000))]
    rate: u32,
}

/// The arguments with every default filled in.
#[derive(Debug, Clone)]
pub(super) struct BusPlan {
    pub(super) quick: bool,
    /// Events of each measurement, or deliveries.
    pub(super) events: u64,
    pub(super) publishers: usize,
    pub(super) outstanding: usize,
    pub(super) event_bytes: usize,
    /// Unfinished events that a member may hold.
    pub(super) in_flight: usize,
    pub(super) groups: Vec<usize>,
    pub(super) topics: Vec<usize>,
    pub(super) idle_groups: usize,
    /// Events per second of `latency`.
    pub(super) rate: u64,
}

impl BusPlan {
    pub(super) fn new(args: &BusArgs) -> BusPlan {
        let idle_groups = args.idle_groups.unwrap_or(if args.common.quick { IDLE_QUICK } else { IDLE_FULL });
        BusPlan {
            quick: args.common.quick,
            events: args.events.unwrap_or(if args.common.quick { EVENTS_QUICK } else { EVENTS_FULL }),
            publishers: args.publishers.into(),
            outstanding: args.outstanding.into(),
            event_bytes: args.event_bytes as usize,
            in_flight: args.in_flight as usize,
            groups: given_or(&args.groups, if args.common.quick { &GROUPS_QUICK } else { &GROUPS_FULL }),
            topics: given_or(&args.topics, if args.common.quick { &TOPICS_QUICK } else { &TOPICS_FULL }),
            idle_groups: idle_groups as usize,
            rate: args.rate.into(),
        }
    }

    /// How long idle groups and a steady rate are measured.
    pub(super) fn watch_seconds(&self) -> u64 {
        if self.quick { 1 } else { 10 }
    }
}

fn given_or(given: &[u32], default: &[usize]) -> Vec<usize> {
    if given.is_empty() { default.to_vec() } else { given.iter().map(|count| *count as usize).collect() }
}
