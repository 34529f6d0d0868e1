//! The families of the bus. The names are a contract with dashboards and alarms: never change one.

use super::registry::{Family, Kind, Reading, Series};
use super::value::{Bounds, Counter, Gauge, Histogram};

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family { name, help, kind: Kind::Counter }
}

const fn gauge(name: &'static str, help: &'static str) -> Family {
    Family { name, help, kind: Kind::Gauge }
}

const fn histogram(name: &'static str, help: &'static str) -> Family {
    Family { name, help, kind: Kind::Histogram }
}

/// What is counted for a topic.
#[derive(Debug, Default)]
pub struct TopicSeries {
    /// Events added.
    pub published: Counter,
    /// Publishes of an id that was there.
    pub duplicates: Counter,
    /// Publishes refused for their rate.
    pub rate_limited: Counter,
    /// Payloads that did not fit the schema.
    pub schema_rejected: Counter,
    /// Events that could not be lifted to the latest version for a reader.
    pub lift_failures: Counter,
}

impl Series for TopicSeries {
    const LABELS: &'static [&'static str] = &["topic"];
    const FAMILIES: &'static [Family] = &[
        counter("events_published_total", "Events added to the topic."),
        counter("events_duplicate_total", "Publishes whose id was already there."),
        counter("events_rate_limited_total", "Events refused because they came too fast."),
        counter("schema_rejected_total", "Payloads refused because they do not fit the topic's schema."),
        counter(
            "schema_lift_failures_total",
            "Deliveries of events that could not be lifted to the latest schema version.",
        ),
    ];

    fn readings(&self) -> Vec<Reading<'_>> {
        let counters = [
            &self.published,
            &self.duplicates,
            &self.rate_limited,
            &self.schema_rejected,
            &self.lift_failures,
        ];
        counters.map(|counter| Reading::Counter(counter.get())).into()
    }
}

/// What is counted for a group on a topic.
#[derive(Debug)]
pub struct GroupSeries {
    /// Deliveries, also repeated ones.
    pub delivered: Counter,
    /// Events acked.
    pub acked: Counter,
    /// Nacks.
    pub nacked: Counter,
    /// Deliveries beyond an event's first.
    pub redelivered: Counter,
    /// Leases that ran out.
    pub lease_expired: Counter,
    /// Events given up.
    pub dead_lettered: Counter,
    /// Events that retention dropped before the group was given them.
    pub expired: Counter,
    /// Events leased now.
    pub inflight: Gauge,
    /// Events leased to sockets now.
    pub ws_inflight: Gauge,
    /// Events not finished.
    pub lag: Gauge,
    /// Dead letters open now.
    pub dead_letters: Gauge,
    /// Members now.
    pub members: Gauge,
    /// Keys whose events wait for an earlier one now.
    pub blocked_keys: Gauge,
    /// From publish to ack.
    pub latency_ms: Histogram,
}

impl Default for GroupSeries {
    fn default() -> Self {
        Self {
            delivered: Counter::default(),
            acked: Counter::default(),
            nacked: Counter::default(),
            redelivered: Counter::default(),
            lease_expired: Counter::default(),
            dead_lettered: Counter::default(),
            expired: Counter::default(),
            inflight: Gauge::default(),
            ws_inflight: Gauge::default(),
            lag: Gauge::default(),
            dead_letters: Gauge::default(),
            members: Gauge::default(),
            blocked_keys: Gauge::default(),
            latency_ms: Histogram::new(&Bounds::DELIVERY_MS),
        }
    }
}

