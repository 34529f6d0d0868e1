//! How much of everything is measured.

use crate::args::BusArgs;

const EVENTS_FULL: u64 = 2_000_000;
const EVENTS_QUICK: u64 = 100_000;
const GROUPS_FULL: [usize; 4] = [1, 10, 100, 1_000];
const GROUPS_QUICK: [usize; 3] = [1, 10, 100];
const TOPICS_FULL: [usize; 3] = [1, 100, 10_000];
const TOPICS_QUICK: [usize; 3] = [1, 100, 1_000];
const IDLE_FULL: u32 = 10_000;
const IDLE_QUICK: u32 = 1_000;

/// The arguments with every default filled in.
#[derive(Debug, Clone)]
pub(super) struct BusPlan {
    pub(super) quick: bool,
    /// Events of each measurement, or deliveries.
    pub(super) events: u64,
    pub(super) publishers: usize,
    pub(super) outstanding: usize,
    pub(super) event_bytes: usize,
    /// Events that a member holds.
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

    /// How long something is watched that should do nothing, or runs at a given rate.
    pub(super) fn watch_seconds(&self) -> u64 {
        if self.quick { 1 } else { 10 }
    }
}

fn given_or(given: &[u32], default: &[usize]) -> Vec<usize> {
    if given.is_empty() { default.to_vec() } else { given.iter().map(|count| *count as usize).collect() }
}
