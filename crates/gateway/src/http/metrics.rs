//! What the gateway counts.

use std::sync::{Arc, OnceLock};

use axum::http::StatusCode;
use promethean_bus::Bus;
use promethean_bus::metrics::{Bounds, Counter, Family, Gauge, Histogram, Kind, Reading, Series, Table};

/// Classes of statuses, by their first digit.
const CLASSES: [&str; 6] = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"];
/// Series of requests: one for each operation and class, and what matches no operation.
const REQUEST_SERIES_MAX: usize = 1_000;

/// What clients ask for over WebSockets, by number; the last is everything else.
pub(crate) const OPS: [&str; 12] = [
    "AUTH",
    "PUBLISH",
    "SUBSCRIBE",
    "UNSUBSCRIBE",
    "ACK",
    "NACK",
    "MODACK",
    "PAUSE",
    "RESUME",
    "FETCH",
    "SEEK",
    "unknown",
];

/// How long requests take, observed in milliseconds and shown in seconds.
const REQUEST_MS: Bounds = Bounds {
    limits: &[1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000],
    labels: &["0.001", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10"],
    per_unit: 1000,
};
const _: () = assert!(REQUEST_MS.limits.len() == REQUEST_MS.labels.len());

/// What a request asked for: an operation of the table, or something else with a name of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route {
    pub(crate) number: usize,
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
}

/// What tokens and addresses are limited in.
const QUOTAS: [&str; 5] = ["auth_failures", "connections", "subscriptions", "topics", "publish"];

/// The metrics of the gateway, shown on the bus's page.
#[derive(Debug)]
pub(crate) struct GatewayMetrics {
    connections: Arc<ConnectionSeries>,
    requests: Arc<Table<RequestSeries>>,
    durations: Arc<Table<DurationSeries>>,
    /// Looked up once: the series of each route, by its number and the class of the status.
    routes: Vec<[OnceLock<RouteSeries>; CLASSES.len()]>,
    frames: [Arc<FrameSeries>; OPS.len()],
    over_quota: Arc<Table<QuotaSeries>>,
}

impl GatewayMetrics {
    /// With so many routes.
    pub(crate) fn new(bus: &Bus, routes: usize) -> Self {
        let registry = bus.metrics().registry();
        let connections = registry.table(1).series(&[]);
        let over_quota = registry.table(QUOTAS.len());
        QUOTAS.iter().for_each(|limit| drop(over_quota.series(&[limit])));
        let frames = registry.table(OPS.len());
        Self {
            connections,
            requests: registry.table(REQUEST_SERIES_MAX),
            durations: registry.table(REQUEST_SERIES_MAX),
            routes: (0..routes).map(|_| Default::default()).collect(),
            frames: OPS.map(|op| frames.series(&[op])),
            over_quota,
        }
    }

    /// Counts a refusal for this limit.
    pub(crate) fn over_quota(&self, limit: &'static str) {
        self.over_quota.series(&[limit]).count.inc();
    }

    /// Counts a connection for as long as what is returned lives.
    pub(crate) fn connection(&self) -> OpenConnection {
        self.connections.accepted.inc();
        self.connections.open.add(1);
        OpenConnection(Arc::clone(&self.connections))
    }

    /// Counts an answer that took so long to begin. Routes come from the table of operations, so there are only so many.
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

    /// Counts frames of clients, by the numbers of their ops.
    pub(crate) fn frames(&self, counts: &mut [u64; OPS.len()]) {
        for (series, count) in self.frames.iter().zip(counts) {
            series.count.add(std::mem::take(count));
        }
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

#[derive(Debug, Default)]
struct ConnectionSeries {
    open: Gauge,
    accepted: Counter,
}

impl Series for ConnectionSeries {
    const LABELS: &'static [&'static str] = &[];
    const FAMILIES: &'static [Family] = &[
        Family { name: "connections", help: "Connections that are open.", kind: Kind::Gauge },
        Family { name: "connections_accepted_total", help: "Connections accepted.", kind: Kind::Counter },
    ];

    fn readings(&self) -> Vec<Reading<'_>> {
        vec![Reading::Gauge(self.open.get()), Reading::Counter(self.accepted.get())]
    }
}

#[derive(Debug, Default)]
struct RequestSeries {
    count: Counter,
}

impl Series for RequestSeries {
    const LABELS: &'static [&'static str] = &["method", "route", "status"];
    const FAMILIES: &'static [Family] = &[Family {
        name: "http_requests_total",
        help: "HTTP requests answered, by route and class of status.",
        kind: Kind::Counter,
    }];

    fn readings(&self) -> Vec<Reading<'_>> {
        vec![Reading::Counter(self.count.get())]
    }
}

#[derive(Debug, Default)]
struct QuotaSeries {
    count: Counter,
}

impl Series for QuotaSeries {
    const LABELS: &'static [&'static str] = &["limit"];
    const FAMILIES: &'static [Family] = &[Family {
        name: "quota_refusals_total",
        help: "Refusals because a token or an address used more than it may.",
        kind: Kind::Counter,
    }];

    fn readings(&self) -> Vec<Reading<'_>> {
        vec![Reading::Counter(self.count.get())]
    }
}

/// What is counted of one route and class of status.
#[derive(Debug)]
struct RouteSeries {
    requests: Arc<RequestSeries>,
    durations: Arc<DurationSeries>,
}

#[derive(Debug)]
struct DurationSeries {
    took: Histogram,
}

impl Default for DurationSeries {
    fn default() -> Self {
        Self { took: Histogram::new(&REQUEST_MS) }
    }
}

impl Series for DurationSeries {
    const LABELS: &'static [&'static str] = &["route", "status_class"];
    const FAMILIES: &'static [Family] = &[Family {
        name: "http_request_duration_seconds",
        help: "From a request to the beginning of its answer, by route and class of status.",
        kind: Kind::Histogram,
    }];

    fn readings(&self) -> Vec<Reading<'_>> {
        vec![Reading::Histogram(&self.took)]
    }
}

#[derive(Debug, Default)]
struct FrameSeries {
    count: Counter,
}

impl Series for FrameSeries {
    const LABELS: &'static [&'static str] = &["op"];
    const FAMILIES: &'static [Family] = &[Family {
        name: "ws_frames_total",
        help: "Frames of clients, by what they ask for.",
        kind: Kind::Counter,
    }];

    fn readings(&self) -> Vec<Reading<'_>> {
        vec![Reading::Counter(self.count.get())]
    }
}