impl Series for GroupSeries {
    const LABELS: &'static [&'static str] = &["topic", "group"];
    const FAMILIES: &'static [Family] = &[
        counter("events_delivered_total", "Deliveries to members, repeated ones included."),
        counter("events_acked_total", "Events acked."),
        counter("events_nacked_total", "Deliveries nacked."),
        counter("events_redelivered_total", "Deliveries beyond the first of an event."),
        counter("leases_expired_total", "Leases that ran out unanswered."),
        counter("events_dead_lettered_total", "Events given up after their last attempt."),
        counter("events_expired_total", "Events that retention dropped before the group was given them."),
        gauge("events_inflight", "Events leased to members."),
        gauge("ws_inflight", "Events leased to WebSocket subscriptions."),
        gauge("events_lag", "Events of the topic that the group has not finished."),
        gauge("dead_letters_open", "Dead letters that wait to be redriven or dropped."),
        gauge("group_members", "Members of the group."),
        gauge("group_blocked_keys", "Keys whose events wait for an earlier event of the key."),
        histogram("delivery_latency_ms", "Milliseconds from publish, or from the t0 header, to ack."),
    ];

    fn readings(&self) -> Vec<Reading<'_>> {
        let counters = [
            &self.delivered,
            &self.acked,
            &self.nacked,
            &self.redelivered,
            &self.lease_expired,
            &self.dead_lettered,
            &self.expired,
        ];
        let gauges = [
            &self.inflight,
            &self.ws_inflight,
            &self.lag,
            &self.dead_letters,
            &self.members,
            &self.blocked_keys,
        ];
        let counters = counters.into_iter().map(|counter| Reading::Counter(counter.get()));
        let gauges = gauges.into_iter().map(|gauge| Reading::Gauge(gauge.get()));
        counters.chain(gauges).chain([Reading::Histogram(&self.latency_ms)]).collect()
    }
}

/// Refusals by their code.
#[derive(Debug, Default)]
pub struct RejectSeries {
    /// Requests refused.
    pub rejected: Counter,
}

impl Series for RejectSeries {
    const LABELS: &'static [&'static str] = &["code"];
    const FAMILIES: &'static [Family] = &[counter("requests_rejected_total", "Requests refused, by code.")];

    fn readings(&self) -> Vec<Reading<'_>> {
        vec![Reading::Counter(self.rejected.get())]
    }
}

/// What is counted once for the server.
#[derive(Debug)]
pub struct ServerSeries {
    /// Topics there are.
    pub topics: Gauge,
    /// Bytes the log keeps.
    pub log_bytes: Gauge,
    /// Events that retention would have taken, if nobody held them.
    pub held: Gauge,
    /// Projectors that wait for a person.
    pub projectors_halted: Gauge,
    /// Threads that jq programs did not give back.
    pub jq_lost: Gauge,
    /// How long commits took.
    pub commit_us: Histogram,
}

impl Default for ServerSeries {
    fn default() -> Self {
        let commit_us = Histogram::new(&Bounds::COMMIT_US);
        Self {
            topics: Gauge::default(),
            log_bytes: Gauge::default(),
            held: Gauge::default(),
            projectors_halted: Gauge::default(),
            jq_lost: Gauge::default(),
            commit_us,
        }
    }
}

impl Series for ServerSeries {
    const LABELS: &'static [&'static str] = &[];
    const FAMILIES: &'static [Family] = &[
        gauge("topics", "Topics there are."),
        gauge("log_bytes", "Bytes that the log keeps."),
        gauge(
            "retention_held_events",
            "Events that retention would have taken, if no projector had still to read them.",
        ),
        gauge("projectors_halted", "Projectors that stopped and wait for a person."),
        gauge("jq_threads_lost", "Threads that stuck jq programs did not give back."),
        histogram("commit_latency_ms", "Milliseconds from handing a batch to the store to its answer."),
    ];

    fn readings(&self) -> Vec<Reading<'_>> {
        vec![
            Reading::Gauge(self.topics.get()),
            Reading::Gauge(self.log_bytes.get()),
            Reading::Gauge(self.held.get()),
            Reading::Gauge(self.projectors_halted.get()),
            Reading::Gauge(self.jq_lost.get()),
            Reading::Histogram(&self.commit_us),
        ]
    }
}
