//! The flags of `bench gateway`, and the plan they make.

use std::time::{Duration, Instant};

use clap::Args;

use super::GatewayMeasurement;
use crate::run::CommonArgs;
use crate::timing::now;

const EVENTS_FULL: u64 = 1_000_000;
const EVENTS_QUICK: u64 = 40_000;
const SOCKETS_FULL: [usize; 2] = [2_000, 10_000];
const SOCKETS_QUICK: [usize; 1] = [500];
/// Bytes of payloads.
pub(super) const PAYLOADS: [usize; 2] = [100, 1_024];
/// Events that a connection keeps unconfirmed.
pub(super) const OUTSTANDING: u64 = 256;
/// Events in a frame of `publish_batch`.
pub(super) const BATCH_EVENTS: usize = 128;
/// Unfinished events that a subscriber may hold.
pub(super) const IN_FLIGHT: u64 = 1_000;

/// The flags of `bench gateway`.
#[derive(Debug, Args)]
pub(crate) struct GatewayArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs<GatewayMeasurement>,
    /// Events of the largest measurements; the others use fewer [default: 1000000, quick: 40000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..))]
    events: Option<u64>,
    /// Events published per second while `latency` is measured
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Subscribers of `fanout`, each a group of its own
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    subscribers: u32,
    /// Events published per second to all subscribers of `fanout`
    #[arg(long, value_name = "N", default_value_t = 2_000,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    fanout_rate: u32,
    /// Numbers of sockets without traffic [default: 2000,10000, quick: 500]
    #[arg(long, value_name = "N,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=20_000))]
    sockets: Vec<u32>,
}

/// The arguments with every default filled in.
#[derive(Debug, Clone)]
pub(super) struct GatewayPlan {
    quick: bool,
    /// Events of the largest measurements.
    pub(super) events: u64,
    /// Events per second of `latency`.
    pub(super) rate: u64,
    pub(super) subscribers: usize,
    /// Events per second of `fanout`.
    pub(super) fanout_rate: u64,
    pub(super) sockets: Vec<usize>,
}

impl GatewayPlan {
    pub(super) fn new(args: &GatewayArgs) -> GatewayPlan {
        let quick = args.common.quick;
        let mut sockets: Vec<usize> = args.sockets.iter().map(|count| *count as usize).collect();
        if sockets.is_empty() {
            sockets = if quick { SOCKETS_QUICK.to_vec() } else { SOCKETS_FULL.to_vec() };
        }
        sockets.sort_unstable();
        GatewayPlan {
            quick,
            events: args.events.unwrap_or(if quick { EVENTS_QUICK } else { EVENTS_FULL }),
            rate: args.rate.into(),
            subscribers: args.subscribers as usize,
            fanout_rate: args.fanout_rate.into(),
            sockets,
        }
    }

    /// Events of a backlog that is drained or replayed.
    pub(super) fn backlog(&self) -> u64 {
        self.events / 2
    }

    /// Events of `single`.
    pub(super) fn singles(&self) -> usize {
        (self.events / 100).clamp(100, 5_000) as usize
    }

    /// Events of a measurement at a steady rate.
    pub(super) fn paced_events(&self, per_s: u64) -> u64 {
        let seconds = if self.quick { 1 } else { 8 };
        (per_s * seconds).min(self.events)
    }

    /// How long an idle server is measured.
    pub(super) fn watch(&self) -> Duration {
        Duration::from_millis(if self.quick { 200 } else { 2_000 })
    }

    /// When a measurement of a rate ends, even if events are left: the rate counts the published ones.
    pub(super) fn until(&self) -> Instant {
        now() + Duration::from_secs(if self.quick { 3 } else { 12 })
    }

    /// When filling a topic fails: later steps need all of its events.
    pub(super) fn until_loaded(&self) -> Instant {
        now() + Duration::from_secs(120)
    }
}
