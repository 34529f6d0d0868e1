//! How much of everything is measured.

use crate::args::BenchArgs;

const EVENTS_FULL: u64 = 10_000_000;
const EVENTS_QUICK: u64 = 300_000;
const REOPEN_BYTES_FULL: u64 = 10_000_000_000;
const REOPEN_BYTES_QUICK: u64 = 64_000_000;
/// Events of `reopen`, in bytes of the whole record.
pub(crate) const REOPEN_EVENT_BYTES: u32 = 1_024;

/// The arguments with every default filled in.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
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

impl Plan {
    pub(crate) fn new(args: &BenchArgs) -> Plan {
        let events = args.events.unwrap_or(if args.common.quick { EVENTS_QUICK } else { EVENTS_FULL });
        let reopen_bytes = if args.common.quick { REOPEN_BYTES_QUICK } else { REOPEN_BYTES_FULL };
        let reopen_bytes = match (args.reopen_bytes, args.events) {
            (Some(bytes), _) => bytes,
            (None, Some(events)) => reopen_bytes.min(events.saturating_mul(REOPEN_EVENT_BYTES.into())),
            (None, None) => reopen_bytes,
        };
        Plan {
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

    /// Single operations timed one by one.
    pub(crate) fn operations(&self) -> usize {
        if self.quick { 300 } else { 5_000 }
    }
}
