//! The metrics of the gateway, shown on the bus's page. Dashboards and alarms depend on the names: never
//! change one.

use std::sync::{Arc, OnceLock};

use axum::http::StatusCode;
use promethean_bus::metrics::{Bounds, MetricTable};
use promethean_bus::{Bus, series};
use promethean_model::wire::Op;

/// The op label of a frame that could not be read.
const UNKNOWN_OP: &str = "unknown";
/// Classes of statuses, by their first digit.
const CLASSES: [&str; 6] = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"];
/// Series of requests: one for each route and class of status.
const REQUEST_SERIES_MAX: usize = 1_000;

/// How long requests take, observed in milliseconds and shown in seconds.
const REQUEST_MS: Bounds = Bounds {
    limits: &[1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000],
    labels: &["0.001", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10"],
    per_unit: 1000,
};
const _: () = assert!(REQUEST_MS.limits.len() == REQUEST_MS.labels.len());

series! {
    /// Counts of all connections.
    struct ConnectionSeries [] {
        open: Gauge = "connections", "Connections that are open.";
        accepted: Counter = "connections_accepted_total", "Connections accepted.";
        refused: Counter =
            "connections_refused_total", "Connections closed at once because there were too many.";
        evicted: Counter =
            "connections_evicted_total",
            "Connections without a valid token that were closed to make room for others.";
    }
}

series! {
    /// Counts of one route and class of status.
    struct RequestSeries ["method", "route", "status"] {
        count: Counter = "http_requests_total", "HTTP requests answered, by route and class of status.";
    }
}

series! {
    /// Times of one route and class of status.
    struct DurationSeries ["route", "status_class"] {
        took: Histogram(REQUEST_MS) =
            "http_request_duration_seconds",
            "From a request to the beginning of its answer, by route and class of status.";
    }
}

series! {
    /// Counts of one op.
    struct FrameSeries ["op"] {
        count: Counter = "ws_frames_total", "Frames of clients, by what they ask for.";
    }
}

series! {
    /// Counts of one limit.
    struct QuotaSeries ["limit"] {
        count: Counter =
            "quota_refusals_total", "Refusals because a token or an address used more than it may.";
    }
}

/// A route of the table of operations, or another one with a name of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route {
    pub(crate) number: usize,
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
}

/// The series of one route and class of status.
#[derive(Debug)]
struct RouteSeries {
    requests: Arc<RequestSeries>,
    durations: Arc<DurationSeries>,
}

/// A limit of tokens and addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UsageLimit {
    AuthFailures,
    Connections,
    Subscriptions,
    Topics,
    Groups,
    Publish,
}

impl UsageLimit {
    const ALL: [Self; 6] = [
        Self::AuthFailures,
        Self::Connections,
        Self::Subscriptions,
        Self::Topics,
        Self::Groups,
        Self::Publish,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::AuthFailures => "auth_failures",
            Self::Connections => "connections",
            Self::Subscriptions => "subscriptions",
            Self::Topics => "topics",
            Self::Groups => "groups",
            Self::Publish => "publish",
        }
    }
}

/// Frames of one connection by op, until [`GatewayMetrics::count_frames`] takes them.
#[derive(Debug, Default)]
pub(crate) struct FrameCounts {
    by_op: [u64; Op::ALL.len()],
    unknown: u64,
}

impl FrameCounts {
    /// Counts a frame; `None` is a frame that could not be read.
    pub(crate) fn add(&mut self, op: Option<Op>) {
        let known = op.and_then(|op| self.by_op.get_mut(op as usize));
        *known.unwrap_or(&mut self.unknown) += 1;
    }
}

/// The name of an op in metrics and audit records.
pub(crate) fn op_name(op: Option<Op>) -> &'static str {
    op.map_or(UNKNOWN_OP, Op::name)
}

/// The metrics of the gateway.
#[derive(Debug)]
pub(crate) struct GatewayMetrics {
    connections: Arc<ConnectionSeries>,
    requests: Arc<MetricTable<RequestSeries>>,
    durations: Arc<MetricTable<DurationSeries>>,
    /// The series of each route, by its number and the class of the status. Each is looked up once.
    routes: Vec<[OnceLock<RouteSeries>; CLASSES.len()]>,
    frames: [Arc<FrameSeries>; Op::ALL.len()],
    unknown_frames: Arc<FrameSeries>,
    over_quota: Arc<MetricTable<QuotaSeries>>,
}

impl GatewayMetrics {
    /// For this number of routes.
    pub(crate) fn new(bus: &Bus, routes: usize) -> Self {
        let registry = bus.metrics().registry();
        let connections = registry.table(1).series(&[]);
        let over_quota = registry.table(UsageLimit::ALL.len());
        UsageLimit::ALL.iter().for_each(|limit| drop(over_quota.series(&[limit.name()])));
        let frames = registry.table(Op::ALL.len() + 1);
        Self {
            connections,
            requests: registry.table(REQUEST_SERIES_MAX),
            durations: registry.table(REQUEST_SERIES_MAX),
            routes: (0..routes).map(|_| Default::default()).collect(),
            frames: Op::ALL.map(|op| frames.series(&[op.name()])),
            unknown_frames: frames.series(&[UNKNOWN_OP]),
            over_quota,
        }
    }

    /// Counts a refusal for this limit.
    pub(crate) fn over_quota(&self, limit: UsageLimit) {
        self.over_quota.series(&[limit.name()]).count.inc();
    }

    /// Counts a connection until the returned guard is dropped.
    pub(crate) fn connection(&self) -> OpenConnection {
        self.connections.accepted.inc();
        self.connections.open.add(1);
        OpenConnection(Arc::clone(&self.connections))
    }

    /// Counts a connection that was closed at once.
    pub(crate) fn connection_refused(&self) {
        self.connections.refused.inc();
    }

    /// Counts a connection that made room for another one.
    pub(crate) fn connection_evicted(&self) {
        self.connections.evicted.inc();
    }

    /// Counts an answer that began after so long. Routes come from the table of operations, so their number
    /// is bounded.
    pub(crate) fn answered(&self, route: Route, status: StatusCode, took_ms: u64) {
        let class = usize::from(status.as_u16() / 100);
        let (index, class) = CLASSES.get(class).map_or((0, "other"), |name| (class, *name));
        let Some(slot) = self.routes.get(route.number).and_then(|classes| classes.get(index)) else { return };
        let series = slot.get_or_init(|| RouteSeries {
            requests: self.requests.series(&[route.method, route.path, class]),
            durations: self.durations.series(&[route.path, class]),
        });
        series.requests.count.inc();
        series.durations.took.observe(took_ms);
    }

    /// Takes the frames that a connection has counted.
    pub(crate) fn count_frames(&self, counts: &mut FrameCounts) {
        let FrameCounts { by_op, unknown } = std::mem::take(counts);
        for (series, count) in self.frames.iter().zip(by_op) {
            series.count.add(count);
        }
        self.unknown_frames.count.add(unknown);
    }
}

/// A connection that is open.
#[derive(Debug)]
pub(crate) struct OpenConnection(Arc<ConnectionSeries>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.add(-1);
    }
}
